package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"berth/internal/problem"
)

// maxSecretBytes bounds a token.
const maxSecretBytes = 512

// serveUnix serves a request whose caller the kernel identified.
func (s *Server) serveUnix(w http.ResponseWriter, r *http.Request) {
	s.serveAs(w, r, func(ctx context.Context) (Caller, error) { return s.socketCaller(ctx, connOf(ctx)) })
}

// socketCaller is the user at the other end of a Unix socket. The answer is
// cached for a short time: the user of a connection stays the same, but
// permissions may change.
func (s *Server) socketCaller(ctx context.Context, c *conn) (Caller, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.checkedAt.IsZero() && time.Since(c.checkedAt) < s.limits.Recheck {
		return c.caller, nil
	}
	caller, err := s.backend.Identify(ctx, c.peer)
	if err != nil {
		return Caller{}, err
	}
	c.caller, c.checkedAt = caller, time.Now()
	return caller, nil
}

// tokenCaller is the owner of a request's token. It is checked every time, so
// that a revoked token stops working at once.
func (s *Server) tokenCaller(ctx context.Context, r *http.Request, way Way) (Caller, error) {
	secret := secretOf(r)
	if secret == "" || len(secret) > maxSecretBytes {
		return Caller{}, &problem.Problem{Kind: problem.Forbidden, What: "this address needs a token",
			Hint: "create one with `berth token create` and send it as Authorization: Bearer …; berth web opens the page", Err: errNoToken}
	}
	caller, err := s.backend.Identify(ctx, Peer{UID: -1, GID: -1, Secret: secret, Way: way})
	p, ok := errors.AsType[*problem.Problem](err)
	if ok && (p.Kind == problem.Forbidden || p.Kind == problem.NotFound || p.Kind == problem.Invalid) {
		return Caller{}, &problem.Problem{Kind: problem.Forbidden, What: p.What, Hint: p.Hint, Err: errNoToken}
	}
	return caller, err
}
