package engine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"berth/internal/engine/fault"
	"berth/internal/engine/running"
	"berth/internal/engine/waiting"
	"berth/internal/job"
	"berth/internal/keep"
	"berth/internal/run"
	"berth/internal/text"
)

// Park has a job parked for a user, until it is unparked or that time comes, or it
// has been parked for as long as a person may have it parked. It returns why it is
// not.
func (t *Turn) Park(id, by string, until time.Time) (why string) {
	a := t.attempts.Active[id]
	switch {
	case a == nil && t.attempts.Parked[id] != nil:
		a = t.attempts.Parked[id]
		if until = t.cfg.Parking.Until(a.Job.Parking.Since, until); !until.IsZero() && !until.After(t.Now) {
			return fmt.Sprintf("it has been parked for %s already (limits.parked_time)", text.Span(t.Now.Sub(a.Job.Parking.Since)))
		}
		a.Job.Held, a.Job.NotBefore = until.IsZero(), until
		t.changes.Fact(a.Job)
		t.queue.Enqueue(a.Job)
		return ""
	case a == nil && t.remote.Runs(id):
		return "it runs on Slurm"
	case a == nil:
		return "it is not running"
	}
	until = t.cfg.Parking.Until(t.Now, until)
	if a.Job.Parking.Phase == job.ParkOut {
		a.Job.Held, a.Job.NotBefore = until.IsZero(), until
		t.changes.Fact(a.Job)
		return ""
	}
	if why = cmp.Or(t.attempts.Parking.CannotPark(a, true), t.attempts.Parking.NoRoom(a)); why != "" {
		return why
	}
	a.Job.Held, a.Job.NotBefore = until.IsZero(), until
	t.attempts.Parking.SendOut(a, by)
	t.queue.Tell(job.EventNotice, a.Job, fmt.Sprintf("job %s is being parked by %s", id, by))
	return ""
}

// boundParked makes a job come back in time that a person parked without a bound,
// or under a longer one. It reports whether that changed anything.
func (t *Turn) boundParked(j *job.Job) bool {
	if j.State != job.Parked || j.Stop != job.NoStop || j.Parking.By == job.ParkedByIdling || !j.Held && j.NotBefore.IsZero() {
		return false
	}
	wanted := j.NotBefore
	if j.Held {
		wanted = time.Time{}
	}
	until := t.cfg.Parking.Until(j.Parking.Since, wanted)
	if until.Equal(wanted) {
		return false
	}
	j.Held, j.NotBefore = false, until
	t.changes.Fact(j)
	return true
}

// Unpark lets a parked job come back as soon as its cards have room. One that is
// being parked comes back after that.
func (t *Turn) Unpark(id, by string) bool {
	j := t.line.Roster.Jobs[id]
	if j == nil || j.State != job.Parked && j.Parking.Phase != job.ParkOut || !j.Held && j.NotBefore.IsZero() {
		return false
	}
	j.Held, j.NotBefore = false, time.Time{}
	t.changes.Fact(j)
	t.queue.Tell(job.EventReleased, j, "unparked by "+by)
	if j.State == job.Parked {
		t.queue.Enqueue(j)
	}
	return true
}

// parking takes in what a supervisor says of its job. What is on disk is what was
// wanted; the supervisor knows what is.
func (t *Turn) parking(a *running.Attempt, n keep.ParkNews) {
	j := a.Job
	outcome := n.Took > 0 || n.Why != ""
	if outcome {
		fault.Point("park heard")
	}
	switch {
	case n.Busy: // its outcome follows
	case j.State == job.Parked && n.Parked:
	case j.State == job.Parked:
		t.unparkedBehindOurBack(a)
	case n.Parked && j.Parking.Phase != job.ParkBack:
		t.parkedNow(a, n)
	case n.Parked && outcome: // it could not come back
		t.parkedAgain(a, n)
	case n.Parked:
		t.attempts.Parks = append(t.attempts.Parks, t.attempts.Parking.OrderFor(j)) // the order was lost with the last berth
	case j.Parking.Phase == job.ParkOut && outcome:
		t.parkRefused(a, n.Why)
	case j.Parking.Phase == job.ParkOut:
		t.attempts.Parks = append(t.attempts.Parks, t.attempts.Parking.OrderFor(j))
	case j.Parking.Phase == job.ParkBack:
		t.resumed(a, n)
	}
}

