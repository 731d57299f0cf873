package engine

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"berth/internal/job"
	"berth/internal/machine/run"
	"berth/internal/queue/engine/journal"
	"berth/internal/queue/engine/running"
	"berth/internal/queue/store"
	"berth/internal/text/problem"
)

// Beside lists the jobs that run beside a store that never had one. A supervisor
// gets a job only once that is on disk, so the store is not the one they are
// from.
func Beside(lastSeq int64, found []run.Found) (ids []string) {
	for _, f := range found {
		if lastSeq == 0 && f.Kind == run.FoundRunning {
			ids = append(ids, f.Job)
		}
	}
	return ids
}

// Regain updates a store that is older than its supervisors: a job that it knows
// has a later attempt than it says. With unknown, it also takes in the jobs that
// the store does not know. Restore then finds the store as it should be.
func Regain(s journal.Store, found []run.Found, unknown bool) (regained []*job.Job, err error) {
	latest := map[string]*job.Job{}
	for _, f := range found {
		copied, _ := running.CopyOf(f)
		if copied == nil {
			continue
		}
		row, err := s.Job(f.Job)
		switch {
		case errors.Is(err, store.ErrNotFound) && unknown:
		case errors.Is(err, store.ErrNotFound):
			continue
		case err != nil:
			return nil, err
		case !isBehind(row, copied, f.Kind):
			continue
		default:
			copied.Environ = row.Environ // this store has it
		}
		if other := latest[f.Job]; other == nil || other.Attempt.Number < f.Attempt {
			latest[f.Job] = copied
		}
	}
	for _, id := range slices.Sorted(maps.Keys(latest)) {
		regained = append(regained, latest[id])
	}
	if len(regained) == 0 {
		return nil, nil
	}
	return regained, s.Commit(store.Tx{Put: regained})
}

// isBehind reports whether the row in the store is of an earlier attempt of the
// same job than the copy.
func isBehind(row, copied *job.Job, kind run.FoundKind) bool {
	switch {
	case !sameJob(row, copied) || (row.State == job.Running || row.State == job.Parked) && row.Keep == copied.Keep:
		return false
	case kind == run.FoundRunning:
		return copied.Attempt.Number >= row.Attempt.Number
	}
	return copied.Attempt.Number > row.Attempt.Number
}

// sameJob reports whether two jobs with one id are the same one: numbers start
// over with a new store.
func sameJob(a, b *job.Job) bool {
	return a.UID == b.UID && a.Key == b.Key && a.SubmittedAt.Equal(b.SubmittedAt)
}

// stray takes in a supervisor that holds nothing the store waits for. If its
// job's end is on disk, it is released: only the acknowledgement did not arrive.
// Otherwise it is left alone.
func (r *Recovery) stray(f run.Found) {
	st := &running.StrayEntry{Found: f}
	st.Job, st.Environ = running.CopyOf(f)
	_, err := r.changes.Store.Job(f.Job)
	known := !errors.Is(err, store.ErrNotFound)
	switch f.Kind {
	case run.FoundRunning:
	case run.FoundEnded, run.FoundLost, run.FoundEmpty:
		if known || st.Job == nil {
			r.attempts.Acks = append(r.attempts.Acks, f.Token)
			return
		}
	}
	r.cfg.Log.Warn("found a supervisor that the store does not expect", "token", f.Token, "job", f.Job, "attempt", f.Attempt, "kind", f.Kind, "copy", st.Job != nil)
	if f.Kind == run.FoundEnded {
		st.Over = &run.Event{Kind: run.Ended, Token: f.Token, Job: f.Job, Attempt: f.Attempt, Record: f.Record, OOM: f.OOM}
	}
	r.attempts.Strays[f.Token] = st
	if st.Job != nil {
		r.queue.NextSeq = max(r.queue.NextSeq, st.Job.Seq+1)
	}
	r.queue.Tell(job.EventWarning, st.Job, fmt.Sprintf("job %s is under a supervisor that the store does not know; it is left alone (berth list --strays)", f.Job))
	if f.Kind == run.FoundRunning {
		r.queue.SetHeld(f.Job, true, job.EventHeld, "held: a process of job "+f.Job+" still runs under a supervisor that the store does not know")
	}
}

