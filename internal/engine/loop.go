package engine

import (
	"context"
	"errors"
	"time"

	"berth/internal/gpu"
	"berth/internal/run"
	"berth/internal/store"
)

// A look at the cards usually takes well under a millisecond; then the round
// waits for it. A slow or hanging one comes in when it comes in, and the loop
// goes on meanwhile.
const sampleWait = 20 * time.Millisecond

// sampleDeadline bounds one look.
const sampleDeadline = 15 * time.Second

// Do runs f in the engine's goroutine, before the next round.
func (e *Engine) Do(ctx context.Context, f func()) {
	select {
	case e.requests <- f:
	case <-ctx.Done():
	}
}

// Run is the loop. It ends when After says so, when ctx is done, or when the
// store is broken; in every case running jobs are left as they are.
func (e *Engine) Run(ctx context.Context, events <-chan run.Event) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	eyes := newEyes(ctx, e.source)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			e.leave()
			return ctx.Err()
		case ev := <-events:
			e.Absorb(time.Now(), ev)
		case f := <-e.requests:
			f()
		case look := <-eyes.looks:
			eyes.busy = false
			e.Observe(time.Now(), look.sample, look.err)
		case <-timer.C:
		}
		e.drain(events)
		if err := e.rounds(ctx, eyes); err != nil {
			return err
		}
		if e.cfg.After != nil && e.cfg.After() {
			return nil
		}
		timer.Reset(e.wait(time.Now(), eyes.busy))
	}
}

// leave writes down what was put off. Nothing starts any more; where it cannot
// be written, the next berth does without.
func (e *Engine) leave() {
	e.stopping, e.leaving = true, true
	if err := e.Step(time.Now()); err != nil {
		e.cfg.Log.Warn("last round", "err", err)
	}
}

// rounds is one round, and a second at once where the first let jobs in: they
// may find room.
func (e *Engine) rounds(ctx context.Context, eyes *eyes) error {
	for {
		e.look(ctx, eyes)
		e.admitted = false
		if err := e.Step(time.Now()); err != nil && !errors.Is(err, store.ErrFull) {
			return err
		}
		if !e.admitted {
			return nil
		}
	}
}

// drain takes in everything that is already there, so that one commit serves
// all of it.
func (e *Engine) drain(events <-chan run.Event) {
	for range 1024 {
		select {
		case ev := <-events:
			e.Absorb(time.Now(), ev)
		case f := <-e.requests:
			f()
		default:
			return
		}
	}
}

// wait is how long nothing can become due.
func (e *Engine) wait(now time.Time, looking bool) time.Duration {
	wait := time.Hour
	until := func(t time.Time) { wait = min(wait, max(t.Sub(now), time.Millisecond)) }
	if !looking {
		until(e.sampleDue())
	}
	if undecided := e.moved && e.queue.Len() > 0 && !e.stopping; e.commitErr == nil && (undecided || len(e.review) > 0 || !e.Written()) {
		until(now)
	}
	for _, at := range []time.Time{e.gates.next(), e.urgeAt(), e.decideAt()} {
		if !at.IsZero() {
			until(at)
		}
	}
	if e.commitErr != nil || len(e.warned) > 0 || len(e.strangers) > 0 {
		until(now.Add(e.cfg.Poll))
	}
	if len(e.lazyDirty) > 0 {
		until(e.lazySince.Add(lazyDelay))
	}
	if !e.usageSince.IsZero() {
		until(e.usageSince.Add(usageDelay))
	}
	return wait
}

// look gets a fresh sample if the next decision wants one. Where a look costs
// next to nothing it is taken here and now; one that does not come back at
// once, or any other, is left to a goroutine.
func (e *Engine) look(ctx context.Context, eyes *eyes) {
	if eyes.busy || !e.NeedsSample(time.Now()) {
		return
	}
	if e.source.Cheap() {
		glance, cancel := context.WithTimeout(ctx, sampleWait)
		sample, err := e.source.Sample(glance)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			e.Observe(time.Now(), sample, err)
			return
		}
	}
	eyes.busy = true
	eyes.wanted <- struct{}{}
	timeout := time.NewTimer(sampleWait)
	defer timeout.Stop()
	select {
	case look := <-eyes.looks:
		eyes.busy = false
		e.Observe(time.Now(), look.sample, look.err)
	case <-timeout.C:
	}
}

// eyes looks at the cards in a goroutine of its own, one look at a time.
type eyes struct {
	wanted chan struct{}
	looks  chan lookResult
	busy   bool // owned by the loop
}

type lookResult struct {
	sample gpu.Sample
	err    error
}

func newEyes(ctx context.Context, source gpu.Source) *eyes {
	e := &eyes{wanted: make(chan struct{}, 1), looks: make(chan lookResult, 1)}
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-e.wanted:
			}
			bounded, cancel := context.WithTimeout(ctx, sampleDeadline)
			sample, err := source.Sample(bounded)
			cancel()
			e.looks <- lookResult{sample, err}
		}
	}()
	return e
}
