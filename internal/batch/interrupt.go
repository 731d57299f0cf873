package batch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"berth/internal/engine"
	"berth/internal/problem"
	"berth/internal/text"
)

// errInterrupted ends a session that is still opening.
var errInterrupted = errors.New("interrupted before any job was started")

// unwindTime is how long an interrupted opening may take to clean up.
const unwindTime = 500 * time.Millisecond

// begin opens the session and resumes what an earlier run left, while it listens
// for signals: a pipe that never ends or a driver that does not answer must not
// block Ctrl-C. If something hangs and cannot be cancelled, it is abandoned.
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
	for {
		select {
		case err := <-opened:
			if err != nil || !s.signalled() {
				return err
			}
		case sig := <-s.opt.Signals:
			if s.hears(sig) {
				continue
			}
			cancel(errInterrupted)
			select {
			case <-opened:
			case <-time.After(unwindTime):
				s.abandoned = true
			}
		}
		return problem.Wrap(problem.Interrupted, "", errInterrupted)
	}
}

// hears remembers a terminal that was closed while the session opens.
func (s *session) hears(sig os.Signal) bool {
	s.hungUp = s.hungUp || sig == syscall.SIGHUP
	return sig == syscall.SIGHUP
}

// signalled reports whether a signal to stop is pending.
func (s *session) signalled() bool {
	for {
		select {
		case sig := <-s.opt.Signals:
			if !s.hears(sig) {
				return true
			}
		default:
			return false
		}
	}
}

// interrupt stops the jobs, and does not wait for them the second time.
func (s *session) interrupt(t *engine.Turn, sig os.Signal) {
	s.interrupted++
	running := t.Supervised()
	s.log.Info("interrupted", "signal", sig.String(), "running", running)
	if s.interrupted == 1 && running > 0 {
		s.say(fmt.Sprintf("stopping %s; the next run starts them again (Ctrl-C again: do not wait for them to end)", text.Count(running, "running job")))
	}
	if away := t.Remote().Count(); s.interrupted == 1 && away > 0 {
		s.say(fmt.Sprintf("%s with Slurm; run the same command to come back to them (berth cancel ends them then)", text.Count(away, "job")+" "+text.Verb(away, "stay")))
	}
	s.stoppedAt = t.Now
	t.Requests().Interrupt(s.interrupted > 1)
}

// unansweredAfter is how long after its grace period a job that has not ended is
// reported: its supervisor may be stopped, or hang in the kernel.
const unansweredAfter = 5 * time.Second

// givenUp reports whether the user interrupted twice and a job still has not
// ended. It is left to its supervisor, as if berth were killed.
func (s *session) givenUp(t *engine.Turn) bool {
	patience := unansweredAfter
	var names []string
	for _, r := range t.Running().List() {
		names = append(names, label(r.Job))
		if s.interrupted == 1 {
			patience = max(patience, r.Job.Spec.Grace+unansweredAfter)
		}
	}
	if t.Now.Sub(s.stoppedAt) < patience {
		return false
	}
	list := strings.Join(names, ", ")
	if s.interrupted > 1 {
		s.warn(fmt.Sprintf("%s did not end; left to its supervisor, and the next berth run adopts it", list))
		return true
	}
	if !s.warned {
		s.warned = true
		s.warn(fmt.Sprintf("%s has not ended; press Ctrl-C again to leave it to its supervisor", list))
	}
	return false
}
