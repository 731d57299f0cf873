package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"berth/internal/machine/gpu"
	"berth/internal/machine/run"
	"berth/internal/queue/fair"
	"berth/internal/queue/store"
)

// A reading of the cards usually takes well under a millisecond, and the round
// waits for it. The loop does not wait for a slow or hanging one.
const sampleWait = 20 * time.Millisecond

// sampleDeadline bounds one reading.
const sampleDeadline = 15 * time.Second

// Engine is one queue. Its state is accessible only through the Turn that it
// gives to one function at a time.
type Engine struct {
	turn    *Turn
	looping atomic.Bool
	over    context.Context // ends with the loop
	end     context.CancelFunc
	served  []int // the users of the requests since the last round
}

// requestTime is how long requests are served before the next round. A request
// that has begun is finished.
const requestTime = 5 * time.Millisecond

// door is the way in for requests.
type door = *fair.Door[func(*Turn)]

// ErrEnded means that the loop has ended and takes no more requests.
var ErrEnded = errors.New("the engine has ended")

// Do runs f in the loop, between two rounds, and waits for it. Of the users of
// several contexts, the one whose requests took the least time is next. If ctx or
// the loop ends first, f does not run, and Do returns why.
func (e *Engine) Do(ctx context.Context, f func(*Turn)) error {
	either, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.over, cancel)()
	done := make(chan struct{})
	taken := e.turn.door.Pass(either, func(t *Turn) { f(t); close(done) })
	switch {
	case taken:
		<-done
		return nil
	case e.over.Err() != nil:
		return ErrEnded
	}
	return ctx.Err()
}

// Change is Do for changes that must be on disk when it returns. If they could
// not be written, it returns why; once f has run it does not heed ctx.
func (e *Engine) Change(ctx context.Context, f func(*Turn)) error {
	written := make(chan error, 1)
	err := e.Do(ctx, func(t *Turn) {
		f(t)
		t.changes.Then(func(err error) { written <- err })
	})
	if err != nil {
		return err
	}
	select {
	case err = <-written:
	case <-e.over.Done():
		select {
		case err = <-written:
		default:
			err = ErrEnded
		}
	}
	return err
}

// Waiting counts the requests that wait for the loop.
func (e *Engine) Waiting() int { return e.turn.door.Waiting() }

// Outside runs f at once, before the loop starts or after it ended.
func (e *Engine) Outside(now time.Time, f func(*Turn)) { f(e.own(now)) }

// Step is one round, for tests and replays that drive the loop themselves.
func (e *Engine) Step(now time.Time) error { return e.own(now).round.step() }

// own is a turn while no loop is running.
func (e *Engine) own(now time.Time) *Turn {
	if e.looping.Load() {
		panic("bug: the engine belongs to its loop")
	}
	return e.at(now)
}

// Run is the loop. It ends when after, which is called after each round, says so,
// when ctx is done, or when the store is damaged. Running jobs continue in every case. While the store cannot
// be written, it answers, stops jobs, and tries again.
func (e *Engine) Run(ctx context.Context, events <-chan run.Event, after func(*Turn) bool) error {
	e.looping.Store(true)
	defer e.looping.Store(false)
	defer e.end()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	eyes := newEyes(ctx, e.turn.cards.Source)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			e.saveLast()
			return ctx.Err()
		case ev := <-events:
			e.at(time.Now()).observer.absorb(ev)
		case <-e.turn.door.Knock():
			e.serve()
		case look := <-eyes.looks:
			eyes.busy = false
			e.at(time.Now()).observer.observe(look.sample, look.err)
		case <-timer.C:
		}
		e.drain(events)
		if err := e.rounds(ctx, eyes); err != nil {
			return err
		}
		if after != nil && after(e.at(time.Now())) {
			return nil
		}
		timer.Reset(e.at(time.Now()).observer.wait(eyes.busy))
	}
}

// saveLast writes what was postponed. Nothing starts any more; if it cannot be
// written, the next berth does without it.
func (e *Engine) saveLast() {
	e.turn.stopping, e.turn.ending = true, true
	if err := e.at(time.Now()).round.step(); err != nil {
		e.turn.cfg.Log.Warn("cannot save the last changes", "err", err)
	}
}

// rounds is one round, and a second at once if the first admitted jobs: there
// may be room for them.
func (e *Engine) rounds(ctx context.Context, eyes *eyes) error {
	for {
		e.see(ctx, eyes)
		e.turn.admitted = false
		begun := time.Now()
		err := e.at(begun).round.step()
		e.charge(time.Since(begun))
		if err != nil && !store.MayPass(err) {
			return err
		}
		if !e.turn.admitted {
			return nil
		}
	}
}

// drain takes in what has already arrived, so that one commit covers it. Requests
// that never stop do not keep the next round from coming.
func (e *Engine) drain(events <-chan run.Event) {
	for range 1024 {
		select {
		case ev := <-events:
			e.at(time.Now()).observer.absorb(ev)
			continue
		default:
		}
		break
	}
	for begun := time.Now(); time.Since(begun) < requestTime && e.serve(); {
	}
}

// serve carries out the next request, if any.
func (e *Engine) serve() bool {
	f, user, ok := e.turn.door.Take()
	if ok {
		begun := time.Now()
		f(e.at(begun))
		e.turn.door.Charge(user, time.Since(begun))
		e.served = append(e.served, user)
	}
	return ok
}

// charge divides what a round took among the users whose requests it carried out:
// it wrote their changes.
func (e *Engine) charge(took time.Duration) {
	for _, user := range e.served {
		e.turn.door.Charge(user, took/time.Duration(len(e.served)))
	}
	e.served = e.served[:0]
}

// see gets a new sample if the next decision needs one. A fast source is read
// right here; a slow one, or one that does not answer at once, in a goroutine.
func (e *Engine) see(ctx context.Context, eyes *eyes) {
	if eyes.busy || !e.at(time.Now()).observer.needsSample() {
		return
	}
	if e.turn.cards.Source.Cheap() {
		glance, cancel := context.WithTimeout(ctx, sampleWait)
		sample, err := e.turn.cards.Source.Sample(glance)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			e.at(time.Now()).observer.observe(sample, err)
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
		e.at(time.Now()).observer.observe(look.sample, look.err)
	case <-timeout.C:
	}
}

// eyes reads the cards in a goroutine, one reading at a time.
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
