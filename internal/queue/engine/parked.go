package engine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/queue/engine/fault"
	"berth/internal/queue/engine/running"
	"berth/internal/sched"
	"berth/internal/text"
)

// Parker parks jobs and brings them back, as users and supervisors say.
type Parker struct {
	*parts
	explain *Explain
}

// List is the parked jobs, oldest first.
func (p *Parker) List() []*job.Job { return p.attempts.Parking.List() }

// LeftOut is the first of these jobs that takes no turns with the running ones: it has
// several GPUs, and would lose its work if it made room. It is nil if none does, or if
// no running job takes turns.
func (p *Parker) LeftOut(jobs []*job.Job) *job.Job {
	if !p.cfg.Rules.TakesTurns() {
		return nil
	}
	for _, a := range p.attempts.Active {
		if !p.cfg.KeepsWork(a.Job) {
			continue
		}
		if i := slices.IndexFunc(jobs, func(j *job.Job) bool { return j.Spec.GPUs > 1 && !p.cfg.KeepsWork(j) }); i >= 0 {
			return jobs[i]
		}
		return nil
	}
	return nil
}

// Park has a job parked for a user, until it is unparked or that time comes, or it
// has been parked for as long as a person may have it parked. It returns why it is
// not.
func (p *Parker) Park(id, by string, until time.Time) (why string) {
	a := p.attempts.Active[id]
	switch {
	case a == nil && p.attempts.Parked[id] != nil:
		a = p.attempts.Parked[id]
		if until = p.cfg.Parking.Until(a.Job.Parking.Since, until); !until.IsZero() && !until.After(p.changes.Now) {
			return fmt.Sprintf("it has been parked for %s already (limits.parked_time)", text.Span(p.changes.Now.Sub(a.Job.Parking.Since)))
		}
		a.Job.Held, a.Job.NotBefore = until.IsZero(), until
		p.changes.Fact(a.Job)
		p.queue.Enqueue(a.Job)
		return ""
	case a == nil && p.remote.Runs(id):
		return "it runs on Slurm"
	case a == nil:
		return "it is not running"
	}
	until = p.cfg.Parking.Until(p.changes.Now, until)
	if a.Job.Parking.Phase == job.ParkOut {
		a.Job.Held, a.Job.NotBefore = until.IsZero(), until
		p.changes.Fact(a.Job)
		return ""
	}
	if why = cmp.Or(p.attempts.Parking.CannotPark(a, true), p.attempts.Parking.NoRoom(a)); why != "" {
		return why
	}
	a.Job.Held, a.Job.NotBefore = until.IsZero(), until
	p.attempts.Parking.SendOut(a, by)
	p.queue.Tell(job.EventNotice, a.Job, fmt.Sprintf("job %s is being parked by %s", id, by))
	return ""
}

// boundParked makes a job come back in time that a person parked without a bound,
// or under a longer one. It reports whether that changed anything.
func (p *Parker) boundParked(j *job.Job) bool {
	if j.State != job.Parked || j.Stop != job.NoStop || j.Parking.By == job.ParkedByIdling || !j.Held && j.NotBefore.IsZero() {
		return false
	}
	wanted := j.NotBefore
	if j.Held {
		wanted = time.Time{}
	}
	until := p.cfg.Parking.Until(j.Parking.Since, wanted)
	if until.Equal(wanted) {
		return false
	}
	j.Held, j.NotBefore = false, until
	p.changes.Fact(j)
	return true
}

// Unpark lets a parked job come back as soon as its cards have room. One that is
// being parked comes back after that.
func (p *Parker) Unpark(id, by string) bool {
	j := p.line.Roster.Get(id)
	if j == nil || j.State != job.Parked && j.Parking.Phase != job.ParkOut || !j.Held && j.NotBefore.IsZero() {
		return false
	}
	j.Held, j.NotBefore = false, time.Time{}
	p.changes.Fact(j)
	p.queue.Tell(job.EventReleased, j, "unparked by "+by)
	if j.State == job.Parked {
		p.queue.Enqueue(j)
	}
	return true
}

// news takes in what a supervisor says of its job. What is on disk is what was
// wanted; the supervisor knows what is.
func (p *Parker) news(a *running.Attempt, n keep.ParkNews) {
	j := a.Job
	outcome := n.Took > 0 || n.Why != ""
	if outcome {
		fault.Point("park heard")
	}
	switch {
	case n.Busy: // its outcome follows
	case j.State == job.Parked && n.Parked:
	case j.State == job.Parked:
		p.unparkedBehindOurBack(a)
	case n.Parked && j.Parking.Phase != job.ParkBack:
		p.parkedNow(a, n)
	case n.Parked && outcome: // it could not come back
		p.parkedAgain(a, n)
	case n.Parked:
		p.attempts.Parks = append(p.attempts.Parks, p.attempts.Parking.OrderFor(j)) // the order was lost with the last berth
	case j.Parking.Phase == job.ParkOut && outcome:
		p.parkRefused(a, n)
	case j.Parking.Phase == job.ParkOut:
		p.attempts.Parks = append(p.attempts.Parks, p.attempts.Parking.OrderFor(j))
	case j.Parking.Phase == job.ParkBack:
		p.resumed(a, n)
	}
}

