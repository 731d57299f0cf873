package run

import (
	"os"
	"time"

	"berth/internal/keep"
)

// giveCarefully gives an order that asks for more than the first protocol had,
// once the supervisor has said that it knows the second. One that does not is
// let go, and its job never ran. The caller is not held up: a fresh supervisor
// takes a moment to greet.
func (r *Runner) giveCarefully(s *supervisor, l *link, frame []byte) {
	select {
	case <-s.greeted:
	case <-time.After(answerBudget):
	case <-r.quit:
		return // without an order it exits, and the next berth finds it empty
	}
	r.mu.Lock()
	if s.dead || s.phase != running || s.link != l {
		// Its goroutine has found out, or is about to, that the order did not
		// get there.
		r.mu.Unlock()
		return
	}
	if s.protocol >= keep.Protocol {
		s.send(frame)
		if s.stop != nil {
			s.send(s.stop) // it was too early before
		}
		r.mu.Unlock()
		return
	}
	select {
	case <-s.greeted:
		r.log.Warn("the supervisor's program is of an earlier version; berth takes its place", "program", r.command)
		if self, err := os.Executable(); err == nil {
			r.command = []string{self, keepWord}
		}
	default:
		r.log.Warn("a new supervisor does not answer", "token", s.token)
	}
	s.outdated = true
	r.mu.Unlock()
	r.tellNeverRan(s)
}
