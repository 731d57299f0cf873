package daemon

import (
	"context"
	"fmt"
	"time"

	"berth/internal/api"
	"berth/internal/machine/gpu"
	"berth/internal/queue/engine"
	"berth/internal/sched"
)

// How long a reading may be shown, how long a request waits for a newer one, to
// show it or to decide on it, and how long after a failed reading another try is
// pointless.
const (
	shownFor   = 2 * time.Second
	glanceTime = 50 * time.Millisecond
	lookTime   = 2 * time.Second
	lookStep   = 5 * time.Millisecond
	failedFor  = 10 * time.Second
)

// shownLately reports a reading that is recent enough to show, and not from
// before a job freed its memory.
func shownLately(t *engine.Turn) bool { return t.Shows(shownFor) }

// measureAgain has the cards read now, for a decision about what jobs use.
func (h *cards) measureAgain(ctx context.Context) error {
	asked := time.Now()
	return h.lookAgain(ctx, func(t *engine.Turn) bool {
		at, _ := t.Cards().ReadAt()
		return at.After(asked)
	}, lookTime)
}

// lookAgain has the cards read if they were not read recently: an idle daemon
// does not poll them. It waits at most that long, but does not wait for a
// released driver, nor if a reading has been pending for that long already.
func (h *cards) lookAgain(ctx context.Context, lately func(t *engine.Turn) bool, patience time.Duration) error {
	step := time.NewTicker(lookStep)
	defer step.Stop()
	var asked time.Time
	for begun := time.Now(); ; {
		var done bool
		err := h.svc.Do(ctx, func(t *engine.Turn) {
			done = lately(t)
			if done {
				return
			}
			if asked.IsZero() && t.Resting() {
				patience = max(patience, lookTime)
			}
			failed, silent := h.looks.state(t.Cards(), t.Now, patience)
			if asked.IsZero() {
				asked = t.Now
				h.looks.ask(t.Cards(), t.Now)
				// A failure long ago says nothing about now.
				done = silent || !failed.IsZero() && t.Now.Sub(failed) < failedFor
				return
			}
			done = silent || failed.After(asked)
		})
		if err != nil || done || time.Since(begun) > patience {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-step.C:
		}
	}
}

// looks tracks the reading in progress. Only for the engine's goroutine.
type looks struct {
	since time.Time // when the pending reading was requested; zero: none is pending
}

// seer is the part of the engine that looks needs.
type seer interface {
	Look()
	ReadAt() (at time.Time, trouble error)
	FailedAt() time.Time
}

func (l *looks) ask(e seer, now time.Time) {
	l.forgetAnswered(e)
	if l.since.IsZero() {
		l.since = now
	}
	e.Look()
}

// forgetAnswered forgets a reading that has arrived or failed.
func (l *looks) forgetAnswered(e seer) {
	at, _ := e.ReadAt()
	if at.After(l.since) || e.FailedAt().After(l.since) {
		l.since = time.Time{}
	}
}

// state is when the last reading failed (zero if it did not), and whether one
// has been pending for longer than patience.
func (l *looks) state(e seer, now time.Time, patience time.Duration) (failed time.Time, silent bool) {
	l.forgetAnswered(e)
	if _, trouble := e.ReadAt(); trouble != nil {
		failed = e.FailedAt()
	}
	return failed, !l.since.IsZero() && now.Sub(l.since) > patience
}

// showAge marks what is shown of a card as stale, with the reason, if it is.
func (h *cards) showAge(t *engine.Turn, g *api.GPU, card sched.Card, at time.Time, trouble error, busy bool) {
	now := t.Now
	_, silent := h.looks.state(t.Cards(), now, glanceTime)
	if until := h.letGoUntil(now); !until.IsZero() {
		g.LetGoUntil = &until
	}
	switch {
	case g.LetGoUntil != nil:
		g.StaleReason = "the driver is released until " + g.LetGoUntil.Format("15:04:05")
	case trouble != nil:
		g.StaleReason = trouble.Error()
	case silent && now.Sub(at) > shownFor:
		g.StaleReason = fmt.Sprintf("the driver does not answer; last reading %v ago", now.Sub(at).Round(time.Second))
	case h.tooOld(now, at, busy):
		g.StaleReason = "there is no newer reading"
	case card.Stale:
		g.StaleReason = card.HealthReason
	default:
		return
	}
	g.Stale = true
}

// tooOld reports a reading that should have been renewed. An idle daemon does
// not poll the cards, and shows the last reading.
func (h *cards) tooOld(now, at time.Time, busy bool) bool {
	return at.IsZero() || busy && now.Sub(at) > 10*max(h.svc.Config().Poll, time.Second)
}

// letGoUntil is until when the driver is released; zero: it is not.
func (h *cards) letGoUntil(now time.Time) time.Time {
	releaser, ok := h.svc.queue.Source.(gpu.Releaser)
	if !ok {
		return time.Time{}
	}
	if until := releaser.Released(); until.After(now) {
		return until
	}
	return time.Time{}
}