// parkedNow frees the cards of a job that has left them.
func (p *Parker) parkedNow(a *running.Attempt, n keep.ParkNews) {
	j := a.Job
	if j.Parking.CardMiB == nil { // nobody asked for it: the store is older, or another
		j.Parking.CardMiB, j.Held = p.attempts.Parking.ParkMiB(a), true
	}
	j.Parking.Saved(n.MiB)
	p.attempts.Uses.Measured(a)
	if p.cfg.Rules.Fair {
		p.line.Usage.Charge(p.changes.Now, j, p.changes.Now, p.explain.scale(), p.cfg.HalfLife)
	}
	j.Parking.Served = j.Worked(p.changes.Now)
	// It gets a fresh limit, if it has used up the last one.
	if j.Parking.By == job.ParkedByLimit {
		j.Parking.Sliced = j.Parking.Served
		p.queue.ToTheEnd(j)
	}
	j.MustTo(job.Parked)
	j.Parking.Phase, j.Parking.Since = job.ParkNone, p.changes.Now
	j.Parking.Times++
	j.WaitsSince = p.changes.Now
	p.attempts.Parking.Vacate(p.changes.Now, a)
	p.changes.Fact(j)
	if j.Detail = ""; j.PreemptedFor != "" {
		j.Detail = "parked for job " + j.PreemptedFor
	}
	p.cfg.Watch.Parked(n.Took, j.Parking.HostMiB())
	p.attempts.Parking.Refusals.Learn(j, a.Kind, false)
	p.attempts.Parking.LearnPace(&p.attempts.Parking.Pace.Out, j.Parking.HostMiB(), n.Took)
	p.queue.Tell(job.EventParked, j, running.Gib(j.Parking.HostMiB())+" moved to the host's memory"+running.In(n.Took))
	p.queue.Enqueue(j)
}

// parkRefused lets a job go on that could not be parked. Where nothing was tried, that
// says nothing about other jobs of its program.
func (p *Parker) parkRefused(a *running.Attempt, n keep.ParkNews) {
	p.cfg.Watch.NotParked()
	j := a.Job
	by := j.Parking.By
	j.Parking.Phase, j.Parking.By, j.Parking.CardMiB = job.ParkNone, "", nil
	j.Parking.Refused = "it could not be parked: " + n.Why
	j.PreemptedFor, j.Held, j.NotBefore = "", false, time.Time{}
	if n.Took > 0 && p.attempts.Parking.Refusals.Learn(j, a.Kind, true) {
		p.line.EstimateAgain(p.changes.Now)
	}
	p.cards.Moved = true
	p.changes.Fact(j)
	what := "; it goes on running, and is not parked by itself any more"
	if by != "" {
		what = "; it goes on running"
	}
	p.queue.Tell(job.EventWarning, j, j.Parking.Refused+what)
}

// parkedAgain is for a job whose card had no room when it was to come back: it
// stays parked and waits.
func (p *Parker) parkedAgain(a *running.Attempt, n keep.ParkNews) {
	p.cfg.Watch.NotResumed()
	j := a.Job
	j.MustTo(job.Parked)
	j.Parking.Phase, j.Parking.Since = job.ParkNone, p.changes.Now
	j.Parking.Resumed = time.Time{}
	j.NotBefore, j.Detail = p.changes.Now.Add(running.ResumeDelay), "it could not be resumed yet: "+n.Why
	p.attempts.Parking.Vacate(p.changes.Now, a)
	p.changes.Fact(j)
	p.queue.Tell(job.EventNotice, j, j.Detail)
	p.queue.Enqueue(j)
}

// resumed is for a job that is back.
func (p *Parker) resumed(a *running.Attempt, n keep.ParkNews) {
	j := a.Job
	j.Parking.Phase, j.Parking.By, j.Detail = job.ParkNone, "", ""
	p.changes.Fact(j)
	parked := max(0, p.changes.Now.Sub(j.Parking.Since))
	p.cfg.Watch.Resumed(n.Took, parked, j.Parking.HostMiB())
	p.attempts.Parking.LearnPace(&p.attempts.Parking.Pace.Back, j.Parking.HostMiB(), n.Took)
	p.queue.Tell(job.EventResumed, j, fmt.Sprintf("resumed on %s%s, having been parked for %s", running.CardsOf(j), running.In(n.Took), text.Span(parked)))
	p.cards.Moved = true
}

