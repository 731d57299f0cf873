package sched

import "time"

// Span is how long a job is expected to run: at least, as a rule, at most. The
// zero Span says that nothing is known. It is never believed more than it has
// to be: a job that runs for longer loses others their reservations, and
// nothing itself.
type Span struct {
	Low, Mid, High time.Duration
}

// AsideMode is what becomes of a running job that gives way.
type AsideMode string

// The modes. The empty one is a job that does not give way.
const (
	Requeue AsideMode = "requeue" // it is ended and begins anew: what it did is lost
	Park    AsideMode = "park"    // it is suspended and goes on later
)

// Aside is whether and how a running job gives way, and what that costs.
type Aside struct {
	Mode   AsideMode
	Out    time.Duration // until its cards are free
	Back   time.Duration // until it runs again, once it has cards
	MemMiB int64         // of the host, while it is parked
}
