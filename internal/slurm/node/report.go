package node

import (
	"context"
	"maps"
	"math"
	"syscall"
	"time"

	"berth/internal/queue/engine"
	"berth/internal/slurm/handover"
)

const (
	// reportEvery is how often a change of what the job uses is reported, and
	// sameEvery how often the same is.
	reportEvery = 5 * time.Second
	sameEvery   = time.Minute
)

// report tells what the job uses while it runs, and looks whether berth wants it
// stopped. A report that cannot be written is left out: the next one has more.
func (n *node) report(ctx context.Context) {
	ticker := time.NewTicker(reportEvery)
	defer ticker.Stop()
	var last handover.Now
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if at, _ := n.stop.when(); at.IsZero() && handover.Stopped(n.dir, n.index) {
			n.stop.request(syscall.SIGTERM)
			n.halt(ctx)
		}
		now, runs := n.uses(ctx)
		if !runs || !differs(last, now) {
			continue
		}
		if handover.Report(n.dir, n.index, now) == nil {
			last = now
		}
	}
}

// uses is what the job uses now.
func (n *node) uses(ctx context.Context) (now handover.Now, runs bool) {
	err := n.queue.Engine.Do(ctx, func(t *engine.Turn) {
		for _, r := range t.Running().List() {
			j := t.Running().Copy(r.Job)
			now, runs = handover.Now{At: t.Now, NowMiB: r.CardMiB, PeakMiB: maps.Clone(j.PeakMiB), AvgUtil: j.AvgUtil}, true
		}
	})
	return now, runs && err == nil
}

// differs reports whether there is something new, or the last report is old.
func differs(last, now handover.Now) bool {
	if now.At.Sub(last.At) >= sameEvery || !maps.Equal(last.NowMiB, now.NowMiB) || !maps.Equal(last.PeakMiB, now.PeakMiB) {
		return true
	}
	if last.AvgUtil == nil || now.AvgUtil == nil {
		return last.AvgUtil != now.AvgUtil
	}
	return math.Abs(*last.AvgUtil-*now.AvgUtil) >= 1
}