// parkedNow frees the cards of a job that has left them.
func (t *Turn) parkedNow(a *running.Attempt, n keep.ParkNews) {
	j := a.Job
	if j.Parking.CardMiB == nil { // nobody asked for it: the store is older, or another
		j.Parking.CardMiB, j.Held = t.attempts.Parking.ParkMiB(a), true
	}
	j.Parking.Saved(n.MiB)
	t.attempts.Uses.Measured(a)
	if t.cfg.Rules.Fair {
		t.line.Usage.Charge(t.Now, j, t.Now, t.scale(), t.cfg.HalfLife)
	}
	j.Parking.Served = j.Worked(t.Now)
	t.sliced(j)
	j.MustTo(job.Parked)
	j.Parking.Phase, j.Parking.Since = job.ParkNone, t.Now
	j.Parking.Times++
	j.WaitsSince = t.Now
	t.attempts.Parking.Vacate(t.Now, a)
	t.changes.Fact(j)
	if j.Detail = ""; j.PreemptedFor != "" {
		j.Detail = "parked for job " + j.PreemptedFor
	}
	t.cfg.Watch.Parked(n.Took, j.Parking.HostMiB())
	t.attempts.Parking.LearnPace(&t.attempts.Parking.Pace.Out, j.Parking.HostMiB(), n.Took)
	t.queue.Tell(job.EventParked, j, running.Gib(j.Parking.HostMiB())+" moved to the host's memory"+running.In(n.Took))
	t.queue.Enqueue(j)
}

// parkRefused lets a job go on that could not be parked.
func (t *Turn) parkRefused(a *running.Attempt, why string) {
	t.cfg.Watch.NotParked()
	j := a.Job
	by := j.Parking.By
	j.Parking.Phase, j.Parking.By, j.Parking.CardMiB = job.ParkNone, "", nil
	j.Parking.Refused = "it could not be parked: " + why
	j.PreemptedFor, j.Held, j.NotBefore = "", false, time.Time{}
	t.cards.Moved = true
	t.changes.Fact(j)
	what := "; it goes on running, and is not parked by itself any more"
	if by != "" {
		what = "; it goes on running"
	}
	t.queue.Tell(job.EventWarning, j, j.Parking.Refused+what)
}

// parkedAgain is for a job whose card had no room when it was to come back: it
// stays parked and waits.
func (t *Turn) parkedAgain(a *running.Attempt, n keep.ParkNews) {
	t.cfg.Watch.NotResumed()
	j := a.Job
	j.MustTo(job.Parked)
	j.Parking.Phase, j.Parking.Since = job.ParkNone, t.Now
	j.Parking.Resumed = time.Time{}
	j.NotBefore, j.Detail = t.Now.Add(running.ResumeDelay), "it could not be resumed yet: "+n.Why
	t.attempts.Parking.Vacate(t.Now, a)
	t.changes.Fact(j)
	t.queue.Tell(job.EventNotice, j, j.Detail)
	t.queue.Enqueue(j)
}

// resumed is for a job that is back.
func (t *Turn) resumed(a *running.Attempt, n keep.ParkNews) {
	j := a.Job
	j.Parking.Phase, j.Parking.By, j.Detail = job.ParkNone, "", ""
	t.changes.Fact(j)
	parked := max(0, t.Now.Sub(j.Parking.Since))
	t.cfg.Watch.Resumed(n.Took, parked, j.Parking.HostMiB())
	t.attempts.Parking.LearnPace(&t.attempts.Parking.Pace.Back, j.Parking.HostMiB(), n.Took)
	t.queue.Tell(job.EventResumed, j, fmt.Sprintf("resumed on %s%s, having been parked for %s", running.CardsOf(j), running.In(n.Took), text.Span(parked)))
	t.cards.Moved = true
}

// unparkedBehindOurBack is for a job that runs although the store says that it is
// parked: the end of its parking was lost with a berth.
func (t *Turn) unparkedBehindOurBack(a *running.Attempt) {
	j := a.Job
	t.line.Unqueue(j.ID)
	j.MustTo(job.Running)
	j.Parking.Resumed = t.Now
	t.attempts.Parking.Occupy(a, j)
	t.attempts.Holdings.SetOwners()
	t.changes.Fact(j)
}

// comeBack is a parked job that gets its cards again.
func (t *Turn) comeBack(j *job.Job, grant job.Grant) *job.Job {
	fault.Point("park decided")
	j = j.Clone()
	j.MustTo(job.Running)
	grant.CardMiB = t.cards.Book.Smallest(grant.GPUs)
	j.Grant = grant
	j.Parking.Phase, j.Parking.Resumed = job.ParkBack, t.Now
	j.Detail, j.PreemptedFor = "", ""
	return j
}

