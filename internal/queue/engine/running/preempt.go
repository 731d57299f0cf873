package running

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"berth/internal/job"
	"berth/internal/job/reason"
	"berth/internal/sched"
)

// preemption stops jobs for others, and those that outlast their limits.
type preemption struct{ set *Set }

// Victims are the jobs that a plan preempts: a changed copy of each, which
// replaces the old one once it is on disk. A job that has ended, or is being
// stopped already, needs nothing more.
func (p *preemption) Victims(now time.Time, planned []sched.Victim) []*job.Job {
	var list []*job.Job
	for _, v := range planned {
		a := p.set.Active[v.Job]
		if a == nil || a.Job.Stop != job.NoStop || a.Job.Parking.Phase != job.ParkNone {
			continue
		}
		j := a.Job.Clone()
		if v.Mode == sched.Park {
			j.PreemptedFor, j.Detail = v.For, "is being parked for job "+v.For
			p.set.Parking.record(j, "", p.set.Parking.ParkMiB(a))
			list = append(list, j)
			continue
		}
		j.Stop, j.PreemptedFor, j.PreemptAt = job.StopPreempt, v.For, now.Add(p.set.cfg.Warning(&j.Spec))
		j.Detail = "is being " + reason.Preempted(v.For)
		list = append(list, j)
	}
	slices.SortFunc(list, func(a, b *job.Job) int { return int(a.Seq - b.Seq) })
	return list
}

// Urge stops victims whose warning time has passed, and spares those whose cards
// are no longer needed. waits reports whether a job still waits for room. It also
// enforces time limits where a supervisor would wait too long.
func (p *preemption) Urge(now time.Time, waits func(id string) bool) {
	for _, id := range p.set.IDs() {
		a := p.set.Active[id]
		if a.Job.Leaving() && !a.Told {
			p.Hurry(now, a, waits)
		}
		// The supervisor stops it at its time limit too; the shorter grace period counts.
		if p.outlasts(a) && a.Job.Worked(now) >= a.Job.Spec.TimeLimit {
			p.set.Stop(now, a.Job, job.StopTimeout, a.Job.Spec.Grace, "")
		}
	}
}

// Hurry does what is due for a victim that was not told to stop yet: first the
// warning signal, if it wants one.
func (p *preemption) Hurry(now time.Time, a *Attempt, waits func(id string) bool) {
	j := a.Job
	if latest := now.Add(p.set.cfg.Warning(&j.Spec)); j.PreemptAt.After(latest) {
		j.PreemptAt = latest // the clock was set back, or the maximum was lowered
		p.set.changes.Fact(j)
	}
	switch {
	case !j.PreemptAt.After(now):
		a.Told = true
		p.set.Stops = append(p.set.Stops, StopOrder{j.Keep, j.Stop, j.Spec.Grace})
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
func (p *preemption) spare(now time.Time, a *Attempt) {
	j := a.Job
	text := fmt.Sprintf("job %s is not preempted after all: job %s no longer waits", j.ID, j.PreemptedFor)
	if j.Held {
		text += "; it is not held"
	}
	j.Stop, j.PreemptedFor, j.PreemptAt, j.Detail, j.Held = job.NoStop, "", time.Time{}, "", false
	p.set.cards.Moved = true
	p.set.changes.Fact(j)
	p.set.changes.Tell(now, job.EventNotice, j, text)
}

// UrgeAt is when urge has to stop the next job.
func (p *preemption) UrgeAt() (at time.Time) {
	sooner := func(other time.Time) {
		if at.IsZero() || other.Before(at) {
			at = other
		}
	}
	for _, a := range p.set.Active {
		if a.Job.Leaving() && !a.Told {
			sooner(a.Job.PreemptAt)
		}
		if p.outlasts(a) {
			sooner(a.Job.RunsSince().Add(a.Job.Spec.TimeLimit - a.Job.Parking.Served))
		}
		if end := p.set.Parking.SliceEnds(a); !end.IsZero() {
			sooner(end)
		}
	}
	return at
}

// PreemptMode is whether and how a running job can be preempted.
func (p *Parking) PreemptMode(a *Attempt) sched.Preempt {
	spec := &a.Job.Spec
	requeues := p.set.cfg.Requeues(spec)
	switch {
	case p.set.cfg.Parks(spec) && p.CannotPark(a, false) == "" && !(requeues && p.NoRoom(a) != ""):
		moves := job.Parking{CardMiB: p.ParkMiB(a)}
		return p.Pace.Park(moves.HostMiB())
	case requeues:
		return p.set.cfg.Requeued(a.Job)
	}
	return sched.Preempt{}
}

// outlasts reports whether berth has to enforce a job's time limit too: its
// supervisor does not answer, or may have been told a longer grace period than
// is allowed now.
func (p *preemption) outlasts(a *Attempt) bool {
	spec := &a.Job.Spec
	return a.Job.Stop == job.NoStop && spec.Adopt == nil && spec.TimeLimit > 0 && spec.OnTimeout != job.TimeoutPark && (a.Hindrance.Silent != "" || spec.Grace > p.set.cfg.Bounded(spec.Grace))
}
