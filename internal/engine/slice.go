package engine

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

// sliceEnds is when a job's time slice ends; zero: it has none. A slice lasts
// at least twice as long as parking takes.
func (p *parking) sliceEnds(a *attempt) time.Time {
	j := a.job
	if j.Spec.OnTimeout != job.TimeoutPark || j.Spec.TimeLimit <= 0 || j.Stop != job.NoStop || j.Parking.Phase != job.ParkNone {
		return time.Time{}
	}
	moves := job.Parking{CardMiB: p.parkMiB(a)}
	cost := p.pace.preempt(moves.HostMiB())
	least := 2 * (cost.Out + cost.Back)
	if j.Parking.Times > 0 {
		least += cost.Back // it was still coming back
	}
	return j.RunsSince().Add(max(least, j.Spec.TimeLimit-(j.Parking.Served-j.Parking.Sliced)))
}

// endSlices ends the time slices that are over.
func (t *Turn) endSlices() {
	for _, id := range t.attempts.ids() {
		a := t.attempts.active[id]
		if end := t.attempts.parking.sliceEnds(a); !end.IsZero() && !t.Now.Before(end) {
			t.endSlice(a)
		}
	}
}

// endSlice parks a job whose time slice is over. It just goes on if nobody waits,
// or if it cannot be parked and nobody is strict about that. Where no job can be
// parked, the limit is an ordinary one.
func (t *Turn) endSlice(a *attempt) {
	j := a.job
	limit := text.Brief(j.Spec.TimeLimit)
	stays := t.attempts.parking.cannotPark(a, false)
	if t.cfg.Parking.Cannot != "" || t.cfg.Parking.Strict && stays != "" {
		t.attempts.stop(t.Now, j, job.StopTimeout, j.Spec.Grace, "")
		return
	}
	stays = cmp.Or(stays, t.attempts.parking.noRoom(a))
	if t.line.queue.Len() == 0 {
		stays = "no other job waits"
	}
	if stays != "" {
		if j.Parking.Sliced <= j.Parking.Served { // once for each time that it gets its cards
			t.queue.tell(job.EventNotice, j, fmt.Sprintf("job %s goes on after its time limit of %s: %s", j.ID, limit, stays))
		}
		j.Parking.Sliced = j.Worked(t.Now)
		t.changes.fact(j)
		return
	}
	j.Detail = "is being parked at its time limit"
	t.attempts.parking.sendOut(a, job.ParkedByLimit)
	t.queue.tell(job.EventNotice, j, fmt.Sprintf("job %s %s of %s", j.ID, j.Detail, limit))
}

// sliced gives a parked job a fresh limit, if it has used up the last one.
func (t *Turn) sliced(j *job.Job) {
	if j.Parking.By == job.ParkedByLimit {
		j.Parking.Sliced = j.Parking.Served
		t.queue.toTheEnd(j)
	}
}

// parkIdle parks a job that has left its cards unused for long, until a person
// asks for it. Nobody loses a job while attached to it.
func (p *parking) parkIdle(now time.Time, a *attempt, what string) {
	j := a.job
	if p.attended[a.token] > 0 || j.Parking.Phase != job.ParkNone || cmp.Or(p.cannotPark(a, false), p.noRoom(a)) != "" {
		return
	}
	j.Held = true
	p.sendOut(a, job.ParkedByIdling)
	p.set.changes.tell(now, job.EventNotice, j, fmt.Sprintf("job %s is being parked: it %s for %s", j.ID, what, text.Brief(p.set.cfg.Parking.Idle)))
}

// Attend records that somebody is attached to a job, which brings it back if it
// was parked for being idle.
func (t *Turn) Attend(token, by string) {
	t.attempts.parking.attended[token]++
	if j := t.line.roster.jobs[t.attempts.byToken[token]]; j != nil && j.Parking.By == job.ParkedByIdling {
		t.Unpark(j.ID, by)
	}
}

// Unattend takes one Attend back. The job's idle time begins anew.
func (t *Turn) Unattend(token string) {
	if t.attempts.parking.attended[token]--; t.attempts.parking.attended[token] <= 0 {
		delete(t.attempts.parking.attended, token)
	}
	if a := t.attempts.active[t.attempts.byToken[token]]; a != nil {
		a.idleSince, a.idleTold = time.Time{}, false
	}
}