// restoreParked takes a parked job over from an earlier berth.
func (t *Turn) restoreParked(f fate) {
	j := f.Job
	a := &running.Attempt{Job: j, Token: j.Keep, StartedAt: t.Now, Run: t.line.Span(j), Kind: waiting.KindOf(j)}
	t.attempts.Parked[j.ID], t.attempts.ByToken[j.Keep] = a, j.ID
	switch f.Kind {
	case fateRunning:
		t.attempts.TakeOver(t.Now, j)
		t.boundParked(j)
		if j.Stop == job.NoStop {
			t.queue.Enqueue(j)
		}
	case fateEnded:
		t.ended(a, run.Event{Kind: run.Ended, Token: f.Found.Token, Job: j.ID, Attempt: j.Attempt.Number, Record: f.Found.Record, OOM: f.Found.OOM})
	case fateNeverRan, fateVanished:
		t.lost(a, f.Found.Record)
	case fateForgotten:
		t.attempts.Runner.Lose(j.Keep, j.ID, j.Attempt.Number)
	case fateLosing, fateQueued:
	}
}

// endSlices ends the time slices that are over.
func (t *Turn) endSlices() {
	for _, id := range t.attempts.IDs() {
		a := t.attempts.Active[id]
		if end := t.attempts.Parking.SliceEnds(a); !end.IsZero() && !t.Now.Before(end) {
			t.endSlice(a)
		}
	}
}

// endSlice parks a job whose time slice is over. It just goes on if nobody waits,
// or if it cannot be parked and nobody is strict about that. Where no job can be
// parked, the limit is an ordinary one.
func (t *Turn) endSlice(a *running.Attempt) {
	j := a.Job
	limit := text.Brief(j.Spec.TimeLimit)
	stays := t.attempts.Parking.CannotPark(a, false)
	if t.cfg.Parking.Cannot != "" || t.cfg.Parking.Strict && stays != "" {
		t.attempts.Stop(t.Now, j, job.StopTimeout, j.Spec.Grace, "")
		return
	}
	stays = cmp.Or(stays, t.attempts.Parking.NoRoom(a))
	if t.line.Queue.Len() == 0 {
		stays = "no other job waits"
	}
	if stays != "" {
		if j.Parking.Sliced <= j.Parking.Served { // once for each time that it gets its cards
			t.queue.Tell(job.EventNotice, j, fmt.Sprintf("job %s goes on after its time limit of %s: %s", j.ID, limit, stays))
		}
		j.Parking.Sliced = j.Worked(t.Now)
		t.changes.Fact(j)
		return
	}
	j.Detail = "is being parked at its time limit"
	t.attempts.Parking.SendOut(a, job.ParkedByLimit)
	t.queue.Tell(job.EventNotice, j, fmt.Sprintf("job %s %s of %s", j.ID, j.Detail, limit))
}

// sliced gives a parked job a fresh limit, if it has used up the last one.
func (t *Turn) sliced(j *job.Job) {
	if j.Parking.By == job.ParkedByLimit {
		j.Parking.Sliced = j.Parking.Served
		t.queue.ToTheEnd(j)
	}
}

// Attend records that somebody is attached to a job, which brings it back if it
// was parked for being idle.
func (t *Turn) Attend(token, by string) {
	t.attempts.Parking.Attended[token]++
	if j := t.line.Roster.Jobs[t.attempts.ByToken[token]]; j != nil && j.Parking.By == job.ParkedByIdling {
		t.Unpark(j.ID, by)
	}
}

// Unattend takes one Attend back. The job's idle time begins anew.
func (t *Turn) Unattend(token string) {
	if t.attempts.Parking.Attended[token]--; t.attempts.Parking.Attended[token] <= 0 {
		delete(t.attempts.Parking.Attended, token)
	}
	if a := t.attempts.Active[t.attempts.ByToken[token]]; a != nil {
		a.IdleSince, a.IdleTold = time.Time{}, false
	}
}

// ParkState is the present state of parking.
func (t *Turn) ParkState() running.ParkState {
	s := running.ParkState{Cannot: t.cfg.Parking.Cannot, Out: t.attempts.Parking.Pace.Out, Back: t.attempts.Parking.Pace.Back, RoomMiB: -1}
	for _, a := range t.attempts.Parked {
		s.HeldMiB += a.Job.Parking.HostMiB()
	}
	if room, known := t.attempts.Parking.Room(); known {
		s.RoomMiB = room.AllMiB
	}
	return s
}

// RestorePace takes over what an earlier berth measured.
func (t *Turn) RestorePace(meta func(key string) (string, error)) error {
	value, err := meta(running.PaceKey)
	if err != nil || value == "" {
		return err
	}
	var p running.Pace
	if err := json.Unmarshal([]byte(value), &p); err != nil || p.Out < running.PaceLow || p.Back < running.PaceLow {
		return fmt.Errorf("read how fast jobs are parked: expected two speeds, found %q", value)
	}
	t.attempts.Parking.Pace = p
	return nil
}
