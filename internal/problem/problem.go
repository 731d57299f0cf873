// Package problem is the one kind of error that berth tells a person: what is
// wrong, and what to do next. It is raised by whichever room finds the problem,
// travels through the api as it is, and ends at the command line, which prints
// it and takes its exit status from the kind.
//
// The package imports nothing of ours, and does not print.
package problem

import (
	"errors"
	"fmt"
)

// Kind says what sort of problem it is. The HTTP status and the exit status
// follow from it.
type Kind string

const (
	Invalid     Kind = "invalid"     // the request makes no sense
	Refused     Kind = "refused"     // it makes sense, but not now or not here
	NotFound    Kind = "not_found"   //
	Forbidden   Kind = "forbidden"   //
	TooMuch     Kind = "too_much"    // a limit was reached
	Unable      Kind = "unavailable" // it cannot be done now: disk full, daemon stopping or missing
	Interrupted Kind = "interrupted" // the user stopped it; never travels
)

// ExitStatus is what a program exits with after such a problem.
func (k Kind) ExitStatus() int {
	switch k {
	case Invalid:
		return 2
	case Interrupted:
		return 130
	}
	return 1
}

// Problem is an error for a person. The tags are the api's wire format.
type Problem struct {
	Kind Kind   `json:"kind"`
	What string `json:"problem"`
	Hint string `json:"hint,omitempty"`
	Err  error  `json:"-"` // the cause, for errors.Is and errors.As
}

func (p *Problem) Error() string { return p.What }

func (p *Problem) Unwrap() error { return p.Err }

// Newf makes a problem of a formatted sentence. An error that it formats with
// %w becomes the cause.
func Newf(kind Kind, hint, format string, args ...any) *Problem {
	err := fmt.Errorf(format, args...)
	return &Problem{Kind: kind, What: err.Error(), Hint: hint, Err: errors.Unwrap(err)}
}

// Wrap makes a problem of an error, whose text is what is wrong.
func Wrap(kind Kind, hint string, err error) *Problem {
	return &Problem{Kind: kind, What: err.Error(), Hint: hint, Err: err}
}

// KindOf is the kind of the problem that an error is or wraps, and empty where
// it is none.
func KindOf(err error) Kind {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p.Kind
	}
	return ""
}
