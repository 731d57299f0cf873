package run

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"
)

// supervisors are those of one queue, and what they report to.
type supervisors struct {
	cgroups *Cgroups
	maxIdle int // warm ones kept
	log     *slog.Logger
	events  chan Event
	quit    chan struct{}  // closed when berth closes
	group   sync.WaitGroup // one goroutine per supervisor, and its writer

	mu      sync.Mutex
	closed  bool
	command []string // how to start one
	all     map[string]*supervisor
	pool    []*supervisor
}

func (set *supervisors) emit(e Event) {
	select {
	case set.events <- e:
	case <-set.quit:
	}
}

func (set *supervisors) closing() bool {
	select {
	case <-set.quit:
		return true
	default:
		return false
	}
}

// pause waits, but only for a moment once berth is closing.
func (set *supervisors) pause(d time.Duration) {
	if set.closing() {
		time.Sleep(min(d, 5*time.Millisecond))
		return
	}
	select {
	case <-time.After(d):
	case <-set.quit:
	}
}

// leased is a supervisor that may be given an order. The mutex is held.
func (set *supervisors) leased(token string) (*supervisor, error) {
	if set.closed {
		return nil, errClosed
	}
	s := set.all[token]
	if s == nil || s.phase != leased {
		return nil, fmt.Errorf("supervisor %s is not leased", token)
	}
	return s, nil
}

// tell sends a frame about the job that a supervisor holds, if it still
// does.
func (set *supervisors) tell(token string, frame func(*supervisor) []byte) error {
	set.mu.Lock()
	defer set.mu.Unlock()
	s := set.all[token]
	if s == nil {
		return fmt.Errorf("no supervisor %s", token)
	}
	if s.phase != running || s.dead {
		return nil
	}
	if bytes := frame(s); bytes != nil {
		s.send(bytes)
	}
	return nil
}

// rest returns a supervisor to the pool, or dismisses it. The mutex is held.
func (set *supervisors) rest(s *supervisor) {
	switch {
	case s.dead:
		set.forget(s)
	// A supervisor of an earlier berth may be an old version.
	case s.adopted, s.outdated, len(set.pool) >= set.maxIdle, set.closed:
		s.phase = over
		s.hangUp()
	default:
		s.phase, s.stop, s.stopBy, s.empty = idle, nil, time.Time{}, false
		set.pool = append(set.pool, s)
	}
}

// forget removes a supervisor that is gone, and its directory. The mutex is
// held.
func (set *supervisors) forget(s *supervisor) {
	delete(set.all, s.token)
	set.unpool(s)
	set.cgroups.dropWalls(s.identity)
	if err := os.RemoveAll(string(s.dir)); err != nil {
		set.log.Warn("cannot remove a supervisor directory", "dir", s.dir, "error", err)
	}
}

func (set *supervisors) unpool(s *supervisor) {
	set.pool = slices.DeleteFunc(set.pool, func(p *supervisor) bool { return p == s })
}

// close hangs up on all and waits until those without a job are gone, unless that
// was done before.
func (set *supervisors) close() (first bool) {
	set.mu.Lock()
	if set.closed {
		set.mu.Unlock()
		return false
	}
	set.closed = true
	close(set.quit)
	for _, s := range set.all {
		s.hangUp()
	}
	set.mu.Unlock()
	set.group.Wait()
	close(set.events)
	for _, s := range set.all {
		if s.dead && s.empty {
			set.forget(s) // an empty directory carries no information
		}
	}
	return true
}