// strayOver takes in the end of a stray. It stays until it is adopted, so that
// its outcome is not lost.
func (r *Recovery) strayOver(ev run.Event) {
	st := r.attempts.Strays[ev.Token]
	if ev.Kind == run.Started || st.Over != nil {
		return
	}
	r.cfg.Log.Warn("the job of a stray supervisor is over", "token", ev.Token, "job", st.Found.Job, "kind", ev.Kind, "exit_code", ev.Record.ExitCode, "signal", ev.Record.Signal)
	st.Over = &ev
	r.cards.Moved, r.cards.Bookings.Behind = true, true
	if st.Job == nil {
		delete(r.attempts.Strays, ev.Token)
		r.attempts.Acks = append(r.attempts.Acks, ev.Token)
	}
}

// Strays lists the supervisors that the store does not know.
func (r *Recovery) Strays() []running.Stray {
	list := make([]running.Stray, 0, len(r.attempts.Strays))
	for _, token := range slices.Sorted(maps.Keys(r.attempts.Strays)) {
		st := r.attempts.Strays[token]
		list = append(list, running.Stray{Found: st.Found, Job: st.Job, State: st.State(), PID: st.Found.Record.PID})
	}
	return list
}

// AdoptStray takes a stray's job into the queue as it was when it started. Like
// any other it exists once it is on disk, which done reports.
func (r *Recovery) AdoptStray(token string, done func(error)) error {
	st := r.attempts.Strays[token]
	switch {
	case st == nil:
		return problem.Newf(problem.NotFound, "berth list --strays", "there is no stray supervisor %s", token)
	case st.Job == nil:
		return problem.Newf(problem.Refused, "wait for it to end, or end it with kill", "job %s cannot be adopted: the berth that started it left no copy of it", st.Found.Job)
	}
	_, err := r.changes.Store.Job(st.Job.ID)
	if r.line.Roster.Has(st.Job.ID) || err == nil {
		return problem.Newf(problem.Refused, "wait for it to end, or end it with kill", "stray %s cannot be adopted: job %s of this queue is another one", token, st.Job.ID)
	}
	adopting := false
	r.changes.EachStaged(func(j *job.Job) { adopting = adopting || j.Keep == token })
	if adopting {
		return problem.Newf(problem.Refused, "", "stray %s is being adopted", token)
	}
	b := journal.Batch{Jobs: []*job.Job{st.Job.Clone()}, Done: done}
	if b.Jobs[0].Environ != "" {
		name := store.BlobName(st.Environ)
		b.Jobs[0].Environ, b.Blobs = name, map[string][]byte{name: bytes.Clone(st.Environ)}
	}
	r.changes.Stage(b)
	return nil
}

// rejoin continues with a stray's job, which is on disk now.
func (r *Recovery) rejoin(j *job.Job) {
	st := r.attempts.Strays[j.Keep]
	delete(r.attempts.Strays, j.Keep)
	f := fate{Job: j, Kind: fateRunning, Found: &st.Found}
	switch {
	case st.Over != nil && st.Over.Kind == run.Ended:
		f.Kind, f.Found.Record, f.Found.OOM = fateEnded, st.Over.Record, st.Over.OOM
	case st.Over != nil:
		f.Kind, f.Found.Record = fateVanished, st.Over.Record
	case st.Found.Kind == run.FoundLost:
		f.Kind = fateLosing
	}
	r.restoreRunning(f)
	if a := r.attempts.Active[j.ID]; a != nil && st.Park.Parked {
		r.parker.news(a, st.Park)
	}
	r.cards.Moved, r.cards.Bookings.Behind = true, true
	r.attempts.Holdings.SetOwners()
}
