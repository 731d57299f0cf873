package daemon

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"berth/internal/api"
	"berth/internal/queue/access"
	"berth/internal/queue/config"
	"berth/internal/queue/messages"
	"berth/internal/queue/ports"
	"berth/internal/text/problem"
)

// door lets callers in: it knows tokens, logins and sessions.
type door struct {
	svc      *service
	ports    *ports.Ports
	messages *messages.Messages
	tokens   *access.Tokens
	logins   access.Logins // one-time, of the page
}

// NewLogin makes a one-time login for the caller, and says where the page is.
func (h *door) NewLogin(_ context.Context, c api.Caller, r api.LoginRequest) (api.Login, error) {
	if c.Token != "" {
		return api.Login{}, problem.Newf(problem.Forbidden, "open the page and log in with the token itself", "a token cannot create a login")
	}
	address, err := h.pageAddress()
	if err == nil {
		err = h.mayLogIn(c, strings.HasPrefix(address, "https:"), r.PlainHTTP)
	}
	if err != nil {
		return api.Login{}, err
	}
	secret, expires, err := h.logins.Create(c.Name, c.UID, r.PlainHTTP, time.Now())
	h.svc.Note(c, "login create", nil, "", err)
	return api.Login{Secret: secret, Expires: expires.UTC().Truncate(time.Second), Address: address}, err
}

// OpenSession exchanges a one-time login or a token for a session.
func (h *door) OpenSession(ctx context.Context, visitor api.Caller, r api.SessionRequest) (api.Session, error) {
	w := visitor.Way
	if w.Listener == "" {
		return api.Session{}, problem.Newf(problem.Refused, "send this to the address of the page", "the daemon's own socket has no sessions: the kernel vouches for its callers")
	}
	now := time.Now()
	one, isLogin := h.logins.Take(r.Secret, now)
	parent, detail := access.TokenEntry{User: one.User, UID: one.UID}, ""
	if !isLogin {
		var ok bool
		if parent, ok = h.tokens.Check(r.Secret, now); !ok {
			err := problem.Newf(problem.Forbidden, "berth web makes another login; if somebody else used it, berth token list shows the session and berth token revoke ends it",
				"this login is unknown, was used already, or has expired")
			h.svc.Note(api.Caller{UID: -1, Way: w}, "session open", nil, "", err)
			return api.Session{}, err
		}
		detail = " from token " + parent.ID
	}
	c, err := h.admit(ctx, parent.UID, parent.User, 0)
	if err == nil {
		err = h.mayLogIn(c, w.Trusted(), one.Plain)
	}
	var t api.Token
	if err == nil {
		t, err = h.tokens.Open(parent, r.Key, w.Listener, now)
	}
	h.svc.Note(api.Caller{UID: parent.UID, Name: parent.User, Way: w}, "session open", nil, t.ID+detail, err)
	return api.Session{ID: t.ID, User: t.User, Expires: t.Expires}, err
}

// Listening ends the sessions of every listener but the one that the
// daemon has now: somebody else may have answered in its place.
func (h *door) Listening(listener string) {
	if err := h.tokens.EndSessions(func(of string) bool { return of != listener }); err != nil {
		h.svc.queue.Log.Warn("end sessions of an earlier listener", "err", err)
	}
}

// EndSession logs a browser out. A token that is not a session's stays valid.
func (h *door) EndSession(ctx context.Context, c api.Caller, _ api.None) (api.None, error) {
	if !h.tokens.IsSession(c.Token) {
		return api.None{}, problem.Newf(problem.Refused, "berth token revoke revokes a token", "this request belongs to no session")
	}
	return h.RevokeToken(ctx, c, api.TokenID{ID: c.Token})
}

// pageAddress is where a browser finds the page.
func (h *door) pageAddress() (string, error) {
	address, warnings := h.ports.HTTP()
	if address == "" && len(warnings) > 0 {
		return "", problem.Newf(problem.Unable, "see the daemon's log", "%s", warnings[0])
	}
	if address == "" && h.svc.places.Shared {
		return "", problem.Newf(problem.Refused, "ask an administrator to set listen, tls_cert and tls_key in [http] of the config, or listen = \"unix:/run/berth/http.sock\" behind a proxy with TLS, and to restart the daemon", "this daemon listens on no address for the page")
	}
	if address == "" {
		var err error
		if address, err = h.ports.OpenPage(); err != nil {
			return "", problem.Newf(problem.Unable, "start the daemon with --http ADDRESS", "no port for the page: %v", err)
		}
	}
	return pageURL(address, h.svc.Config()), nil
}

// pageURL is an address as a browser takes it. One that means all addresses of
// the machine is replaced by a name.
func pageURL(address string, cfg *config.Config) string {
	if strings.HasPrefix(cfg.Listen, config.UnixListen) {
		return "https://" + cfg.Hosts[0]
	}
	scheme := "http://"
	if cfg.TLSCert != "" {
		scheme = "https://"
	}
	parsed, err := netip.ParseAddrPort(address)
	if err != nil || parsed.Addr().IsLoopback() {
		return scheme + address
	}
	_, port, _ := net.SplitHostPort(address)
	name := parsed.Addr().String()
	if parsed.Addr().IsUnspecified() {
		host, _ := os.Hostname()
		name = cmp.Or(host, "localhost")
	}
	if len(cfg.Hosts) > 0 { // the names that are in its certificate
		name = cfg.Hosts[0]
	}
	return scheme + net.JoinHostPort(name, port)
}

// NewToken creates a token with the caller's own permissions.
func (h *door) NewToken(_ context.Context, c api.Caller, r api.TokenRequest) (api.Token, error) {
	if c.Token != "" {
		return api.Token{}, problem.Newf(problem.Forbidden, "use the socket on the machine itself", "a token cannot create another token")
	}
	t, err := h.tokens.Create(c.Name, c.UID, r.Name, access.TTL(r.TTLS), time.Now())
	h.svc.Note(c, "token create", nil, t.ID, err)
	return t, err
}

// Tokens lists the caller's tokens, or all for an administrator.
func (h *door) Tokens(_ context.Context, c api.Caller) ([]api.Token, error) {
	return h.tokens.List(c.UID, c.Admin, time.Now()), nil
}

// RevokeTokens revokes all tokens and sessions of a user.
func (h *door) RevokeTokens(_ context.Context, c api.Caller, q api.RevokeQuery) (api.Revoked, error) {
	name, uid := c.Name, c.UID
	if q.User != "" && q.User != c.Name {
		name, uid = q.User, -1
		if !c.Admin {
			err := problem.Newf(problem.Forbidden, "", "only administrators revoke other users' tokens")
			h.svc.Note(c, "token revoke all", nil, name, err)
			return api.Revoked{}, err
		}
	}
	ids, err := h.tokens.RevokeAll(name, uid)
	h.svc.Note(c, "token revoke all", nil, name+": "+strings.Join(ids, " "), err)
	return api.Revoked{IDs: ids}, err
}

// RevokeToken revokes one.
func (h *door) RevokeToken(_ context.Context, c api.Caller, q api.TokenID) (api.None, error) {
	err := h.tokens.Revoke(q.ID, c.UID, c.Admin)
	h.svc.Note(c, "token revoke", nil, q.ID, err)
	return api.None{}, err
}
