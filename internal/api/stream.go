package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"berth/internal/text/problem"
)

// stream counts a long-lived request and gives it a context that ends with the
// server, with the caller's token, and when the caller is no longer who they were.
// The caller must call done.
func (x *exchange) stream() (ctx context.Context, done func(), err error) {
	most := x.limits.UserStreams
	if x.caller.UID == 0 {
		most = x.limits.RootStreams
	}
	if !x.streamsHeld.admit(x.caller.UID, most, x.limits.Connections) {
		return nil, nil, problem.Newf(problem.TooMuch, "end some of them first", "too many streams, followed logs, attached terminals and waits: %d", most)
	}
	ctx, cancel := context.WithCancelCause(x.r.Context())
	x.streaming = ctx
	unhook := context.AfterFunc(x.stopping, func() { cancel(errStopping) })
	go x.watchCaller(ctx, cancel)
	return ctx, func() {
		unhook()
		cancel(nil)
		x.streamsHeld.drop(x.caller.UID)
	}, nil
}

// watchCaller ends a stream whose token or session has ended, or whose user was
// deleted or has other permissions than when it began.
func (x *exchange) watchCaller(ctx context.Context, cancel context.CancelCauseFunc) {
	var over <-chan struct{}
	if x.caller.Over != nil {
		over = x.caller.Over.Done()
	}
	tick := time.NewTicker(x.limits.Recheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-over:
			cancel(errOver)
			return
		case <-tick.C:
		}
		is, err := x.options.Identify(ctx, x.peer)
		refused, ok := errors.AsType[*problem.Problem](err)
		if ok && refused.Kind == problem.Forbidden || err == nil && (is.Name != x.caller.Name || is.Admin != x.caller.Admin) {
			cancel(errOver)
			return
		}
	}
}

// wantsUpgrade reports whether a request asks to upgrade to the protocol.
func wantsUpgrade(r *http.Request, protocol string) bool {
	for _, value := range r.Header.Values("Connection") {
		for token := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(token), "upgrade") {
				return strings.EqualFold(r.Header.Get("Upgrade"), protocol)
			}
		}
	}
	return false
}
