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

// victims are the jobs that a plan preempts: a changed copy of each, which
// replaces the old one once it is on disk. A job that has ended, or is being
// stopped already, needs nothing more.
func (s *attempts) victims(now time.Time, planned []sched.Victim) []*job.Job {
	var list []*job.Job
	for _, p := range planned {
		a := s.active[p.Job]
		if a == nil || a.job.Stop != job.NoStop || a.job.Parking.Phase != job.ParkNone {
			continue
		}
		j := a.job.Clone()
		if p.Mode == sched.Park {
			j.PreemptedFor, j.Detail = p.For, "is being parked for job "+p.For
			s.leave(j, "", s.parkMiB(a))
			list = append(list, j)
			continue
		}
		j.Stop, j.PreemptedFor, j.PreemptAt = job.StopPreempt, p.For, now.Add(s.cfg.warning(&j.Spec))
		j.Detail = "is being " + reason.Preempted(p.For)
		list = append(list, j)
	}
	slices.SortFunc(list, func(a, b *job.Job) int { return int(a.Seq - b.Seq) })
	return list
}

// urge stops victims whose warning time has passed, and spares those whose cards
// are no longer needed. waits reports whether a job still waits for room. It also
// enforces time limits where a supervisor would wait too long.
func (s *attempts) urge(now time.Time, waits func(id string) bool) {
	for _, id := range s.ids() {
		a := s.active[id]
		if a.job.Leaving() && !a.told {
			s.hurry(now, a, waits)
		}
		s.enforceLimit(now, a)
	}
}

// hurry does what is due for a victim that was not told to stop yet: first the
// warning signal, if it wants one.
func (s *attempts) hurry(now time.Time, a *attempt, waits func(id string) bool) {
	j := a.job
	if latest := now.Add(s.cfg.warning(&j.Spec)); j.PreemptAt.After(latest) {
		j.PreemptAt = latest // the clock was set back, or the maximum was lowered
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

// stay spares a job that was only warned. A hold on it is dropped, because it
// was meant for the wait that does not come: a running job cannot be held or
// released.
func (s *attempts) stay(now time.Time, a *attempt) {
	j := a.job
	text := fmt.Sprintf("job %s is not preempted after all: job %s no longer waits", j.ID, j.PreemptedFor)
	if j.Held {
		text += "; it is not held"
	}
	j.Stop, j.PreemptedFor, j.PreemptAt, j.Detail, j.Held = job.NoStop, "", time.Time{}, "", false
	s.cards.moved = true
	s.changes.fact(j)
	s.changes.tell(now, job.EventNotice, j, text)
}

// urgeAt is when urge has to stop the next job.
func (s *attempts) urgeAt() (at time.Time) {
	sooner := func(other time.Time) {
		if at.IsZero() || other.Before(at) {
			at = other
		}
	}
	for _, a := range s.active {
		if a.job.Leaving() && !a.told {
			sooner(a.job.PreemptAt)
		}
		if s.outlasts(a) {
			sooner(a.job.RunsSince().Add(a.job.Spec.TimeLimit - a.job.Parking.Served))
		}
		if end := s.sliceEnds(a); !end.IsZero() {
			sooner(end)
		}
	}
	return at
}

// wasTold reports whether a victim had, or may have had, its TERM: a berth that
// was killed cannot say whether it sent it.
func wasTold(now time.Time, j *job.Job) bool {
	return j.Stop == job.StopPreempt && !j.PreemptAt.After(now)
}

// afterPreemption puts the preemption before the reason of a job that waits
// again.
func afterPreemption(j *job.Job, why string) string {
	if j == nil || j.State != job.Queued {
		return why
	}
	return reason.AfterPreemption(j.PreemptedFor, why)
}

// preemptMode is whether and how a running job can be preempted.
func (s *attempts) preemptMode(a *attempt) sched.Preempt {
	spec := &a.job.Spec
	requeues := spec.Preemptible.Requeues() && !s.cfg.KeepAll && spec.Adopt == nil
	switch {
	case s.cfg.parks(spec) && s.cannotPark(a, false) == "" && !(requeues && s.noParkRoom(a) != ""):
		moves := job.Parking{CardMiB: s.parkMiB(a)}
		return s.pace.preempt(moves.HostMiB())
	case requeues:
		return sched.Preempt{Mode: sched.Requeue, Out: s.cfg.warning(spec) + s.cfg.bounded(spec.Grace)}
	}
	return sched.Preempt{}
}
