package engine

import (
	"time"

	"berth/internal/job"
	"berth/internal/machine/run"
	"berth/internal/queue/engine/judge"
	"berth/internal/queue/engine/running"
	"berth/internal/queue/engine/waiting"
)

// Recovery takes the queue over from an earlier berth, and the jobs of supervisors
// that the store does not know.
type Recovery struct {
	*parts
	ends   *ends
	parker *Parker
}

// fateKind is what happened to a job while no berth was running.
type fateKind int

// The fates.
const (
	fateQueued    fateKind = iota // it is still queued, or a cluster has it
	fateRunning                   // its supervisor holds it: take it over
	fateEnded                     // its supervisor left a record
	fateLosing                    // its supervisor is dead; the runner is ending what it left
	fateNeverRan                  // placed, but never told to go
	fateVanished                  // its supervisor has had another job since
	fateForgotten                 // not even its supervisor's directory is left; its processes may be
)

// fate is what happened to one job.
type fate struct {
	Job   *job.Job
	Kind  fateKind
	Found *run.Found // empty if its supervisor says nothing of it; nil if it is queued
}

// Recover compares the store with the supervisors that were found. It is a pure
// function: this is where "never lost, never twice" is decided. Strays are
// supervisors whose job the store does not expect.
func Recover(live []*job.Job, found []run.Found) (fates []fate, strays []run.Found) {
	type held struct {
		token, job string
		attempt    int
	}
	byHeld := make(map[held]run.Found, len(found))
	for _, f := range found {
		byHeld[held{f.Token, f.Job, f.Attempt}] = f
	}
	emptied := map[string]bool{}
	mute := map[string]*run.Found{}
	for _, f := range found {
		switch {
		case f.Kind == run.FoundEmpty:
			emptied[f.Token] = true
		case f.Job == "" && (f.Kind == run.FoundLost || f.Kind == run.FoundRunning):
			mute[f.Token] = &f
		}
	}
	for _, j := range live {
		if j.State != job.Running && j.State != job.Parked || j.HandedOver() {
			fates = append(fates, fate{Job: j, Kind: fateQueued})
			continue
		}
		key := held{j.Keep, j.ID, j.Attempt.Number}
		f, ok := byHeld[key]
		switch {
		case ok && f.Kind == run.FoundRunning:
			fates = append(fates, fate{j, fateRunning, &f})
		case ok && f.Kind == run.FoundEnded:
			fates = append(fates, fate{j, fateEnded, &f})
		case ok && f.Kind == run.FoundLost:
			fates = append(fates, fate{j, fateLosing, &f})
		case ranSince(found, j):
			// Its supervisor has had another job since: this one ran, and the
			// store is from before its end.
			fates = append(fates, fate{j, fateVanished, &run.Found{}})
		case mute[j.Keep] != nil && mute[j.Keep].Kind == run.FoundRunning:
			fates = append(fates, fate{j, fateRunning, mute[j.Keep]})
			delete(byHeld, held{token: j.Keep})
		case mute[j.Keep] != nil:
			// Its record did not survive, so its job is lost.
			fates = append(fates, fate{j, fateLosing, mute[j.Keep]})
			delete(byHeld, held{token: j.Keep})
		case emptied[j.Keep] || heldAnother(found, j.Keep):
			// The supervisor has no job, or an older one: this job's "go" never
			// reached it.
			fates = append(fates, fate{j, fateNeverRan, &run.Found{}})
		default:
			fates = append(fates, fate{j, fateForgotten, &run.Found{}})
		}
		delete(byHeld, key)
	}
	for _, f := range found {
		if _, unclaimed := byHeld[held{f.Token, f.Job, f.Attempt}]; unclaimed && f.Kind != run.FoundEmpty {
			strays = append(strays, f)
		}
	}
	return fates, strays
}

func heldAnother(found []run.Found, token string) bool {
	for _, f := range found {
		if f.Token == token {
			return true
		}
	}
	return false
}

// ranSince reports whether the job's supervisor started another one after this
// one was placed.
func ranSince(found []run.Found, j *job.Job) bool {
	for _, f := range found {
		if f.Token == j.Keep && f.Record.StartedAt.After(j.StartedAt) {
			return true
		}
	}
	return false
}

