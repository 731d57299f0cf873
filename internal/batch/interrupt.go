package batch

import (
	"berth/internal/engine"

	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"berth/internal/problem"
	"berth/internal/text"
)

// errInterrupted is why an opening session is given up.
var errInterrupted = errors.New("interrupted before anything was started")

// unwindTime is what an interrupted opening gets to let go of what it holds.
const unwindTime = 500 * time.Millisecond

// begin opens the session and takes over what an earlier run left, beside an
// ear for signals: a file that is never written to its end or a driver that
// does not answer must not make berth deaf. Where something hangs that cannot
// be called off, it is abandoned; nothing of it is relied on.
func (s *session) begin(ctx context.Context) error {
	opening, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	opened := make(chan error, 1)
	go func() {
		err := s.open(opening)
		if err == nil {
			err = s.resume(opening)
		}
		opened <- err
	}()
	select {
	case err := <-opened:
		if err != nil || !s.signalled() {
			return err
		}
	case <-s.opt.Signals:
		cancel(errInterrupted)
		select {
		case <-opened:
		case <-time.After(unwindTime):
			s.abandoned = true
		}
	}
	return problem.Wrap(problem.Interrupted, "", errInterrupted)
}

// signalled is true if a signal came that nobody has obeyed yet.
func (s *session) signalled() bool {
	select {
	case <-s.opt.Signals:
		return true
	default:
		return false
	}
}

// listen stops the jobs on Ctrl-C or TERM, and does not wait for them the
// second time.
func (s *session) listen(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case sig := <-s.opt.Signals:
			s.engine.Do(ctx, func(t *engine.Turn) { s.interrupt(t, sig) })
		}
	}
}

func (s *session) interrupt(t *engine.Turn, sig os.Signal) {
	s.interrupted++
	_, running := t.Live()
	s.log.Info("interrupted", "signal", sig.String(), "running", running)
	if s.interrupted == 1 && running > 0 {
		s.say(fmt.Sprintf("stopping %s; they run again next time (Ctrl-C again: without waiting)", text.Count(running, "running job")))
	}
	s.asked = t.Now
	t.Interrupt(s.interrupted > 1)
}

// unansweredAfter is how long after its last chance a job that has not ended
// is talked about; a supervisor that was stopped by hand, or hangs in the
// kernel, may never answer.
const unansweredAfter = 5 * time.Second

// givenUp is true when the user asked twice and a job still has not ended. It
// is left to its supervisor, as it would be if berth were killed.
func (s *session) givenUp(t *engine.Turn) bool {
	patience := unansweredAfter
	var names []string
	for _, r := range t.Running() {
		names = append(names, label(r.Job))
		if s.interrupted == 1 {
			patience = max(patience, r.Job.Spec.Grace+unansweredAfter)
		}
	}
	if t.Now.Sub(s.asked) < patience {
		return false
	}
	who := strings.Join(names, ", ")
	if s.interrupted > 1 {
		s.say(fmt.Sprintf("WARN %s did not end; left to its supervisor, the next run takes it up", who))
		return true
	}
	if !s.talked {
		s.talked = true
		s.say(fmt.Sprintf("WARN %s has not ended; after Ctrl-C again it is left to its supervisor", who))
	}
	return false
}
