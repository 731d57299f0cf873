package running

import (
	"time"

	"berth/internal/job"
)

// outlasts reports whether berth has to enforce a job's time limit too: its
// supervisor does not answer, or may have been told a longer grace period than
// is allowed now.
func (p *preemption) outlasts(a *Attempt) bool {
	spec := &a.Job.Spec
	return a.Job.Stop == job.NoStop && spec.Adopt == nil && spec.TimeLimit > 0 && spec.OnTimeout != job.TimeoutPark && (a.Hindrance.Silent != "" || spec.Grace > p.set.cfg.Bounded(spec.Grace))
}

// enforceLimit stops such a job at its time limit. The supervisor does so too;
// the shorter grace period counts.
func (p *preemption) enforceLimit(now time.Time, a *Attempt) {
	if p.outlasts(a) && a.Job.Worked(now) >= a.Job.Spec.TimeLimit {
		p.set.Stop(now, a.Job, job.StopTimeout, a.Job.Spec.Grace, "")
	}
}
