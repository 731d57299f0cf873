package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"berth/internal/text/problem"
)

// Endpoint is an operation that is asked with a Q and answered with an R. Q says by
// tags which of its fields are in the path, in the query and in the body; what else is
// to be checked of it, its method check does.
type Endpoint[Q, R any] struct {
	Operation
}

// Operation is what is the same of all endpoints.
type Operation struct {
	Method, Path string
	Need         Right
	Ended        bool // it is also answered from the store of a queue that no process works on

	ID, Tag, Summary, About string
	Problems                []problem.Kind // besides problem.Unable
	Media                   string         // of a reply that is not JSON
	Status                  int            // of a reply without a body; 0: there is one
	Hidden                  bool           // from the description

	Body   bodySize
	heavy  bool // limited to a few at a time per user
	waits  bool // it may take as long as a stream, and ends with the server like one
	long   bool // waits for a turn at the server's gate, and has it until the reply is ready
	sliced bool // likewise, but only once its work gets long, which its handler says (fair.Spend)
}

// Right is what a caller must be.
type Right int

// The rights. What belongs to a user is for that user and administrators in any case,
// which the handlers see to.
const (
	Identified    Right = iota // a user of the machine
	Anyone                     // also one who has yet to log in
	Administrator              // of the machine, or of a private daemon
)

// bodySize is how long a body may be.
type bodySize int

const (
	noBody bodySize = iota
	smallBody
	specBody
	submitBody
	loginBody
	maybeLogin // the body may be left out
)

// None is an empty request or reply.
type None struct{}

// operation is an endpoint of any types.
type operation interface {
	op() *Operation
	types() (q, r reflect.Type)
}

func (e *Endpoint[Q, R]) op() *Operation { return &e.Operation }

func (e *Endpoint[Q, R]) types() (q, r reflect.Type) {
	return reflect.TypeFor[Q](), reflect.TypeFor[R]()
}

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

// Call asks a daemon. Unknown keys of the reply are ignored: the daemon may be newer.
func Call[Q, R any](ctx context.Context, c *Client, e *Endpoint[Q, R], q Q) (R, error) {
	var reply R
	data, err := c.ask(ctx, &e.Operation, &q)
	if err != nil || e.Status != 0 {
		return reply, err
	}
	if err := json.Unmarshal(data, &reply); err != nil {
		return reply, c.unexpected(err)
	}
	return reply, nil
}

// What a request or a reply may have besides its fields.
type (
	checked  interface{ check(l *Limits) error } // a request: what its tags do not say, and its defaults
	prepared interface{ prepare() error }        // a request: before it is sent
	lasting  interface{ takes() time.Duration }  // a request: how long its answer may take by its nature
	filled   interface{ fill() }                 // a reply: its lists are never null
	replier  interface {                         // a reply that is not sent as others are
		reply(x *exchange) error
	}
)

// read decodes the request.
func (x *exchange) read(q any) error {
	if err := readURL(x.r, q); err != nil {
		return err
	}
	if most := x.limits.body(x.op.Body); most > 0 && (x.op.Body != maybeLogin || x.r.ContentLength != 0) {
		body := newBody(x, most)
		decoded := error(nil)
		if r, isSubmission := q.(*SubmitRequest); isSubmission {
			decoded = decodeSubmit(body, r, x.limits)
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

// ask sends a request and reads the whole reply.
func (c *Client) ask(ctx context.Context, op *Operation, q any) ([]byte, error) {
	reply, err := c.send(ctx, op, q, nil)
	if err != nil {
		return nil, err
	}
	defer reply.Body.Close()
	data, err := readReply(reply)
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	return data, nil
}

// send sends a request. The caller closes the body of the reply.
func (c *Client) send(ctx context.Context, op *Operation, q any, header http.Header) (*http.Response, error) {
	if q, is := q.(prepared); is {
		if err := q.prepare(); err != nil {
			return nil, err
		}
	}
	if q, is := q.(lasting); is {
		ctx = taking(ctx, q.takes())
	}
	path, query := writeURL(op.Path, q)
	var body []byte
	if op.Body != noBody {
		var err error
		if body, err = json.Marshal(q); err != nil {
			return nil, fmt.Errorf("write request: %w", err)
		}
	}
	return c.start(ctx, op.Method, path, query, body, header)
}

// Do is Call for a reply without a body.
func Do[Q any](ctx context.Context, c *Client, e *Endpoint[Q, None], q Q) error {
	_, err := Call(ctx, c, e, q)
	return err
}
