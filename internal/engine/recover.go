package engine

import (
	"time"

	"berth/internal/engine/judge"
	"berth/internal/engine/waiting"
	"berth/internal/job"
	"berth/internal/run"
)

// fateKind is what happened to a job while no berth was running.
type fateKind int

// The fates.
const (
	fateQueued    fateKind = iota // it is still queued, or a cluster has it
	fateRunning                   // its supervisor holds it: adopt
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
	Found run.Found
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
	mute := map[string]run.Found{}
	for _, f := range found {
		switch {
		case f.Kind == run.FoundEmpty:
			emptied[f.Token] = true
		case f.Job == "" && (f.Kind == run.FoundLost || f.Kind == run.FoundRunning):
			mute[f.Token] = f
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
			fates = append(fates, fate{j, fateRunning, f})
		case ok && f.Kind == run.FoundEnded:
			fates = append(fates, fate{j, fateEnded, f})
		case ok && f.Kind == run.FoundLost:
			fates = append(fates, fate{j, fateLosing, f})
		case ranSince(found, j):
			// Its supervisor has had another job since: this one ran, and the
			// store is from before its end.
			fates = append(fates, fate{j, fateVanished, f})
		case mute[j.Keep].Token != "" && mute[j.Keep].Kind == run.FoundRunning:
			fates = append(fates, fate{j, fateRunning, mute[j.Keep]})
			delete(byHeld, held{token: j.Keep})
		case mute[j.Keep].Token != "":
			// Its record did not survive, so its job is lost.
			fates = append(fates, fate{j, fateLosing, mute[j.Keep]})
			delete(byHeld, held{token: j.Keep})
		case emptied[j.Keep] || heldAnother(found, j.Keep):
			// The supervisor has no job, or an older one: this job's "go" never
			// reached it.
			fates = append(fates, fate{j, fateNeverRan, f})
		default:
			fates = append(fates, fate{j, fateForgotten, f})
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
func (t *Turn) Restore(live []*job.Job, found []run.Found) {
	fates, strays := Recover(live, found)
	for _, f := range fates {
		t.line.Roster.Know(f.Job)
	}
	for _, f := range fates {
		if f.Kind == fateQueued {
			t.shorten(f.Job)
			t.queue.Enqueue(f.Job)
			continue
		}
		if f.Job.State == job.Parked {
			t.restoreParked(f)
			continue
		}
		t.restoreRunning(f)
	}
	for _, f := range strays {
		t.stray(f)
	}
	t.attempts.Holdings.SetOwners()
}

// shorten keeps a clock that was set back from turning seconds before a retry
// into months.
func (t *Turn) shorten(j *job.Job) {
	if j.RetriesUsed == 0 || !j.SubmittedAt.After(t.Now) {
		return
	}
	if latest := t.Now.Add(judge.Backoff(j.RetriesUsed - 1)); j.NotBefore.After(latest) {
		j.NotBefore = latest
	}
}

func (t *Turn) restoreRunning(f fate) {
	j := f.Job
	a := t.attempts.Begin(t.Now, j, t.line.Span(j), waiting.KindOf(j))
	_, a.StoredMiB = job.Highest(j.PeakMiB)
	t.attempts.RecallTrouble(a)
	switch f.Kind {
	case fateRunning:
		t.attempts.TakeOver(t.Now, j)
	case fateEnded:
		t.ended(a, run.Event{Kind: run.Ended, Token: f.Found.Token, Job: j.ID, Attempt: j.Attempt.Number, Record: f.Found.Record, OOM: f.Found.OOM})
	case fateNeverRan:
		t.neverRan(a, "berth went down before it started", time.Time{})
	case fateVanished:
		t.lost(a, f.Found.Record)
	case fateForgotten:
		t.attempts.Runner.Lose(j.Keep, j.ID, j.Attempt.Number)
	case fateLosing, fateQueued:
		// The runner reports when the last process is gone.
	}
}
