package daemon

import (
	"bytes"
	"context"
	"errors"
	"hash/fnv"
	"sync"

	"berth/internal/job"
	"berth/internal/queue/engine"
	"berth/internal/queue/store"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// twins knows the work that is queued, running or finished successfully, so that
// --dedup can refuse to repeat it. It is filled on first use, because most users
// never need it.
type twins struct {
	turn sync.Mutex // held from the check until the jobs are on disk

	mu     sync.Mutex
	known  map[uint64][]string // from a hash of the work to ids; nil: not filled
	filled int                 // how many there were then
	added  int                 // and how many were added since
}

// twinsSpare is how many may be added before it is filled again without finished
// jobs.
const twinsSpare = 10_000

// work is what makes two jobs the same: user, command, directory, set-up,
// variables and code.
func work(uid int, s *job.Spec) []byte {
	return text.MustJSON([]any{uid, s.Shell, s.Argv, s.Dir, s.Venv, s.Conda, s.Setup, s.Env, s.Snapshot.ID})
}

func identity(work []byte) uint64 {
	h := fnv.New64a()
	h.Write(work)
	return h.Sum64()
}

// check refuses work that is done or in progress. The caller holds turn, so that
// two requests are checked one after the other.
func (t *twins) check(ctx context.Context, s *submission) error {
	within := map[uint64]bool{}
	for i, it := range s.items {
		if !it.dedup {
			continue
		}
		if err := t.fill(s.h.svc.queue.Store); err != nil {
			return err
		}
		different := s.jobs[it.from : it.from+1] // the tasks of an array are not
		if len(it.spec.Trial.Params) > 0 {
			different = s.jobs[it.from:it.to]
		}
		for _, j := range different {
			asked := work(s.caller.UID, &j.Spec)
			key := identity(asked)
			if within[key] {
				return s.located(i, problem.Newf(problem.Refused, "leave --dedup out to run it again", "the same job is already in this request"))
			}
			within[key] = true
			id, err := t.find(ctx, s.h.find, key, asked)
			if err != nil {
				return err
			}
			if id != "" {
				return s.located(i, problem.Newf(problem.Refused, "leave --dedup out to run it again", "job %s is the same and is queued, running or finished successfully", id))
			}
		}
	}
	return nil
}

// find returns a job with the same work, or "" if no job has it. Jobs that have failed
// or are forgotten are dropped.
func (t *twins) find(ctx context.Context, f *finder, key uint64, asked []byte) (string, error) {
	for {
		t.mu.Lock()
		ids := t.known[key]
		t.mu.Unlock()
		if len(ids) == 0 {
			return "", nil
		}
		last := ids[len(ids)-1]
		j, err := f.current(ctx, last)
		switch {
		case err != nil && !errors.Is(err, store.ErrNotFound):
			return "", err
		case err == nil && (!j.State.Terminal() || j.Outcome == job.OK) && bytes.Equal(work(j.UID, &j.Spec), asked):
			return last, nil
		}
		t.drop(key, last)
	}
}

// current is a job as the engine knows it: its end may not be on disk yet,
// although a waiting client has seen it.
func (f *finder) current(ctx context.Context, id string) (*job.Job, error) {
	var j *job.Job
	err := f.svc.Do(ctx, func(t *engine.Turn) {
		if known, found := t.Jobs().Find(id); found {
			now := t.Running().Copy(known)
			j = &now
		}
	})
	if err != nil || j != nil {
		return j, err
	}
	return f.svc.queue.Store.Job(id)
}

func (t *twins) drop(key uint64, id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ids := t.known[key]
	for i := range ids {
		if ids[i] == id {
			t.known[key] = append(ids[:i:i], ids[i+1:]...)
			break
		}
	}
	if len(t.known[key]) == 0 {
		delete(t.known, key)
	}
}

// fill reads the known jobs, and again after many were added: by then most have
// ended.
func (t *twins) fill(st *store.Store) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known != nil {
		return nil
	}
	t.known, t.filled, t.added = map[uint64][]string{}, 0, 0
	err := st.Each(func(j *job.Job) error {
		if !j.State.Terminal() || j.Outcome == job.OK {
			key := identity(work(j.UID, &j.Spec))
			t.known[key] = append(t.known[key], j.ID)
			t.filled++
		}
		return nil
	})
	if err != nil {
		t.known = nil
	}
	return err
}

// add records newly queued jobs.
func (t *twins) add(jobs []*job.Job) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil {
		return
	}
	for _, j := range jobs {
		key := identity(work(j.UID, &j.Spec))
		t.known[key] = append(t.known[key], j.ID)
	}
	if t.added += len(jobs); t.added > t.filled+twinsSpare {
		t.known = nil
	}
}
