package api

import (
	"net/http"

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
