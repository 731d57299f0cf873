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

// preemption stops jobs for others, and those that outlast their limits.
type preemption struct{ set *attempts }

// victims are the jobs that a plan preempts: a changed copy of each, which
// replaces the old one once it is on disk. A job that has ended, or is being
// stopped already, needs nothing more.
func (p *preemption) victims(now time.Time, planned []sched.Victim) []*job.Job {
	var list []*job.Job
	for _, v := range planned {
		a := p.set.active[v.Job]
		if a == nil || a.job.Stop != job.NoStop || a.job.Parking.Phase != job.ParkNone {
			continue
		}
		j := a.job.Clone()
		if v.Mode == sched.Park {
			j.PreemptedFor, j.Detail = v.For, "is being parked for job "+v.For
			p.set.parking.record(j, "", p.set.parking.parkMiB(a))
			list = append(list, j)
			continue
		}
		j.Stop, j.PreemptedFor, j.PreemptAt = job.StopPreempt, v.For, now.Add(p.set.cfg.warning(&j.Spec))
		j.Detail = "is being " + reason.Preempted(v.For)
		list = append(list, j)
	}
	slices.SortFunc(list, func(a, b *job.Job) int { return int(a.Seq - b.Seq) })
	return list
}

// urge stops victims whose warning time has passed, and spares those whose cards
// are no longer needed. waits reports whether a job still waits for room. It also
// enforces time limits where a supervisor would wait too long.
func (p *preemption) urge(now time.Time, waits func(id string) bool) {
	for _, id := range p.set.ids() {
		a := p.set.active[id]
		if a.job.Leaving() && !a.told {
			p.hurry(now, a, waits)
		}
		p.enforceLimit(now, a)
	}
}

// hurry does what is due for a victim that was not told to stop yet: first the
// warning signal, if it wants one.
func (p *preemption) hurry(now time.Time, a *attempt, waits func(id string) bool) {
	j := a.job
	if latest := now.Add(p.set.cfg.warning(&j.Spec)); j.PreemptAt.After(latest) {
		j.PreemptAt = latest // the clock was set back, or the maximum was lowered
		p.set.changes.fact(j)
	}
	switch {
	case !j.PreemptAt.After(now):
		a.told = true
		p.set.stops = append(p.set.stops, stopOrder{j.Keep, j.Stop, j.Spec.Grace})
	case !waits(j.PreemptedFor):
		p.spare(now, a)
	case !a.warnedOf.Equal(j.PreemptAt):
		a.warnedOf = j.PreemptAt
		p.set.warns = append(p.set.warns, warnOrder{j.Keep, strconv.FormatInt(j.PreemptAt.UnixMilli(), 10)})
	}
}

// spare spares a job that was only warned. A hold on it is dropped, because it
// was meant for the wait that does not come: a running job cannot be held or
// released.
func (p *preemption) spare(now time.Time, a *attempt) {
	j := a.job
	text := fmt.Sprintf("job %s is not preempted after all: job %s no longer waits", j.ID, j.PreemptedFor)
	if j.Held {
		text += "; it is not held"
	}
	j.Stop, j.PreemptedFor, j.PreemptAt, j.Detail, j.Held = job.NoStop, "", time.Time{}, "", false
	p.set.cards.moved = true
	p.set.changes.fact(j)
	p.set.changes.tell(now, job.EventNotice, j, text)
}

// urgeAt is when urge has to stop the next job.
func (p *preemption) urgeAt() (at time.Time) {
	sooner := func(other time.Time) {
		if at.IsZero() || other.Before(at) {
			at = other
		}
	}
	for _, a := range p.set.active {
		if a.job.Leaving() && !a.told {
			sooner(a.job.PreemptAt)
		}
		if p.outlasts(a) {
			sooner(a.job.RunsSince().Add(a.job.Spec.TimeLimit - a.job.Parking.Served))
		}
		if end := p.set.parking.sliceEnds(a); !end.IsZero() {
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
func (p *parking) preemptMode(a *attempt) sched.Preempt {
	spec := &a.job.Spec
	requeues := spec.Preemptible.Requeues() && !p.set.cfg.KeepAll && spec.Adopt == nil
	switch {
	case p.set.cfg.parks(spec) && p.cannotPark(a, false) == "" && !(requeues && p.noRoom(a) != ""):
		moves := job.Parking{CardMiB: p.parkMiB(a)}
		return p.pace.preempt(moves.HostMiB())
	case requeues:
		return sched.Preempt{Mode: sched.Requeue, Out: p.set.cfg.warning(spec) + p.set.cfg.bounded(spec.Grace)}
	}
	return sched.Preempt{}
}
