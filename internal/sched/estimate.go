package sched

import "time"

// Estimate is how long a job is expected to run: at least, usually, at most. The
// zero Estimate is "not known". A job that runs longer delays reservations; it is
// never ended for it.
type Estimate struct {
	Low   time.Duration `json:"low_ns"`
	Mid   time.Duration `json:"mid_ns"`
	High  time.Duration `json:"high_ns"`
	Guess bool          `json:"guess,omitempty"` // from other jobs of its user, or other arguments: it may take as long as its limit
}

// PreemptMode is what happens to a running job when it is preempted.
type PreemptMode string

// The modes. A job with the empty one is not preempted.
const (
	Requeue PreemptMode = "requeue" // it is stopped and starts from the beginning: its work is lost
	Park    PreemptMode = "park"    // it is suspended and resumed later
)

// Preempt is whether and how a running job can be preempted, and what that costs.
type Preempt struct {
	Mode       PreemptMode   `json:"mode"`
	StopTime   time.Duration `json:"out_ns"`            // until its cards are free
	ResumeTime time.Duration `json:"back_ns"`           // until it runs again, once it has cards
	MemMiB     int64         `json:"mem_mib,omitempty"` // of the host, while it is parked

	// Saves says that a job that is requeued goes on from what it saved itself: at
	// least once every SavesEvery, or when it is told to stop if that is 0.
	Saves      bool          `json:"saves,omitempty"`
	SavesEvery time.Duration `json:"saves_every_ns,omitempty"`
}

// keepsWork reports whether the job goes on where it was, nearly: then it takes turns.
func (p *Preempt) keepsWork() bool { return p.Mode == Park || p.Mode == Requeue && p.Saves }

// Plus is the estimate of a job that has to do so much again.
func (s Estimate) Plus(again time.Duration) Estimate {
	if s.Mid > 0 {
		s.Low, s.Mid, s.High = s.Low+again, s.Mid+again, s.High+again
	}
	return s
}

// Left is how much longer a job is expected to run after running for ran, given its
// limit: at least, usually, at most. A job without an estimate, or past it, is
// expected to run as long again; then the most is not known, and 0 unless there is
// a limit.
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
		if left.High == 0 || s.Guess {
			left.High = rest
		}
		left.Low, left.Mid, left.High = min(left.Low, rest), min(left.Mid, rest), min(left.High, rest)
	}
	return left
}
