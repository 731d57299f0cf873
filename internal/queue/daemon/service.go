package daemon

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"berth/internal/machine/site"
	"berth/internal/queue"
	"berth/internal/queue/access"
	"berth/internal/queue/config"
	"berth/internal/queue/engine"
	"berth/internal/queue/engine/fault"
	"berth/internal/queue/fair"
	"berth/internal/queue/people"
	"berth/internal/queue/store"
	"berth/internal/slurm/cluster"
	"berth/internal/text/problem"
)

// service is what the handlers of requests have in common: the queue, the config
// in force, the users, and the audit log.
type service struct {
	queue   *queue.Queue // once it is open
	people  *people.People
	places  site.Places
	own     Own    // nil: a daemon
	runs    string // of a berth run: the directory that the paths of its jobs files are from
	version string

	cfg     atomic.Pointer[config.Config]
	audit   *access.Audit // nil: an own queue
	hub     *hub
	cluster atomic.Pointer[cluster.Cluster]
	still   *sync.Mutex   // held to use an engine without a loop; nil: the loop runs
	ended   chan struct{} // closed when the engine's loop ends
	gate    *fair.Gate    // where long work for requests takes turns
}

func (s *service) Config() *config.Config { return s.cfg.Load() }

// maxLong bounds the long work for all users at a time. It leaves some of the
// store's readers to short requests.
const maxLong = 2

// newGate leaves a core to the engine, and a place to other users, where there are
// several.
func newGate(cores int) *fair.Gate {
	most := min(cores-1, maxLong)
	return fair.NewGate(most, most-1)
}

// Do runs f in the engine's goroutine and waits for it. If the caller goes away
// first, f does not run.
func (s *service) Do(ctx context.Context, f func(t *engine.Turn)) error {
	if s.still != nil {
		s.still.Lock()
		defer s.still.Unlock()
		s.queue.Engine.Outside(time.Now(), f)
		return nil
	}
	return unlessEnded(s.queue.Engine.Do(ctx, f))
}

// Change is do for changes that must be on disk before the reply.
func (s *service) Change(ctx context.Context, f func(t *engine.Turn)) error {
	if s.still != nil {
		return s.Do(ctx, f) // nothing of it lasts
	}
	ran := false
	err := s.queue.Engine.Change(ctx, func(t *engine.Turn) {
		f(t)
		ran = true
	})
	fault.Point("before answer")
	if !ran {
		return unlessEnded(err)
	}
	return notWritten(err)
}

func unlessEnded(err error) error {
	if errors.Is(err, engine.ErrEnded) {
		return stopping()
	}
	return err
}

func stopping() error {
	return problem.Newf(problem.Unable, "try again in a moment", "the daemon is stopping")
}

// goneProblem is the problem for a state directory that was removed.
func goneProblem(err error) error {
	p := problem.Newf(problem.Unable, "restart the daemon to begin a new queue; running jobs go on, and their GPUs stay allocated",
		"%v while the daemon ran: it starts nothing any more, and ends after its running jobs", err)
	p.Err = err
	return p
}

// notWritten is the problem for a failed commit.
func notWritten(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, store.ErrRemoved) {
		return goneProblem(err)
	}
	if errors.Is(err, engine.ErrEnded) {
		return stopping()
	}
	hint := "the log says more; berth help back-up restores the last backup"
	switch {
	case errors.Is(err, store.ErrFull):
		hint = "free some disk space; berth then continues by itself"
	case errors.Is(err, store.ErrUnwritable):
		hint = "dmesg says what happened to the disk of the state directory; once it can be written again, berth continues by itself (berth help service)"
	}
	p := problem.Newf(problem.Unable, hint, "the change could not be saved: %v", err)
	p.Err = err
	return p
}
