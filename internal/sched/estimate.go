package sched

import "time"

// Estimate is how long a job is expected to run: at least, as a rule, at most. The
// zero Estimate says that nothing is known. It is never believed more than it has
// to be: a job that runs for longer loses others their reservations, and
// nothing itself.
type Estimate struct {
	Low, Mid, High time.Duration
}

// PreemptMode is what becomes of a running job that gives way.
type PreemptMode string

// The modes. The empty one is a job that does not give way.
const (
	Requeue PreemptMode = "requeue" // it is ended and begins anew: what it did is lost
	Park    PreemptMode = "park"    // it is suspended and goes on later
)

// Preempt is whether and how a running job can be preempted, and what that costs.
type Preempt struct {
	Mode   PreemptMode
	Out    time.Duration // until its cards are free
	Back   time.Duration // until it runs again, once it has cards
	MemMiB int64         // of the host, while it is parked
}

// Left is how much longer a run is expected to last that has lasted for ran so
// far, and that a limit ends: at least, as a rule, at most. A run that outlasts
// its span, or that nothing is known of, is expected to last as long again; how
// long at most is then not known, and 0 unless there is a limit.
func (s Estimate) Left(ran, limit time.Duration) Estimate {
	ran = max(0, ran)
	left := Estimate{Low: max(0, s.Low-ran), Mid: s.Mid - ran, High: s.High - ran}
	if left.High <= 0 {
		left.High = 0
	}
	switch {
	case left.Mid > 0:
	case left.High > 0:
		left.Mid = left.High
	default:
		left.Mid = max(ran, time.Minute)
	}
	if limit > 0 {
		rest := max(0, limit-ran)
		if left.High == 0 {
			left.High = rest
		}
		left.Low, left.Mid, left.High = min(left.Low, rest), min(left.Mid, rest), min(left.High, rest)
	}
	return left
}
