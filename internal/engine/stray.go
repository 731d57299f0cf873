package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/internal/gpu"
	"berth/internal/job"
	"berth/internal/keep"
	"berth/internal/problem"
	"berth/internal/run"
	"berth/internal/store"
)

// A stray is a supervisor with a job that the store does not know: the store was
// emptied, or replaced by an older one. It is left alone. Its cards stay booked,
// and the job can be adopted from the copy in the supervisor's directory.
type stray struct {
	found   run.Found
	job     *job.Job // nil: the berth that started it left no copy
	environ []byte
	over    *run.Event // its end, once that is known
	park    keep.ParkNews
}

// Stray is one of them, for people.
type Stray struct {
	Found run.Found
	Job   *job.Job // as it was when it started; nil: not known
	State StrayState
	PID   int
}

// StrayState is what became of a stray's job.
type StrayState string

// The states of a stray.
const (
	StrayRunning StrayState = "running"
	StrayEnded   StrayState = "ended"
	StrayLost    StrayState = "lost"
)

// jobCopy is what a berth leaves about a job beside its supervisor.
type jobCopy struct {
	Job     json.RawMessage `json:"job"`
	Environ []byte          `json:"environ,omitempty"` // separated by NUL
}

// encodeCopy is the copy of a job that is about to start with this environment.
func encodeCopy(j *job.Job, environ []string) ([]byte, error) {
	text, err := store.EncodeJob(j)
	if err != nil {
		return nil, fmt.Errorf("copy job %s: %w", j.ID, err)
	}
	return json.Marshal(jobCopy{Job: text, Environ: []byte(strings.Join(environ, "\x00"))})
}

