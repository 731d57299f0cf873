package api

import (
	"reflect"

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