// Restore takes the queue over from an earlier berth.
func (r *Recovery) Restore(live []*job.Job, found []run.Found) {
	fates, strays := Recover(live, found)
	for _, f := range fates {
		r.line.Roster.Know(f.Job)
	}
	for _, f := range fates {
		if f.Kind == fateQueued {
			r.shorten(f.Job)
			r.queue.Enqueue(f.Job)
			continue
		}
		if f.Job.State == job.Parked {
			r.restoreParked(f)
			continue
		}
		r.restoreRunning(f)
	}
	for _, f := range strays {
		r.stray(f)
	}
	r.attempts.Holdings.SetOwners()
	r.line.Roster.Tidy()
}

// shorten keeps a clock that was set back from turning seconds before a retry
// into months.
func (r *Recovery) shorten(j *job.Job) {
	if j.RetriesUsed == 0 || !j.SubmittedAt.After(r.changes.Now) {
		return
	}
	if latest := r.changes.Now.Add(judge.Backoff(j.RetriesUsed - 1)); j.NotBefore.After(latest) {
		j.NotBefore = latest
	}
}

func (r *Recovery) restoreRunning(f fate) {
	j := f.Job
	a := r.attempts.Begin(r.changes.Now, j, r.line.Span(j), waiting.KindOf(j))
	_, a.StoredMiB = job.Highest(j.PeakMiB)
	r.attempts.RecallTrouble(a)
	switch f.Kind {
	case fateRunning:
		r.attempts.TakeOver(r.changes.Now, j)
	case fateEnded:
		r.ends.ended(a, run.Event{Kind: run.Ended, Token: f.Found.Token, Job: j.ID, Attempt: j.Attempt.Number, Record: f.Found.Record, OOM: f.Found.OOM})
	case fateNeverRan:
		r.ends.neverRan(a, "berth went down before it started", time.Time{})
	case fateVanished:
		r.ends.lost(a, f.Found.Record)
	case fateForgotten:
		r.attempts.Runner.Lose(j.Keep, j.ID, j.Attempt.Number)
	case fateLosing, fateQueued:
		// The runner reports when the last process is gone.
	}
}

// Recall learns from the newest ended jobs, oldest first. It comes before
// Restore. Without it only the estimates are worse.
func (r *Recovery) Recall(newest func(most int) ([]*job.Job, error)) { r.line.Recall(newest) }

// Usage takes over the usage from an earlier berth.
func (r *Recovery) Usage(meta func(key string) (string, error)) error {
	return r.line.Usage.Restore(meta)
}

// Health takes over the health of the cards from an earlier berth.
func (r *Recovery) Health(meta func(key string) (string, error)) error {
	return r.cards.RestoreHealth(meta)
}

// Pauses takes over the paused cards from an earlier berth.
func (r *Recovery) Pauses(meta func(key string) (string, error)) error {
	return r.cards.RestorePauses(meta)
}

// restoreParked takes a parked job over from an earlier berth.
func (r *Recovery) restoreParked(f fate) {
	j := f.Job
	a := &running.Attempt{Job: j, Token: j.Keep, StartedAt: r.changes.Now, Run: r.line.Span(j), Kind: waiting.KindOf(j)}
	r.attempts.Parked[j.ID], r.attempts.ByToken[j.Keep] = a, j.ID
	switch f.Kind {
	case fateRunning:
		r.attempts.TakeOver(r.changes.Now, j)
		r.parker.boundParked(j)
		if j.Stop == job.NoStop {
			r.queue.Enqueue(j)
		}
	case fateEnded:
		r.ends.ended(a, run.Event{Kind: run.Ended, Token: f.Found.Token, Job: j.ID, Attempt: j.Attempt.Number, Record: f.Found.Record, OOM: f.Found.OOM})
	case fateNeverRan, fateVanished:
		r.ends.lost(a, f.Found.Record)
	case fateForgotten:
		r.attempts.Runner.Lose(j.Keep, j.ID, j.Attempt.Number)
	case fateLosing, fateQueued:
	}
}
