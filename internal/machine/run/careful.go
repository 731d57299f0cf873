package run

import (
	"os"
	"time"

	"berth/internal/machine/keep"
)

// giveCarefully gives an order that needs more than the first protocol once
// the supervisor has said that it is of keep.ProtocolCareful. An older supervisor is
// dismissed, and its job never ran. The caller does not wait: a new supervisor
// takes a moment to greet.
func (s *supervisor) giveCarefully(l *link, frame []byte) {
	select {
	case <-s.greeted:
	case <-time.After(answerBudget):
	case <-s.set.quit:
		return // without an order it exits, and the next berth finds it empty
	}
	s.set.mu.Lock()
	if s.dead || s.phase != running || s.link != l {
		// Its goroutine finds out that the order did not arrive.
		s.set.mu.Unlock()
		return
	}
	if s.protocol >= keep.ProtocolCareful {
		s.send(frame)
		if s.stop != nil {
			s.send(s.stop) // it was too early before
		}
		s.set.mu.Unlock()
		return
	}
	select {
	case <-s.greeted:
		s.set.log.Warn("the supervisor program is too old; using berth itself as the supervisor", "program", s.set.command)
		if self, err := os.Executable(); err == nil {
			s.set.command = []string{self, keepWord}
		}
	default:
		s.set.log.Warn("a new supervisor does not answer", "token", s.token)
	}
	s.outdated = true
	s.set.mu.Unlock()
	s.reportNeverRan()
}
