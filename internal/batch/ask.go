package batch

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"berth/internal/engine"
	"berth/internal/job"
	"berth/internal/text"
)

// DefaultAskAfter is how long a job must have run before Ctrl-C on a terminal
// asks.
const DefaultAskAfter = 10 * time.Minute

// listen obeys signals and keys. Ctrl-C and TERM stop the jobs; a second one
// does not wait for them. On a terminal, Ctrl-C asks first if that would lose
// long work, d detaches, and so does a terminal that is closed.
func (s *session) listen(ctx context.Context) {
	if s.hungUp {
		s.hangUp(ctx)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case sig := <-s.opt.Signals:
			s.obey(ctx, sig)
		case key := <-s.opt.Keys:
			s.press(ctx, key)
		}
	}
}

func (s *session) obey(ctx context.Context, sig os.Signal) {
	s.halt.note(sig)
	switch {
	case sig == syscall.SIGHUP:
		s.hangUp(ctx)
	case sig == os.Interrupt && s.asks(ctx):
	default:
		s.asked = false
		s.engine.Do(ctx, func(t *engine.Turn) { s.interrupt(t, sig) })
	}
}

// hangUp leaves the queue: to a berth in the background, or to the one in the
// foreground that asked for it.
func (s *session) hangUp(ctx context.Context) {
	if s.opt.Background != nil {
		s.engine.Do(ctx, s.leave)
		return
	}
	s.detach(ctx)
}

// asks asks whether to stop the jobs, unless the question is open already, or
// nothing much would be lost.
func (s *session) asks(ctx context.Context) bool {
	if s.opt.Keys == nil || s.asked {
		return false
	}
	question := make(chan string, 1)
	s.engine.Do(ctx, func(t *engine.Turn) {
		words := ""
		if s.interrupted == 0 {
			begun := t.Parking().List() // their work would be lost too
			for _, r := range t.Running().List() {
				begun = append(begun, r.Job)
			}
			words = stopQuestion(begun, t.Now, s.opt.AskAfter)
		}
		if words != "" {
			s.ask(words)
		}
		question <- words
	})
	select {
	case words := <-question:
		s.asked = words != ""
	case <-ctx.Done():
	}
	return s.asked
}

// stopQuestion is the question before jobs are stopped that have run for long;
// empty: none has.
func stopQuestion(begun []*job.Job, now time.Time, after time.Duration) string {
	long, longest := 0, time.Duration(0)
	for _, j := range begun {
		if ran := j.Worked(now); ran >= after {
			long, longest = long+1, max(longest, ran)
		}
	}
	if long == 0 {
		return ""
	}
	return fmt.Sprintf("%s %s run for up to %s: stop %s? [y/N/d=detach]", text.Count(long, "job"), text.Verb(long, "have"),
		text.Span(longest), map[bool]string{true: "it", false: "them"}[long == 1])
}

// press obeys a key.
func (s *session) press(ctx context.Context, key byte) {
	open := s.asked
	s.asked = false
	switch {
	case key == 'd' || key == 'D':
		s.detach(ctx)
	case !open:
	case key == 'y' || key == 'Y':
		s.engine.Do(ctx, func(t *engine.Turn) { s.interrupt(t, os.Interrupt) })
	default:
		s.engine.Do(ctx, func(*engine.Turn) { s.ask("no: the jobs go on") })
	}
}

// ask prints a question, or the answer to one, even where little else is.
func (s *session) ask(words string) {
	s.screen.print(s.narrator.wrap(text.Bold, stamp(time.Now(), words))...)
}
