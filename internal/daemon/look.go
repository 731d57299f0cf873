package daemon

import (
	"context"
	"fmt"
	"time"

	"berth/internal/api"
	"berth/internal/engine"
	"berth/internal/gpu"
	"berth/internal/sched"
)

// How long a reading is good enough to be shown, how long a newer one is
// waited for by who only wants to see it and by who decides on it, and how
// long after a failed one the next is not expected to do better.
const (
	shownFor   = 2 * time.Second
	glanceTime = 50 * time.Millisecond
	lookTime   = 2 * time.Second
	lookStep   = 5 * time.Millisecond
	failedFor  = 10 * time.Second
)

// shownLately is true of a reading that is new enough to be shown, and not
// from before a job gave its memory back.
func shownLately(t *engine.Turn) bool { return t.Shows(shownFor) }

// lookAgain has the cards read where nobody did lately: an idle daemon leaves
// them alone. It waits no longer than that, but for a driver that was let go
// of, and not at all where a look has been under way for as long.
func (d *Daemon) lookAgain(ctx context.Context, lately func(t *engine.Turn) bool, patience time.Duration) error {
	step := time.NewTicker(lookStep)
	defer step.Stop()
	var asked time.Time
	for begun := time.Now(); ; {
		var done bool
		err := d.do(ctx, func(t *engine.Turn) {
			done = lately(t)
			if done {
				return
			}
			if asked.IsZero() && t.Resting() {
				patience = max(patience, lookTime)
			}
			failed, silent := d.looks.state(t, t.Now, patience)
			if asked.IsZero() {
				asked = t.Now
				d.looks.ask(t, t.Now)
				// One that failed long ago says nothing about now.
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

// looks is which look at the cards is under way; the engine's goroutine's.
type looks struct {
	since time.Time // when the one was asked for that has not come in; zero: none is
}

// seer is what looks needs of the engine.
type seer interface {
	Look()
	ReadAt() (at time.Time, trouble error)
	FailedAt() time.Time
}

func (l *looks) ask(e seer, now time.Time) {
	l.settle(e)
	if l.since.IsZero() {
		l.since = now
	}
	e.Look()
}

// settle forgets a look that has come in or failed since.
func (l *looks) settle(e seer) {
	at, _ := e.ReadAt()
	if at.After(l.since) || e.FailedAt().After(l.since) {
		l.since = time.Time{}
	}
}

// state is when the last look failed, the zero time if it did not, and whether
// one has been under way for longer than that.
func (l *looks) state(e seer, now time.Time, patience time.Duration) (failed time.Time, silent bool) {
	l.settle(e)
	if _, trouble := e.ReadAt(); trouble != nil {
		failed = e.FailedAt()
	}
	return failed, !l.since.IsZero() && now.Sub(l.since) > patience
}

// showAge says whether what is shown of a card is how it is, and if not, why.
func (d *Daemon) showAge(t *engine.Turn, g *api.GPU, card sched.Card, at time.Time, trouble error, busy bool) {
	now := t.Now
	_, silent := d.looks.state(t, now, glanceTime)
	if until := d.letGoUntil(now); !until.IsZero() {
		g.LetGoUntil = &until
	}
	switch {
	case g.LetGoUntil != nil:
		g.StaleReason = "the driver is let go of until " + g.LetGoUntil.Format("15:04:05") + ", as asked"
	case trouble != nil:
		g.StaleReason = trouble.Error()
	case silent && now.Sub(at) > shownFor:
		g.StaleReason = fmt.Sprintf("the driver has not answered; last read %v ago", now.Sub(at).Round(time.Second))
	case d.tooOld(now, at, busy):
		g.StaleReason = "there is no newer reading"
	case card.Stale:
		g.StaleReason = card.HealthReason
	default:
		return
	}
	g.Stale = true
}

// tooOld is true of a reading that should have been renewed. With nothing to
// do the cards are left alone, and what was read last is shown.
func (d *Daemon) tooOld(now, at time.Time, busy bool) bool {
	return at.IsZero() || busy && now.Sub(at) > 10*max(d.config().Poll, time.Second)
}

// letGoUntil is how long the driver is let go of; the zero time: it is not.
func (d *Daemon) letGoUntil(now time.Time) time.Time {
	releaser, ok := d.machine.Source.(gpu.Releaser)
	if !ok {
		return time.Time{}
	}
	if until := releaser.Released(); until.After(now) {
		return until
	}
	return time.Time{}
}