// unparkedBehindOurBack is for a job that runs although the store says that it is
// parked: the end of its parking was lost with a berth.
func (p *Parker) unparkedBehindOurBack(a *running.Attempt) {
	j := a.Job
	p.line.Unqueue(j.ID)
	j.MustTo(job.Running)
	j.Parking.Resumed = p.changes.Now
	p.attempts.Parking.Occupy(a, j, p.line.Span(j))
	p.attempts.Holdings.SetOwners()
	p.changes.Fact(j)
}

// comeBack is a parked job that gets its cards again.
func (p *Parker) comeBack(j *job.Job, grant job.Grant) *job.Job {
	fault.Point("park decided")
	j = j.Clone()
	j.MustTo(job.Running)
	grant.CardMiB = p.cards.Book.Smallest(grant.GPUs)
	j.Grant = grant
	j.Parking.Phase, j.Parking.Resumed = job.ParkBack, p.changes.Now
	j.Detail, j.PreemptedFor = "", ""
	return j
}

// endSlices ends the time slices that are over.
func (p *Parker) endSlices() {
	for _, id := range p.attempts.IDs() {
		a := p.attempts.Active[id]
		if end := p.attempts.Parking.SliceEnds(a); !end.IsZero() && !p.changes.Now.Before(end) {
			p.endSlice(a)
		}
	}
}

// endSlice parks a job whose time slice is over. It just goes on if nobody waits,
// or if it cannot be parked and nobody is strict about that. Where no job can be
// parked, the limit is an ordinary one.
func (p *Parker) endSlice(a *running.Attempt) {
	j := a.Job
	limit := text.Brief(j.Spec.TimeLimit)
	stays := p.attempts.Parking.CannotPark(a, false)
	if p.cfg.Parking.Cannot != "" || p.cfg.Parking.Strict && stays != "" {
		p.attempts.Stop(p.changes.Now, j, job.StopTimeout, j.Spec.Grace, "")
		return
	}
	stays = cmp.Or(stays, p.attempts.Parking.NoRoom(a))
	if p.line.Queue.Len() == 0 {
		stays = "no other job waits"
	}
	if stays != "" {
		if j.Parking.Sliced <= j.Parking.Served { // once for each time that it gets its cards
			p.queue.Tell(job.EventNotice, j, fmt.Sprintf("job %s goes on after its time limit of %s: %s", j.ID, limit, stays))
		}
		j.Parking.Sliced = j.Worked(p.changes.Now)
		p.changes.Fact(j)
		return
	}
	j.Detail = "is being parked at its time limit"
	p.attempts.Parking.SendOut(a, job.ParkedByLimit)
	p.queue.Tell(job.EventNotice, j, fmt.Sprintf("job %s %s of %s", j.ID, j.Detail, limit))
}

// Attend records that somebody is attached to a job, which brings it back if it
// was parked for being idle.
func (p *Parker) Attend(token, by string) {
	p.attempts.Parking.Attended[token]++
	if j := p.line.Roster.Get(p.attempts.ByToken[token]); j != nil && j.Parking.By == job.ParkedByIdling {
		p.Unpark(j.ID, by)
	}
}

// Unattend takes one Attend back. The job's idle time begins anew.
func (p *Parker) Unattend(token string) {
	if p.attempts.Parking.Attended[token]--; p.attempts.Parking.Attended[token] <= 0 {
		delete(p.attempts.Parking.Attended, token)
	}
	if a := p.attempts.Active[p.attempts.ByToken[token]]; a != nil {
		a.IdleSince, a.IdleTold = time.Time{}, false
	}
}

// State is the present state of parking.
func (p *Parker) State() running.ParkState {
	s := running.ParkState{Cannot: p.cfg.Parking.Cannot, Out: p.attempts.Parking.Pace.Out, Back: p.attempts.Parking.Pace.Back, RoomMiB: -1}
	for _, a := range p.attempts.Parked {
		s.HeldMiB += a.Job.Parking.HostMiB()
	}
	if room, known := p.attempts.Parking.Room(); known {
		s.RoomMiB = room.AllMiB
	}
	return s
}

// RestorePace takes over what an earlier berth measured.
func (p *Parker) RestorePace(meta func(key string) (string, error)) error {
	value, err := meta(running.PaceKey)
	if err != nil || value == "" {
		return err
	}
	var pace sched.Pace
	if err := json.Unmarshal([]byte(value), &pace); err != nil || pace.Out < running.PaceLow || pace.Back < running.PaceLow {
		return fmt.Errorf("read how fast jobs are parked: expected two speeds, found %q", value)
	}
	p.attempts.Parking.Pace = pace
	return nil
}
