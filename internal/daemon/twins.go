package daemon

import (
	"encoding/json"
	"hash/fnv"
	"sync"

	"berth/internal/api"
	"berth/internal/job"
)

// twins knows which commands are queued, running, or finished well, so that
// --dedup can refuse to do the same work twice. It is filled when someone
// first asks: most never do.
type twins struct {
	mu     sync.Mutex
	filled bool
	known  map[uint64]string // what makes a job the same work, to its id
}

// identity is what makes two jobs the same work: the command, where it runs,
// what is set up before it, and the variables given for it.
func identity(s *job.Spec) uint64 {
	data, err := json.Marshal([]any{s.Shell, s.Argv, s.Dir, s.Venv, s.Conda, s.Setup, s.Env})
	if err != nil {
		panic("bug: " + err.Error())
	}
	h := fnv.New64a()
	h.Write(data)
	return h.Sum64()
}

// check refuses a request that asks for work that is done or under way.
func (t *twins) check(s *submission) error {
	within := map[uint64]bool{}
	for i, it := range s.items {
		if !it.asked.Dedup {
			continue
		}
		if err := t.fill(s.d); err != nil {
			return err
		}
		key := identity(&it.asked.Spec) ^ uint64(s.caller.UID)
		if within[key] {
			return s.located(i, api.Problemf(api.Refused, "leave --dedup out to run it again", "the same job is in this request already"))
		}
		within[key] = true
		if id, found := t.find(key); found && t.counts(s.d, id, &it.asked.Spec) {
			return s.located(i, api.Problemf(api.Refused, "leave --dedup out to run it again", "job %s is the same, and queued, running or finished well", id))
		}
	}
	return nil
}

func (t *twins) find(key uint64) (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id, ok := t.known[key]
	return id, ok
}

// fill reads what there is, once.
func (t *twins) fill(d *Daemon) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.filled {
		return nil
	}
	t.known = map[uint64]string{}
	err := d.store.Each(func(j *job.Job) error {
		if !j.State.Terminal() || j.Outcome == job.OK {
			t.known[identity(&j.Spec)^uint64(j.UID)] = j.ID
		}
		return nil
	})
	t.filled = err == nil
	return err
}

// counts looks at the job itself: it may have failed since, or only share a
// hash.
func (t *twins) counts(d *Daemon, id string, spec *job.Spec) bool {
	j, err := d.store.Job(id)
	if err != nil || j.State.Terminal() && j.Outcome != job.OK {
		return false
	}
	return identity(&j.Spec) == identity(spec)
}

// add remembers new jobs.
func (t *twins) add(s *submission) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.filled {
		return
	}
	for _, j := range s.jobs {
		t.known[identity(&j.Spec)^uint64(j.UID)] = j.ID
	}
}
