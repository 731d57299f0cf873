package engine

import (
	"time"

	"berth/internal/job"
)

// bounded is a grace period or a warning time within what this berth allows.
// Every stop and every order passes here, so a job that was submitted under a
// higher maximum gets no more.
func (c *Config) bounded(d time.Duration) time.Duration {
	if c.MaxGrace > 0 {
		return min(d, c.MaxGrace)
	}
	return d
}

// warning is how long before berth stops it a job gets its warning signal. The
// signal before a time limit delays nothing and has no maximum.
func (c *Config) warning(spec *job.Spec) time.Duration {
	if spec.WarnSignal == "" {
		return 0
	}
	return c.bounded(spec.WarnBefore)
}

// longest is how long an attempt can hold its cards: the time limit, and the
// grace period that follows. 0: there is no limit.
func (c *Config) longest(spec *job.Spec) time.Duration {
	if spec.TimeLimit <= 0 {
		return 0
	}
	return spec.TimeLimit + c.bounded(spec.Grace)
}

// left is how long a job can hold its cards from when it gets them: what parking
// interrupted counts against its time limit. 0: there is no limit.
func (c *Config) left(j *job.Job) time.Duration {
	longest := c.longest(&j.Spec)
	if longest == 0 {
		return 0
	}
	return max(time.Second, longest-(j.Parking.Served-j.Parking.Sliced))
}

// outlasts reports whether berth has to enforce a job's time limit too: its
// supervisor does not answer, or may have been told a longer grace period than
// is allowed now.
func (p *preemption) outlasts(a *attempt) bool {
	spec := &a.job.Spec
	return a.job.Stop == job.NoStop && spec.Adopt == nil && spec.TimeLimit > 0 && spec.OnTimeout != job.TimeoutPark && (a.hindrance.silent != "" || spec.Grace > p.set.cfg.bounded(spec.Grace))
}

// enforceLimit stops such a job at its time limit. The supervisor does so too;
// the shorter grace period counts.
func (p *preemption) enforceLimit(now time.Time, a *attempt) {
	if p.outlasts(a) && a.job.Worked(now) >= a.job.Spec.TimeLimit {
		p.set.stop(now, a.job, job.StopTimeout, a.job.Spec.Grace, "")
	}
}

// SetMaxGrace changes the longest time between TERM and KILL; 0: no maximum. It
// shortens what is already being stopped.
func (t *Turn) SetMaxGrace(most time.Duration) {
	if t.cfg.MaxGrace == most {
		return
	}
	t.cfg.MaxGrace, t.moved = most, true
	t.line.estimateAgain(t.Now)
	for _, a := range t.attempts.active {
		if j := a.job; j.Stop != job.NoStop && (a.told || j.Stop != job.StopPreempt) {
			t.attempts.stops = append(t.attempts.stops, stopOrder{j.Keep, j.Stop, j.Spec.Grace})
		}
	}
}
