package engine

import (
	"time"

	"berth/internal/job"
	"berth/internal/sched"
)

// pending is a queued job as the plan sees it.
func (t *Turn) pending(j *job.Job) sched.Pending {
	return sched.Pending{
		Job: j.ID, User: j.User, Priority: j.Spec.Priority, Rank: j.Rank, Seq: j.Seq,
		Pool: j.Array(), PoolLimit: j.Spec.ArrayLimit,
		Request:   sched.NewRequest(j.Spec, j.VRAMMiB, t.cfg.Rules),
		Submitted: j.SubmittedAt, Since: t.inLine[j.ID].since, Run: t.span(j), Limit: j.Spec.TimeLimit, Aside: t.aside(&j.Spec),
	}
}

// waitsSince is since when nothing but room keeps a job from starting, the last
// of those that it waited for having ended at freed. It is made of what is on
// disk, so that a restart does not send anybody to the end.
func (t *Turn) waitsSince(j *job.Job, freed time.Time) time.Time {
	since := laterOf(laterOf(j.SubmittedAt, j.NotBefore), laterOf(j.WaitsSince, freed))
	if since.After(t.Now) { // a clock was set back
		return t.Now
	}
	return since
}

// stands fills in who a running job is and how it stands in the order.
func (t *Turn) stands(a *attempt, h *sched.Held) {
	j := a.job
	ran := max(0, t.Now.Sub(j.StartedAt))
	h.User, h.Priority, h.Rank, h.Seq = j.User, j.Spec.Priority, j.Rank, j.Seq
	h.Submitted, h.Started, h.Run, h.Limit = j.SubmittedAt, j.StartedAt, a.run, j.Spec.TimeLimit
	if j.Spec.ArrayLimit > 0 {
		h.Pool = j.Array()
	}
	if waited := j.StartedAt.Sub(laterOf(j.SubmittedAt, j.WaitsSince)); waited > 0 {
		h.Waited = waited
	}
	switch {
	case j.Leaving():
		h.Leaving, h.LeavesFor, h.LeavesBy = true, j.AsideFor, laterOf(j.AsideAt.Add(j.Spec.Grace), t.Now)
	case j.Stop != job.NoStop:
		// It was told to end, and is gone within its grace.
		end := ran + j.Spec.Grace
		h.Run, h.Limit = sched.Span{Low: ran, Mid: end, High: end}, end
	default:
		h.Aside = t.aside(&j.Spec)
	}
}

func laterOf(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// aside is whether and how a running job gives way. No machine can park a job
// yet, so that who asked for that stays.
func (t *Turn) aside(s *job.Spec) sched.Aside {
	if t.cfg.KeepAll || s.Preemptible != string(sched.Requeue) || s.Adopt != nil {
		return sched.Aside{}
	}
	return sched.Aside{Mode: sched.Requeue, Out: warning(s) + s.Grace}
}

// warning is how long before its end a job wants to hear of it.
func warning(s *job.Spec) time.Duration {
	if s.WarnSignal == "" {
		return 0
	}
	return s.WarnBefore
}
