package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"berth/internal/cli/render"
	"berth/internal/sched/sim"
	"berth/internal/text"
)

// replayAll replays the workload and shows its progress.
func replayAll(ctx context.Context, w *sim.Workload, set *settings, seeds int, p *progress) ([]sim.Replayed, error) {
	defer p.clear()
	// The garbage collector runs rarely: a replay keeps little and discards much, and
	// this saves a fifth of the time.
	const beside, perJob = 256 << 20, 4 << 10
	debug.SetMemoryLimit(beside + int64(len(w.Jobs))*perJob)
	debug.SetGCPercent(400)
	began := time.Now()
	replays, done := sim.Compare(w, set.policies, set.choices, seeds, sim.Watch{
		Elapsed: func() time.Duration { return time.Since(began) },
		Progress: func(policy string, over, all int) bool {
			p.show(policy, over, all)
			return ctx.Err() == nil
		},
	})
	if !done {
		return nil, context.Canceled
	}
	return replays, nil
}

// progress shows on a terminal how far a long replay is.
type progress struct {
	out    io.Writer // nil: no terminal
	now    func() time.Time
	shown  time.Time
	marked bool
}

const (
	progressAfter = 500 * time.Millisecond
	progressEvery = 100 * time.Millisecond
)

func newProgress(out io.Writer, now func() time.Time) *progress {
	p := &progress{now: now, shown: now().Add(progressAfter - progressEvery)}
	if file, ok := out.(*os.File); ok && render.IsTerminal(file) && os.Getenv("TERM") != "dumb" {
		p.out = out
	}
	return p
}

func (p *progress) show(policy string, over, all int) {
	if p.out == nil || p.now().Sub(p.shown) < progressEvery {
		return
	}
	p.shown, p.marked = p.now(), true
	fmt.Fprintf(p.out, "\r\x1b[Kreplaying (%s): %d %% of %s", policy, 100*over/max(all, 1), text.CountGrouped(all, "job"))
}

func (p *progress) clear() {
	if p.marked {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
