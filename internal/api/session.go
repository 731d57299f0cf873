package api

import (
	"net/http"
	"time"

	"berth/internal/text/problem"
)

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

func sessionOperations() []route {
	return []route{
		{method: post, path: "/v1/logins", handle: (*exchange).postLogin, body: true, doc: doc{
			id: "new-login", tag: "tokens", summary: "Create a one-time login for the page",
			about:   "Good for 5 minutes and one session. A private daemon that listens on no address opens a loopback one. Tokens cannot create logins. Root, and administrators of a shared daemon, get one only where the page has TLS.",
			request: exampleLoginRequest, reply: exampleLogin, kinds: []problem.Kind{problem.Forbidden, problem.Refused},
		}},
		{method: post, path: "/v1/session", handle: (*exchange).postSession, body: true, open: true, doc: doc{
			id: "open-session", tag: "tokens", summary: "Open a session",
			about:   "For browsers. The secret is that of a one-time login or of a token. The session has no secret: each of its requests is signed with the private key, in the header Berth-Session. A session lasts a week at most, not longer than its token, and ends when the daemon listens on another socket.",
			request: exampleSessionRequest, reply: exampleSession, kinds: []problem.Kind{problem.Invalid, problem.Forbidden, problem.TooMuch},
		}},
		{method: remove, path: "/v1/session", handle: (*exchange).deleteSession, doc: doc{
			id: "end-session", tag: "tokens", summary: "End the session of this request",
			about:  "Logs the browser out.",
			status: http.StatusNoContent, kinds: []problem.Kind{problem.Refused},
		}},
		{method: get, path: "/{$}", handle: (*exchange).getPage, open: true, doc: doc{hidden: true}},
		{method: get, path: "/assets/{file}", handle: (*exchange).getPage, open: true, doc: doc{hidden: true}},
	}
}

// visitor is a caller who has yet to log in, and reaches only open routes.
var visitor = Caller{UID: -1, Name: "visitor"}

// isOpen reports whether a request needs no identity.
func (s *Server) isOpen(r *http.Request) bool {
	_, pattern := s.mux.Handler(r)
	return s.open[pattern]
}

func (x *exchange) getPage() error {
	if x.options.Page == nil {
		return noPath(x.r.URL.Path)
	}
	x.options.Page.ServeHTTP(x.w, x.r)
	return nil
}

func (x *exchange) postLogin() error {
	var r LoginRequest
	if x.r.ContentLength != 0 {
		if err := decode(x.body(maxLoginBytes), &r); err != nil {
			return err
		}
	}
	return x.reply(x.backend.NewLogin(x.r.Context(), x.caller, r))
}

func (x *exchange) postSession() error {
	var r SessionRequest
	if err := decode(x.body(maxLoginBytes), &r); err != nil {
		return err
	}
	if r.Secret == "" || len(r.Secret) > maxSecretBytes {
		return problem.Newf(problem.Invalid, "", "expected the secret of a login or a token")
	}
	if !validKey(r.Key) {
		return problem.Newf(problem.Invalid, "", "key: expected a public key of ECDSA P-256 in base64url, found %s", quoted(r.Key))
	}
	token, err := x.backend.OpenSession(x.r.Context(), r, x.way())
	if err != nil {
		return err
	}
	if x.door != nil {
		x.w.Header().Set(headerChallenge, x.door.challenges.current(time.Now()))
	}
	return x.reply(Session{ID: token.ID, User: token.User, Expires: token.Expires}, nil)
}

func (x *exchange) deleteSession() error {
	if err := x.backend.EndSession(x.r.Context(), x.caller); err != nil {
		return err
	}
	x.w.WriteHeader(http.StatusNoContent)
	return nil
}
