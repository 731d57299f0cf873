package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"berth/internal/queue/fair"
	"berth/internal/text/problem"
)

// routes registers every endpoint.
func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	s.open = map[string]bool{}
	for _, e := range endpoints() {
		op := e.op()
		s.open[op.Method+" "+op.Path] = op.Need == Anyone
		mux.HandleFunc(op.Method+" "+op.Path, func(_ http.ResponseWriter, request *http.Request) {
			x, isOurs := request.Context().Value(exchangeKey{}).(*exchange)
			if !isOurs {
				panic("bug: a request bypassed the checks")
			}
			x.op, x.r = op, request
			if err := x.run(); err != nil {
				x.fail(err)
			}
		})
	}
	return mux
}

// run does what all operations have in common, then the operation.
func (x *exchange) run() error {
	if over := x.options.Ended; over != nil && !x.op.Ended {
		return over
	}
	handle := x.handlers[x.op]
	if handle == nil {
		return problem.Newf(problem.Refused, "ask a daemon", "nobody answers %s here", x.op.ID)
	}
	if x.r.ContentLength != 0 && x.op.Body == noBody {
		return problem.Newf(problem.Invalid, "", "this request must not have a body")
	}
	if x.op.heavy {
		done, err := x.heavy.Enter(x.r.Context())
		if err != nil {
			return err
		}
		defer done()
	}
	if x.op.long || x.op.sliced {
		ctx, leave := x.gate.Begin(x.r.Context())
		defer leave()
		x.r, x.ready = x.r.WithContext(ctx), leave
		if x.op.long {
			if err := fair.Spend(ctx, fair.Long); err != nil {
				return err
			}
		}
	}
	return handle(x)
}

// stream counts a long-lived request and gives it a context that ends with the
// server, with the caller's token, and when the caller is no longer who they were.
// The caller must call done.
func (x *exchange) stream() (ctx context.Context, done func(), err error) {
	most := x.limits.UserStreams
	if x.caller.UID == 0 {
		most = x.limits.RootStreams
	}
	if !x.streamsHeld.take(x.caller.UID, most, x.limits.Connections) {
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
