package api

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"time"

	"berth/internal/text/problem"
)

// socketCaller is the user at the other end of a Unix socket. The answer is
// cached for a short time: the user of a connection stays the same, but
// permissions may change.
func (s *Server) socketCaller(ctx context.Context, c *conn) (Caller, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.checkedAt.IsZero() && time.Since(c.checkedAt) < s.limits.Recheck {
		return c.caller, nil
	}
	caller, err := s.options.Identify(ctx, c.peer)
	if err != nil {
		return Caller{}, err
	}
	c.caller, c.checkedAt = caller, time.Now()
	return caller, nil
}

// tcpCaller is who sent a request by TCP: a session's page, or the owner of a
// token. Each request is checked, so that what is revoked stops working at once.
func (x *exchange) tcpCaller(ctx context.Context) (Caller, error) {
	authorization := x.r.Header.Get("Authorization")
	if authorization == "" && x.r.Header.Get(headerSession) != "" {
		return x.sessionCaller(ctx)
	}
	scheme, secret, _ := strings.Cut(authorization, " ")
	secret = strings.TrimSpace(secret)
	if !strings.EqualFold(scheme, "Bearer") || secret == "" || len(secret) > maxSecretBytes {
		return Caller{}, &problem.Problem{Kind: problem.Forbidden, What: "this address needs a token",
			Hint: "create one with `berth token create` and send it as Authorization: Bearer …; berth web opens the page", Err: errNoToken}
	}
	return x.identified(ctx, Peer{UID: -1, GID: -1, Secret: secret, Way: x.way()})
}

// identified asks who a peer is.
func (x *exchange) identified(ctx context.Context, p Peer) (Caller, error) {
	x.peer = p
	caller, err := x.options.Identify(ctx, p)
	refused, ok := errors.AsType[*problem.Problem](err)
	if ok && (refused.Kind == problem.Forbidden || refused.Kind == problem.NotFound || refused.Kind == problem.Invalid) {
		return Caller{}, &problem.Problem{Kind: problem.Forbidden, What: refused.What, Hint: refused.Hint, Err: errNoToken}
	}
	return caller, err
}

// errOver ends the streams of a token or a session that has ended, and of a user
// who has other permissions now.
var errOver = &problem.Problem{Kind: problem.Forbidden, What: "the token or session has ended, or its user's permissions have changed", Hint: "open another with: berth token create, or berth web", Err: errNoToken}

// isOver reports whether a stream was ended for that.
func (x *exchange) isOver() bool {
	return x.streaming != nil && errors.Is(context.Cause(x.streaming), errOver)
}

// way is how the request came in.
func (x *exchange) way() Way {
	if x.door == nil {
		return Way{Via: viaSocket}
	}
	way := x.door.way
	if from, err := netip.ParseAddrPort(x.r.RemoteAddr); err == nil && way.Via != viaProxy {
		way.From = from.Addr().Unmap().String()
	}
	return way
}
