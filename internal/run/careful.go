package run

import (
	"errors"
	"fmt"
	"os"
	"time"

	"berth/internal/keep"
)

// ErrOldSupervisor is the answer to an order that the supervisor would not
// understand whole: the program beside berth is of an earlier version. The next
// one is berth itself.
var ErrOldSupervisor = errors.New("the supervisor is of an earlier version")

// ensure waits until the supervisor has said what it knows and lets it go if
// that is not enough. Only orders that ask for more than the first protocol
// had are held up by that. A dead one is for Go to tell of.
func (r *Runner) ensure(token string) error {
	r.mu.Lock()
	s := r.all[token]
	r.mu.Unlock()
	if s == nil {
		return fmt.Errorf("supervisor %s is not leased", token)
	}
	select {
	case <-s.greeted:
	case <-time.After(answerBudget):
	case <-r.quit:
		return ErrClosed
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.dead || s.phase != leased || s.protocol >= keep.Protocol {
		return nil
	}
	if self, err := os.Executable(); err == nil {
		r.command = []string{self, keepWord}
	}
	s.phase = over
	s.hangUp()
	return fmt.Errorf("supervisor %s: %w", token, ErrOldSupervisor)
}
