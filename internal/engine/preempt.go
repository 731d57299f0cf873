package engine

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"berth/internal/job"
	"berth/internal/reason"
	"berth/internal/sched"
)

// leavers are the jobs that a plan sets aside: a changed copy of each, which
// replaces the old one once it is on disk. One that ended, or that somebody else
// is ending, meanwhile needs nothing more.
func (s *attempts) leavers(now time.Time, planned []sched.Victim) []*job.Job {
	var list []*job.Job
	for _, p := range planned {
		a := s.active[p.Job]
		if a == nil || a.job.Stop != job.NoStop || p.Mode != sched.Requeue {
			continue
		}
		j := a.job.Clone()
		j.Stop, j.PreemptedFor, j.PreemptAt = job.StopPreempt, p.For, now.Add(warning(&j.Spec))
		j.Detail = leavingText(p.For)
		list = append(list, j)
	}
	slices.SortFunc(list, func(a, b *job.Job) int { return int(a.Seq - b.Seq) })
	return list
}

// leavingText is what a leaver says of itself.
func leavingText(other string) string { return "is being " + reason.Preempted(other) }

// urge tells leavers to end whose warning is over, and leaves those alone whose
// cards nobody needs any more. waits says whether a job still waits for room.
func (s *attempts) urge(now time.Time, waits func(id string) bool) {
	for _, id := range s.ids() {
		if a := s.active[id]; a.job.Leaving() && !a.told {
			s.hurry(now, a, waits)
		}
	}
}

// hurry does what is due for a leaver that was not told to end yet: first the
// signal that it wanted to hear before, where it wanted one.
func (s *attempts) hurry(now time.Time, a *attempt, waits func(id string) bool) {
	j := a.job
	if latest := now.Add(warning(&j.Spec)); j.PreemptAt.After(latest) {
		j.PreemptAt = latest // the clock was set back
		s.changes.fact(j)
	}
	switch {
	case !j.PreemptAt.After(now):
		a.told = true
		s.stops = append(s.stops, stopOrder{j.Keep, j.Stop, j.Spec.Grace})
	case !waits(j.PreemptedFor):
		s.stay(now, a)
	case !a.warnedOf.Equal(j.PreemptAt):
		a.warnedOf = j.PreemptAt
		s.warns = append(s.warns, warnOrder{j.Keep, strconv.FormatInt(j.PreemptAt.UnixMilli(), 10)})
	}
}

// stay leaves a job on its cards that was warned and no more. Who held it meant
// the wait that does not come now: a running job cannot be held, nor released.
func (s *attempts) stay(now time.Time, a *attempt) {
	j := a.job
	text := fmt.Sprintf("job %s stays on its cards: job %s does not wait for them any more", j.ID, j.PreemptedFor)
	if j.Held {
		text += "; it is not held"
	}
	j.Stop, j.PreemptedFor, j.PreemptAt, j.Detail, j.Held = job.NoStop, "", time.Time{}, "", false
	s.cards.moved = true
	s.changes.fact(j)
	s.changes.tell(now, job.EventNotice, j, text)
}

// urgeAt is when the next leaver is told to end.
func (s *attempts) urgeAt() (at time.Time) {
	for _, a := range s.active {
		if a.job.Leaving() && !a.told && (at.IsZero() || a.job.PreemptAt.Before(at)) {
			at = a.job.PreemptAt
		}
	}
	return at
}

// wasTold is true of a leaver that had, or may have had, its TERM: a berth that
// was killed cannot say whether it got to send it.
func wasTold(now time.Time, j *job.Job) bool {
	return j.Stop == job.StopPreempt && !j.PreemptAt.After(now)
}

// gaveWay is the end of a job that was set aside. It uses up no retry.
func gaveWay(j *job.Job) ruling {
	return ruling{again: job.EventPreempted, detail: reason.Preempted(j.PreemptedFor), aside: true}
}

// setAside says first, of a job that waits again, that it was set aside.
func setAside(j *job.Job, why string) string {
	if j == nil || j.State != job.Queued {
		return why
	}
	return reason.AfterPreemption(j.PreemptedFor, why)
}

// aside is whether and how a running job gives way. No machine can park a job
// yet, so that who asked for that stays.
func (s *attempts) aside(spec *job.Spec) sched.Preempt {
	if s.cfg.KeepAll || spec.Preemptible != string(sched.Requeue) || spec.Adopt != nil {
		return sched.Preempt{}
	}
	return sched.Preempt{Mode: sched.Requeue, Out: warning(spec) + spec.Grace}
}

// warning is how long before its end a job wants to hear of it.
func warning(s *job.Spec) time.Duration {
	if s.WarnSignal == "" {
		return 0
	}
	return s.WarnBefore
}
