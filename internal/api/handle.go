package api

import (
	"context"
	"net/http"
	"reflect"
	"time"
)

// What a request or a reply may have besides its fields.
type (
	checked  interface{ check(l *Limits) error } // a request: what its tags do not say, and its defaults
	prepared interface{ prepare() error }        // a request: before it is sent
	headed   interface{ header() http.Header }   // a request: with a header of its own
	lasting  interface{ takes() time.Duration }  // a request: how long its answer may take by its nature
	filled   interface{ fill() }                 // a reply: its lists are never null
	replier  interface {                         // a reply that is not sent as others are
		reply(x *exchange) error
	}
)

// Handle makes f answer an endpoint, in place of what answered it before.
func Handle[Q, R any](s *Server, e *Endpoint[Q, R], f func(context.Context, Caller, Q) (R, error)) {
	s.handlers[&e.Operation] = func(x *exchange) error {
		var q Q
		if err := x.read(&q); err != nil {
			return err
		}
		ctx := x.r.Context()
		if e.waits {
			streaming, done, err := x.stream()
			if err != nil {
				return err
			}
			defer done()
			ctx = streaming
		}
		reply, err := f(ctx, x.caller, q)
		if err != nil {
			return err
		}
		return x.reply(&reply)
	}
}

// Plain is a handler of what is asked with nothing.
func Plain[R any](f func(context.Context, Caller) (R, error)) func(context.Context, Caller, None) (R, error) {
	return func(ctx context.Context, c Caller, _ None) (R, error) { return f(ctx, c) }
}

// ByID is a handler of what is asked with a job.
func ByID[R any](f func(context.Context, Caller, string) (R, error)) func(context.Context, Caller, JobID) (R, error) {
	return func(ctx context.Context, c Caller, q JobID) (R, error) { return f(ctx, c, q.ID) }
}

// read decodes the request.
func (x *exchange) read(q any) error {
	if err := readURL(x.r, q); err != nil {
		return err
	}
	if most := x.limits.body(x.op.Body); most > 0 && (x.op.Body != maybeLogin || x.r.ContentLength != 0) {
		body := newBody(x, most)
		decoded := error(nil)
		if r, isSubmission := q.(*SubmitRequest); isSubmission {
			r.CanSnapshot = x.r.Header.Get(headerPrefer) == preferSnapshot
			decoded = decodeSubmit(body, x.r.ContentLength, r, x.limits)
		} else {
			decoded = decode(body, q)
		}
		if decoded != nil {
			return decoded
		}
	}
	if q, is := q.(checked); is {
		return q.check(&x.limits)
	}
	return nil
}

// reply answers with what r points to. An empty list is one in JSON too, not null.
func (x *exchange) reply(r any) error {
	if r, is := r.(filled); is {
		r.fill()
	}
	switch r := r.(type) {
	case *None:
		x.w.WriteHeader(x.op.Status)
		return nil
	case replier:
		return r.reply(x)
	}
	if v := reflect.ValueOf(r).Elem(); v.Kind() == reflect.Slice && v.IsNil() && v.Type().Elem().Kind() != reflect.Uint8 {
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	}
	return x.sendJSON(r)
}

// body is how many bytes a body may have.
func (l *Limits) body(size bodySize) int64 {
	switch size {
	case noBody:
		return 0
	case specBody:
		return l.SpecBytes
	case submitBody:
		return l.SubmitBytes
	case loginBody, maybeLogin:
		return maxLoginBytes
	}
	return l.BodyBytes
}
