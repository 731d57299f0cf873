package api

import (
	"time"

	"berth/internal/text/problem"
)

// maxSecretBytes bounds a token.
const maxSecretBytes = 512

// maxLoginBytes bounds a request to log in.
const maxLoginBytes = 4096

// LoginRequest makes a one-time login.
type LoginRequest struct {
	PlainHTTP bool `json:"plain_http,omitempty" doc:"root accepts a page without TLS; only for a private daemon"`
}

// Login is a one-time way to open the page as the caller.
type Login struct {
	Secret  string    `json:"secret" doc:"good for one login"`
	Expires time.Time `json:"expires"`
	Address string    `json:"address" doc:"the page: http://127.0.0.1:7878"`
}

// SessionRequest opens a session.
type SessionRequest struct {
	Secret string `json:"secret" doc:"of a one-time login, or of a token"`
	Key    string `json:"key" doc:"the public key that requests are signed for: ECDSA P-256, the uncompressed point in base64url"`
}

// Session is a login of a browser.
type Session struct {
	ID      string    `json:"id" doc:"berth token revoke ends it"`
	User    string    `json:"user"`
	Expires time.Time `json:"expires"`
}

func (r *SessionRequest) check(*Limits) error {
	if r.Secret == "" || len(r.Secret) > maxSecretBytes {
		return problem.Newf(problem.Invalid, "", "expected the secret of a login or a token")
	}
	if !validKey(r.Key) {
		return problem.Newf(problem.Invalid, "", "key: expected a public key of ECDSA P-256 in base64url, found %s", quoted(r.Key))
	}
	return nil
}
