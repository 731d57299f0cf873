// Package problem defines the errors that berth shows to users: what is wrong,
// and what to do next. Any package may return one; the api passes it on, and the
// command line prints it and takes the exit status from its kind.
//
// The package imports no other package of berth and does not print.
package problem

import (
	"errors"
	"fmt"
)

// Kind decides the HTTP status and the exit status.
type Kind string

const (
	Invalid     Kind = "invalid"     // the request is malformed
	Refused     Kind = "refused"     // well-formed, but not possible now or here
	NotFound    Kind = "not_found"   //
	Forbidden   Kind = "forbidden"   //
	TooMuch     Kind = "too_much"    // a limit was reached
	Unable      Kind = "unavailable" // the disk is full, or the daemon is stopping or missing
	Interrupted Kind = "interrupted" // by the user; never sent over the api
)

// ExitStatus is the exit status for this kind of problem.
func (k Kind) ExitStatus() int {
	switch k {
	case Invalid:
		return 2
	case Interrupted:
		return 130
	}
	return 1
}

// Problem is an error for a user. The tags are the wire format of the api.
type Problem struct {
	Kind Kind   `json:"kind"`
	What string `json:"problem"`
	Hint string `json:"hint,omitempty"`
	Err  error  `json:"-"` // the cause, for errors.Is and errors.As
}

func (p *Problem) Error() string { return p.What }

func (p *Problem) Unwrap() error { return p.Err }

// Newf formats a problem. An error that is formatted with %w becomes its cause.
func Newf(kind Kind, hint, format string, args ...any) *Problem {
	err := fmt.Errorf(format, args...)
	return &Problem{Kind: kind, What: err.Error(), Hint: hint, Err: errors.Unwrap(err)}
}

// Wrap turns an error into a problem.
func Wrap(kind Kind, hint string, err error) *Problem {
	return &Problem{Kind: kind, What: err.Error(), Hint: hint, Err: err}
}

// KindOf is the kind of the problem that an error is or wraps, or "".
func KindOf(err error) Kind {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p.Kind
	}
	return ""
}
