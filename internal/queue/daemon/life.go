package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"berth/internal/api"
	"berth/internal/machine/site"
	"berth/internal/queue/engine"
	"berth/internal/queue/messages"
	"berth/internal/queue/store"
)

// life decides when a daemon ends.
type life struct {
	svc      *service
	opt      *Options
	admin    *admin
	server   *api.Server
	wait     *sync.WaitGroup // for what it started
	messages *messages.Messages
	started  time.Time
	lastTold atomic.Int64  // time of the last event, in nanoseconds
	calm     chan struct{} // an own queue has nothing to do, or one of its callers left
	gone     error         // why its store is not its own any more; only for the engine's goroutine
	parting  bool          // its jobs are being stopped; only for the engine's goroutine
}

// hear handles signals. It does nothing else, so that a daemon whose loop hangs
// can still be stopped.
func (l *life) hear(ctx context.Context, stop context.CancelCauseFunc) {
	for told := 0; ; {
		select {
		case <-ctx.Done():
			return
		case sig := <-l.opt.Signals:
			if sig == syscall.SIGHUP {
				l.wait.Go(func() { _, _ = l.admin.reload(ctx) }) // the log says what came of it
				continue
			}
			l.svc.queue.Log.Info("stopping", "signal", sig)
			if told++; l.opt.EndJobs && told <= 2 {
				again := told > 1
				l.wait.Go(func() { l.endJobs(ctx, again) })
				continue
			}
			stop(errStopped)
			return
		}
	}
}

// endJobs stops the running jobs, and then the daemon. A second signal shortens
// the wait; after a third, jobs that have not ended are left to their
// supervisors.
func (l *life) endJobs(ctx context.Context, immediately bool) {
	l.svc.queue.Engine.Do(ctx, func(t *engine.Turn) {
		l.parting = true
		t.Requests().Interrupt(immediately)
	})
}

// parted reports that there is nothing left to wait for.
func (l *life) parted(t *engine.Turn) bool {
	if l.svc.own != nil {
		if l.svc.own.After(t); t.Jobs().Size() == 0 && t.Written() {
			wake(l.calm)
		}
	}
	if err := t.Lost(); err != nil {
		l.gone = err
		return t.Supervised() == 0 || errors.Is(err, store.ErrTaken)
	}
	if !l.parting || !t.Written() {
		return false
	}
	return t.Supervised() == 0
}

// attend notifies the watchdog, and ends a daemon that has been idle for long
// enough.
func (l *life) attend(ctx context.Context, stop context.CancelCauseFunc) {
	look := time.NewTicker(idleLook)
	defer look.Stop()
	var dog <-chan time.Time
	if interval := site.WatchdogInterval(); interval > 0 {
		ticker := time.NewTicker(interval / 2)
		defer ticker.Stop()
		dog = ticker.C
	}
	var lost error // why the store was gone at the last look
	for {
		select {
		case <-ctx.Done():
			return
		case <-dog:
			// Notify only if the loop still turns.
			if l.svc.Do(ctx, func(t *engine.Turn) {}) == nil {
				_ = site.Notify("WATCHDOG=1")
			}
		case <-look.C:
			lost = l.look(ctx, lost)
			if l.idleFor(ctx) {
				l.svc.queue.Log.Info("stopping after being idle")
				stop(errStopped)
				return
			}
		}
	}
}

// look looks whether the store is still there. It tells the one who started the
// daemon by hand, because the log is gone with the store.
func (l *life) look(ctx context.Context, was error) (lost error) {
	err := l.svc.Do(ctx, func(t *engine.Turn) { lost = t.Present() })
	if err == nil && lost != nil && was == nil && l.opt.Out != nil {
		fmt.Fprintf(l.opt.Out, "berth: %v\n", goneProblem(lost))
	}
	return lost
}

// idleFor reports whether the daemon has been idle for as long as configured.
// From then on it accepts no jobs: they would wait for the next daemon.
func (l *life) idleFor(ctx context.Context) bool {
	limit := l.svc.Config().IdleExit
	if limit <= 0 || l.server.Active() > 0 {
		return false
	}
	for _, last := range []time.Time{l.started, l.server.LastActivity(), time.Unix(0, l.lastTold.Load())} {
		if time.Since(last) < limit {
			return false
		}
	}
	retired := false
	err := l.svc.Do(ctx, func(t *engine.Turn) { retired = t.Retire() })
	return err == nil && retired
}

// untilDrained ends an own queue whose jobs have ended and which nobody follows. One
// who is about to follow it then is told that it stops, and starts another.
func (l *life) untilDrained(ctx context.Context, stop context.CancelCauseFunc) {
	left, alone := l.opt.Left, false
	again := time.NewTimer(returnTime)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-left:
			left, alone = nil, true
		case <-l.calm:
		case <-again.C:
		}
		if l.server.Active() > 0 {
			continue // the end of each is heard
		}
		last := l.server.LastActivity()
		if last.Before(l.started) {
			last = l.started
		}
		if wait := returnTime - time.Since(last); wait > 0 && !alone {
			again.Reset(wait)
			continue
		}
		drained := false
		if err := l.svc.Do(ctx, func(t *engine.Turn) { drained = t.Settings().Closed() && alone || t.Retire() }); err == nil && drained {
			l.svc.queue.Log.Info("drained, and nobody follows")
			l.tellLast()
			stop(errStopped)
			return
		}
		again.Reset(returnTime)
	}
}

// returnTime is how long an own queue waits for those who lost their connection, while
// the run that started it is there.
const returnTime = 5 * time.Second

// tellLast sends what there is to tell when an own queue ends.
func (l *life) tellLast() {
	ctx, cancel := context.WithTimeout(context.Background(), tellLastTime)
	defer cancel()
	if err := l.messages.Hurry(ctx); err != nil {
		l.svc.queue.Log.Warn("messages wait for the next run", "err", err)
	}
}

// tellLastTime is how long an own queue stays for its messages. The next run of the
// queue sends what is left.
const tellLastTime = 15 * time.Second

// errStopped is the cause when a daemon was told to stop.
var errStopped = errors.New("told to stop")

// wake wakes the receiver, if there is one and it was not woken already.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

const (
	shutdownTime = 5 * time.Second
	idleLook     = time.Second
)