// copyOf reads the copy of the job that a supervisor holds, or nil if it has none,
// or it is of another job.
func copyOf(f run.Found) (j *job.Job, environ []byte) {
	var c jobCopy
	if len(f.Copy) == 0 || json.Unmarshal(f.Copy, &c) != nil {
		return nil, nil
	}
	j, err := store.DecodeJob(c.Job)
	if err != nil || j.State != job.Running || j.ID != f.Job || j.Attempt.Number != f.Attempt || j.Keep != f.Token {
		return nil, nil
	}
	return j, c.Environ
}

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
func Regain(s Store, found []run.Found, unknown bool) (regained []*job.Job, err error) {
	latest := map[string]*job.Job{}
	for _, f := range found {
		copied, _ := copyOf(f)
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
func (t *Turn) stray(f run.Found) {
	st := &stray{found: f}
	st.job, st.environ = copyOf(f)
	_, err := t.changes.store.Job(f.Job)
	known := !errors.Is(err, store.ErrNotFound)
	t.cfg.Log.Warn("found a supervisor that the store does not expect", "token", f.Token, "job", f.Job, "attempt", f.Attempt, "kind", f.Kind, "known", known, "copy", st.job != nil)
	switch f.Kind {
	case run.FoundRunning:
	case run.FoundEnded, run.FoundLost, run.FoundEmpty:
		if known || st.job == nil {
			t.attempts.acks = append(t.attempts.acks, f.Token)
			return
		}
	}
	if f.Kind == run.FoundEnded {
		st.over = &run.Event{Kind: run.Ended, Token: f.Token, Job: f.Job, Attempt: f.Attempt, Record: f.Record, OOM: f.OOM}
	}
	t.attempts.strays[f.Token] = st
	if st.job != nil {
		t.queue.nextSeq = max(t.queue.nextSeq, st.job.Seq+1)
	}
	t.queue.tell(job.EventWarning, st.job, fmt.Sprintf("job %s is under a supervisor that the store does not know; it is left alone (berth list --strays)", f.Job))
	if f.Kind == run.FoundRunning {
		t.queue.setHeld(f.Job, true, job.EventHeld, "held: a process of job "+f.Job+" still runs under a supervisor that the store does not know")
	}
}

// strayOver takes in the end of a stray. It stays until it is adopted, so that
// its outcome is not lost.
func (t *Turn) strayOver(ev run.Event) {
	st := t.attempts.strays[ev.Token]
	if ev.Kind == run.Started || st.over != nil {
		return
	}
	t.cfg.Log.Warn("the job of a stray supervisor is over", "token", ev.Token, "job", st.found.Job, "kind", ev.Kind, "exit_code", ev.Record.ExitCode, "signal", ev.Record.Signal)
	st.over = &ev
	t.cards.moved, t.cards.bookings.behind = true, true
	if st.job == nil {
		delete(t.attempts.strays, ev.Token)
		t.attempts.acks = append(t.attempts.acks, ev.Token)
	}
}

// Strays lists the supervisors that the store does not know.
func (t *Turn) Strays() []Stray {
	list := make([]Stray, 0, len(t.attempts.strays))
	for _, token := range slices.Sorted(maps.Keys(t.attempts.strays)) {
		st := t.attempts.strays[token]
		list = append(list, Stray{Found: st.found, Job: st.job, State: st.state(), PID: st.found.Record.PID})
	}
	return list
}

func (st *stray) state() StrayState {
	switch {
	case st.over != nil && st.over.Kind == run.Ended:
		return StrayEnded
	case st.over != nil || st.found.Kind == run.FoundLost:
		return StrayLost
	}
	return StrayRunning
}

// AdoptStray takes a stray's job into the queue as it was when it started. Like
// any other it exists once it is on disk, which done reports.
func (t *Turn) AdoptStray(token string, done func(error)) error {
	st := t.attempts.strays[token]
	switch {
	case st == nil:
		return problem.Newf(problem.NotFound, "berth list --strays", "there is no stray supervisor %s", token)
	case st.job == nil:
		return problem.Newf(problem.Refused, "wait for it to end, or end it with kill", "job %s cannot be adopted: the berth that started it left no copy of it", st.found.Job)
	}
	_, err := t.changes.store.Job(st.job.ID)
	if _, taken := t.line.roster.jobs[st.job.ID]; taken || err == nil {
		return problem.Newf(problem.Refused, "wait for it to end, or end it with kill", "stray %s cannot be adopted: job %s of this queue is another one", token, st.job.ID)
	}
	adopting := false
	t.changes.eachStaged(func(j *job.Job) { adopting = adopting || j.Keep == token })
	if adopting {
		return problem.Newf(problem.Refused, "", "stray %s is being adopted", token)
	}
	b := Batch{Jobs: []*job.Job{st.job.Clone()}, Done: done}
	if b.Jobs[0].Environ != "" {
		name := store.BlobName(st.environ)
		b.Jobs[0].Environ, b.Blobs = name, map[string][]byte{name: bytes.Clone(st.environ)}
	}
	t.changes.stage(b)
	return nil
}

// rejoin continues with a stray's job, which is on disk now.
func (t *Turn) rejoin(j *job.Job) {
	st := t.attempts.strays[j.Keep]
	delete(t.attempts.strays, j.Keep)
	f := fate{Job: j, Kind: fateRunning, Found: st.found}
	switch {
	case st.over != nil && st.over.Kind == run.Ended:
		f.Kind, f.Found.Record, f.Found.OOM = fateEnded, st.over.Record, st.over.OOM
	case st.over != nil:
		f.Kind, f.Found.Record = fateVanished, st.over.Record
	case st.found.Kind == run.FoundLost:
		f.Kind = fateLosing
	}
	t.restoreRunning(f)
	if a := t.attempts.active[j.ID]; a != nil && st.park.Parked {
		t.parking(a, st.park)
	}
	t.cards.moved, t.cards.bookings.behind = true, true
	t.attempts.holdings.setOwners()
}

// strayBookings is what strays hold. To placement they are another berth's jobs:
// nothing here may preempt or account for them.
func (hs *holdings) strayBookings() []gpu.Entry {
	var entries []gpu.Entry
	cards := hs.set.cards.book.list()
	for _, token := range slices.Sorted(maps.Keys(hs.set.strays)) {
		st := hs.set.strays[token]
		switch {
		case st.over != nil:
		case st.job != nil:
			entries = append(entries, hs.booking(st.job, cards))
		default:
			r := st.found.Record
			entries = append(entries, gpu.Entry{Key: BookingKey(token, st.found.Job), Job: st.found.Job, HolderPID: r.KeepPID, HolderStart: r.KeepStart})
		}
	}
	return entries
}
