package engine

import (
	"time"

	"berth/internal/job"
	"berth/internal/run"
)

// FateKind is what became of a job while no berth was looking.
type FateKind int

// The fates.
const (
	FateQueued   FateKind = iota // it was waiting and still is
	FateRunning                  // its supervisor holds it: adopt
	FateEnded                    // its supervisor left a record
	FateLosing                   // its supervisor is dead; the runner is ending what it left
	FateNeverRan                 // placed, but "go" never came
	FateVanished                 // not even its supervisor's directory is left
)

// Fate is one job's.
type Fate struct {
	Job   *job.Job
	Kind  FateKind
	Found run.Found
}

// Recover holds what the store says against the supervisors that were found.
// It is a pure function: this is where "never lost, never twice" is decided.
// Strays are supervisors whose job the store does not expect there: their
// outcome was committed, but the acknowledgement did not get through.
func Recover(live []*job.Job, found []run.Found) (fates []Fate, strays []run.Found) {
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
		case f.Kind == run.FoundLost && f.Job == "":
			mute[f.Token] = f
		}
	}
	for _, j := range live {
		if j.State != job.Running {
			fates = append(fates, Fate{Job: j, Kind: FateQueued})
			continue
		}
		key := held{j.Keep, j.ID, j.Attempt.Number}
		f, ok := byHeld[key]
		switch {
		case ok && f.Kind == run.FoundRunning:
			fates = append(fates, Fate{j, FateRunning, f})
		case ok && f.Kind == run.FoundEnded:
			fates = append(fates, Fate{j, FateEnded, f})
		case ok && f.Kind == run.FoundLost:
			fates = append(fates, Fate{j, FateLosing, f})
		case mute[j.Keep].Token != "":
			// Its record did not survive. Whatever it was given is lost.
			fates = append(fates, Fate{j, FateLosing, mute[j.Keep]})
			delete(byHeld, held{token: j.Keep})
		case emptied[j.Keep] || heldAnother(found, j.Keep):
			// The supervisor is there, with nothing or with an older job on
			// its record: this one's "go" never reached it.
			fates = append(fates, Fate{j, FateNeverRan, f})
		default:
			fates = append(fates, Fate{j, FateVanished, f})
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

// Restore takes the queue over from an earlier berth.
func (t *Turn) Restore(live []*job.Job, found []run.Found) {
	fates, strays := Recover(live, found)
	for _, f := range fates {
		t.line.know(f.Job)
	}
	for _, f := range fates {
		if f.Kind == FateQueued {
			t.shorten(f.Job)
			t.enqueue(f.Job)
			continue
		}
		t.restoreRunning(f)
	}
	for _, f := range strays {
		t.attempts.stray(f)
	}
	t.attempts.setOwners()
}

// shorten keeps a clock that was set back from turning the moments before a
// retry into months.
func (t *Turn) shorten(j *job.Job) {
	if j.RetriesUsed == 0 || !j.SubmittedAt.After(t.Now) {
		return
	}
	if latest := t.Now.Add(backoff(j.RetriesUsed - 1)); j.NotBefore.After(latest) {
		j.NotBefore = latest
	}
}

func (t *Turn) restoreRunning(f Fate) {
	j := f.Job
	a := t.attempts.begin(t.Now, j, t.line.span(j))
	_, a.storedMiB = highest(j.PeakMiB)
	t.attempts.recallTrouble(a)
	t.cards.meter.Seed(j.ID, j.PeakMiB)
	switch f.Kind {
	case FateRunning:
		t.attempts.takeOver(t.Now, j)
	case FateEnded:
		t.ended(a, run.Event{Kind: run.Ended, Token: f.Found.Token, Job: j.ID, Attempt: j.Attempt.Number, Record: f.Found.Record, OOM: f.Found.OOM})
	case FateNeverRan:
		t.neverRan(a, "berth went down before it ran", time.Time{})
	case FateVanished:
		t.lost(a, f.Found.Record)
	case FateLosing, FateQueued:
		// The runner says when the last process is gone.
	}
}

// takeOver goes on with a job that its supervisor holds.
func (s *attempts) takeOver(now time.Time, j *job.Job) {
	switch j.Stop {
	case job.StopInterrupt:
		// The berth that wanted it stopped is gone. If the supervisor had
		// heard of it, its record will say so.
		j.Stop = job.NoStop
		s.changes.fact(j)
	case job.StopCancel, job.StopRequeue:
		s.stops = append(s.stops, stopOrder{j.Keep, j.Stop, j.Spec.Grace})
	case job.StopPreempt:
		// What it is to be told, and when, is looked at in each round.
	}
	s.changes.tell(now, job.EventAdopted, j, "")
}

// stray lets a supervisor go that holds nothing we still wait for. One that
// runs a job the store has no word of is ended: its line will run again, and
// never twice at the same time.
func (s *attempts) stray(f run.Found) {
	s.cfg.Log.Warn("found a supervisor the store does not expect", "token", f.Token, "job", f.Job, "attempt", f.Attempt, "kind", f.Kind)
	if f.Kind == run.FoundRunning {
		s.stops = append(s.stops, stopOrder{f.Token, job.StopInterrupt, 10 * time.Second})
		return
	}
	s.acks = append(s.acks, f.Token)
}
