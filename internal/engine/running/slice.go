package running

import (
	"cmp"
	"fmt"
	"time"

	"berth/internal/job"
	"berth/internal/text"
)

// The time limit of a job with on_timeout=park is a time slice: at its end the job
// is parked, goes to the end of the queue, and gets a fresh limit. Only the engine
// knows when that makes sense, so the supervisor is told no limit.

// SliceEnds is when a job's time slice ends; zero: it has none. A slice lasts
// at least twice as long as parking takes.
func (p *Parking) SliceEnds(a *Attempt) time.Time {
	j := a.Job
	if j.Spec.OnTimeout != job.TimeoutPark || j.Spec.TimeLimit <= 0 || j.Stop != job.NoStop || j.Parking.Phase != job.ParkNone {
		return time.Time{}
	}
	moves := job.Parking{CardMiB: p.ParkMiB(a)}
	cost := p.Pace.preempt(moves.HostMiB())
	least := 2 * (cost.Out + cost.Back)
	if j.Parking.Times > 0 {
		least += cost.Back // it was still coming back
	}
	return j.RunsSince().Add(max(least, j.Spec.TimeLimit-(j.Parking.Served-j.Parking.Sliced)))
}

// parkIdle parks a job that has left its cards unused for long, until a person
// asks for it. Nobody loses a job while attached to it.
func (p *Parking) parkIdle(now time.Time, a *Attempt, what string) {
	j := a.Job
	if p.Attended[a.Token] > 0 || j.Parking.Phase != job.ParkNone || cmp.Or(p.CannotPark(a, false), p.NoRoom(a)) != "" {
		return
	}
	j.Held = true
	p.SendOut(a, job.ParkedByIdling)
	p.set.changes.Tell(now, job.EventNotice, j, fmt.Sprintf("job %s is being parked: it %s for %s", j.ID, what, text.Brief(p.set.cfg.Parking.Idle)))
}
