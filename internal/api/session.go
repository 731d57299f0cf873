package api

import (
	"net"
	"net/http"
	"strings"
	"time"

	"berth/internal/problem"
)

// headerSession carries the half of a session's secret that the page holds. The
// other half is in a cookie, which no script can read, but which a browser sends
// to every port of the host. Neither half is worth anything alone.
const headerSession = "Berth-Session"

// maxLoginBytes bounds a request to log in.
const maxLoginBytes = 4096

// Login is a one-time way to open the page as the caller.
type Login struct {
	Secret  string    `json:"secret" doc:"good for one login"`
	Expires time.Time `json:"expires"`
	Address string    `json:"address" doc:"the page: http://127.0.0.1:7878"`
}

// sessionRequest opens a session.
type sessionRequest struct {
	Secret string `json:"secret" doc:"of a one-time login, or of a token"`
}

// Session is a login of a browser.
type Session struct {
	ID      string    `json:"id" doc:"berth token revoke ends it"`
	Key     string    `json:"key" doc:"to be sent with each request, in the header Berth-Session, beside the cookie"`
	User    string    `json:"user"`
	Expires time.Time `json:"expires"`
}

func sessionOperations() []route {
	return []route{
		{method: post, path: "/v1/logins", handle: (*exchange).postLogin, doc: doc{
			id: "new-login", tag: "tokens", summary: "Create a one-time login for the page",
			about: "Good for 5 minutes and one session. A private daemon that listens on no address opens a loopback one. Tokens cannot create logins.",
			reply: exampleLogin, kinds: []problem.Kind{problem.Forbidden, problem.Refused},
		}},
		{method: post, path: "/v1/session", handle: (*exchange).postSession, body: true, open: true, doc: doc{
			id: "open-session", tag: "tokens", summary: "Open a session",
			about:   "For browsers. The secret is that of a one-time login or of a token. The reply sets a cookie, which is one half of the session's secret; key is the other one. A session lasts a week at most, and not longer than its token.",
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

func (x *exchange) postLogin() error { return x.reply(x.backend.NewLogin(x.r.Context(), x.caller)) }

func (x *exchange) postSession() error {
	var r sessionRequest
	if err := decode(x.body(maxLoginBytes), &r); err != nil {
		return err
	}
	if r.Secret == "" || len(r.Secret) > maxSecretBytes {
		return problem.Newf(problem.Invalid, "", "expected the secret of a login or a token")
	}
	token, err := x.backend.OpenSession(x.r.Context(), r.Secret)
	if err != nil {
		return err
	}
	half := len(token.Secret) / 2
	x.setCookie(token.Secret[:half], token.Expires)
	return x.reply(Session{ID: token.ID, Key: token.Secret[half:], User: token.User, Expires: token.Expires}, nil)
}

func (x *exchange) deleteSession() error {
	if err := x.backend.EndSession(x.r.Context(), x.caller); err != nil {
		return err
	}
	x.setCookie("", time.Unix(1, 0))
	x.w.WriteHeader(http.StatusNoContent)
	return nil
}

func (x *exchange) setCookie(value string, expires time.Time) {
	proxied := connOf(x.r.Context()).LocalAddr().Network() == "unix"
	http.SetCookie(x.w, &http.Cookie{
		Name: cookieName(x.r.Host), Value: value, Path: "/", Expires: expires,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: x.r.TLS != nil || proxied,
	})
}

// cookieName tells daemons on different ports of one host apart.
func cookieName(host string) string {
	if _, port, err := net.SplitHostPort(host); err == nil && port != "" {
		return "berth-" + port
	}
	return "berth"
}

// secretOf is the secret with which a request proves who sent it: of a token, or
// of a session.
func secretOf(r *http.Request) string {
	scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(secret)
	}
	if r.Header.Get("Authorization") != "" {
		return ""
	}
	key := r.Header.Get(headerSession)
	cookie, err := r.Cookie(cookieName(r.Host))
	if err != nil || key == "" || cookie.Value == "" {
		return ""
	}
	return cookie.Value + key
}
