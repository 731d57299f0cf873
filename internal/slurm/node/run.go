package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"berth/internal/job"
	"berth/internal/machine/run"
	"berth/internal/queue/engine"
	"berth/internal/slurm/handover"
)

// runJob is `berth __node DIR INDEX`. It returns the exit status of the job.
func runJob(dir string, index int, errs io.Writer) int {
	// From here on Slurm's TERM ends nothing before the job is stopped.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	n, err := load(dir, index, os.Environ(), errs)
	if err == nil {
		err = n.prepare(signals)
	}
	if err != nil {
		return n.refuse(err, errs)
	}
	defer n.close()
	guard, err := n.startGuard()
	if err == nil {
		n.began, n.kills = time.Now(), oomKills("/")
		err = handover.Begin(dir, index, n.begun())
	}
	defer guard.dismiss()
	if err != nil {
		// The start marker may be there although making it failed: the job counts as
		// begun, and nobody else will say that it never ran.
		if b, _ := handover.ReadBegun(n.dir, n.index); b != nil && !b.Taken && b.Dir == n.state && b.Slurm == n.slurmID() && b.At.Equal(n.began) {
			n.leave(handover.Record{Outcome: job.Launch, Detail: "it was not started: " + err.Error(), StartedAt: n.began, EndedAt: time.Now()})
		}
		return n.refuse(err, errs)
	}
	n.run(signals)
	return n.finish(signals)
}

// prepare opens everything before the job begins.
func (n *node) prepare(signals <-chan os.Signal) (err error) {
	if n.state, err = makePlace(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	var listener sync.WaitGroup
	var stopped error
	listener.Go(func() {
		select {
		case s := <-signals:
			stopped = fmt.Errorf("stopped by Slurm (%v) before the job began", s)
			cancel(stopped)
		case <-ctx.Done():
		}
	})
	if err = n.open(ctx); err == nil {
		err = n.warm()
	}
	cancel(nil)
	listener.Wait() // from now on signals are for the job
	if err == nil {
		err = stopped
	}
	if err != nil {
		n.close()
	}
	return err
}

// refuse says why the job does not run here. Nothing has begun.
func (n *node) refuse(err error, errs io.Writer) int {
	switch {
	case n == nil:
		fmt.Fprintln(errs, "berth:", err)
	case errors.Is(err, handover.ErrBegun):
		fmt.Fprintf(errs, "berth: job %s has begun elsewhere, or berth took it back\n", n.order.Job.ID)
		return 0
	default:
		n.say(err)
	}
	return 1
}

// run submits the job to its engine and returns when it has ended, or nothing more
// can be done for it.
func (n *node) run(signals <-chan os.Signal) {
	n.newEngine(0)
	n.queue.Engine.Outside(time.Now(), func(t *engine.Turn) { t.Queue().Submit([]*job.Job{only(&n.order, n.cards)}) })
	n.loop(func(ctx context.Context) {
		go n.heed(ctx, signals)
		go n.report(ctx)
		n.askAfter(ctx, startsWithin)
	})
}

// loop runs the engine, with what goes on beside it.
func (n *node) loop(beside func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	beside(ctx)
	if err := n.queue.Engine.Run(ctx, n.queue.Runner.Events(), n.over); err != nil && n.ended == nil {
		n.gaveUp = err
		n.kill()
	}
}

// askAfter has the engine look again, although nothing happens: a time is over.
func (n *node) askAfter(ctx context.Context, d time.Duration) {
	time.AfterFunc(d+10*time.Millisecond, func() { n.queue.Engine.Do(ctx, func(*engine.Turn) {}) })
}

// follow takes in what is on disk now.
func (n *node) follow(events []job.Event) {
	for _, ev := range events {
		if ev.Job == nil || ev.Job.ID != n.order.Job.ID {
			continue
		}
		switch ev.Kind {
		case job.EventStarted:
			n.begin(ev.Job)
		case job.EventEnded:
			n.ended = ev.Job
		}
	}
}

// begin remembers whose processes are the job's.
func (n *node) begin(j *job.Job) {
	n.token = j.Keep
	identity, _ := n.queue.Runner.Identity(j.Keep)
	if n.source != nil {
		n.source.begin(run.Holder{Key: j.ID, KeepPID: identity.KeepPID, Token: j.Keep, UID: j.UID})
	}
}

// over reports whether the loop can end: the job has ended and that is on disk, or
// nothing more can be done for it.
func (n *node) over(t *engine.Turn) bool {
	queued, running := t.Explain().Live()
	switch {
	case n.ended != nil:
		return true
	case running > 0 && n.stop.overdue(t.Now):
		n.gaveUp = errTooLate
		return true
	case queued > 0 && t.Now.Sub(n.began) > startsWithin:
		n.gaveUp = fmt.Errorf("not started within %s: %s", startsWithin, t.Explain().Why(n.order.Job.ID))
		return true
	case queued+running > 0:
		return false
	case n.overAt.IsZero():
		n.overAt = t.Now
		return false
	case t.Now.Sub(n.overAt) < writtenWithin:
		return false
	}
	t.Jobs().EachUnwritten(func(j *job.Job) { n.ended = j.Clone() })
	return true
}

// errTooLate ends the wait for a job that Slurm stops.
var errTooLate = errors.New("it did not end in time; Slurm kills what is left")

// killedWithin bounds how long the job may take to die when its engine is broken.
const killedWithin = 10 * time.Second

// kill ends a job without its engine.
func (n *node) kill() {
	if n.token == "" || n.queue.Runner.Stop(n.token, job.StopCancel, 0) != nil {
		return
	}
	late := time.After(killedWithin)
	for {
		select {
		case ev := <-n.queue.Runner.Events():
			if ev.Kind.Final() {
				return
			}
		case <-late:
			return
		}
	}
}
