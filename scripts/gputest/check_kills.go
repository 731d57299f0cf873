package main

import (
	"context"
	"fmt"
	"time"

	"berth/internal/job"
)

// killInKernel: a job that hangs in a kernel dies with its supervisor; the GPU
// has to become free and be allocated again.
func killInKernel(ctx context.Context, t *trial) {
	size := t.slice(0.1, 4000)
	d, id, used := t.holding(ctx, program{with: t.bare(), mib: size, hold: time.Minute, endless: !t.Sim}, vram(size+1024))
	d.killSupervisor(ctx, id)
	t.memoryBack(ctx, used)
	began := time.Now()
	next := must(d.run(ctx, program{with: t.bare(), mib: 512, hold: 200 * time.Millisecond}, vram(2048), "--name", "next"))
	must(d.allWell(ctx, next))
	t.seen("the next job was done %.1f s later", time.Since(began).Seconds())
	need(pollFor(ctx, 35*time.Second, "the GPU to be ok again", func() (bool, error) {
		c, err := d.card(ctx)
		return err == nil && c.Health == "ok" && !c.Stale && c.ForeignMiB < 64+used, nil
	}))
}

// holding is a daemon on this run's GPU with a job that holds its memory there, and
// the memory that was in use before.
func (t *trial) holding(ctx context.Context, p program, flags ...string) (d *daemon, id string, before int64) {
	d = must(t.onCard(ctx))
	if !t.Sim {
		before = must(t.smiUsed(ctx))
	}
	id = must(d.run(ctx, p, flags...))
	need(d.ready(ctx, id))
	return d, id, before
}

// memoryBack waits until the GPU is as empty as before.
func (t *trial) memoryBack(ctx context.Context, before int64) {
	if t.Sim {
		return
	}
	began := time.Now()
	now := int64(0)
	err := pollFor(ctx, 30*time.Second, "the memory to come back", func() (bool, error) {
		var err error
		now, err = t.smiUsed(ctx)
		return now <= before+64, err
	})
	if err != nil {
		need(fmt.Errorf("%w: %d MiB in use, %d before", err, now, before))
	}
	t.seen("memory back at %d MiB (%d before) after %.1f s", now, before, time.Since(began).Seconds())
}

// daemonKill: two jobs with memory on the GPU; the daemon is killed and
// restarted.
func daemonKill(ctx context.Context, t *trial) {
	d := must(t.onCard(ctx))
	size := t.slice(0.1, 4000)
	const hold = 8 * time.Second
	well := must(d.run(ctx, program{with: t.usual(), mib: size, hold: hold, compute: true}, vram(size+1500), "--name", "well"))
	seven := must(d.run(ctx, program{with: t.bare(), mib: size / 2, hold: hold, exit: 7}, vram(size), "--name", "seven"))
	need(d.ready(ctx, well, seven))
	before := must(d.peaks(ctx, map[string]int64{well: size, seven: size / 2}, well, seven))
	d.kill()
	began := time.Now()
	needTo("start the daemon again", d.start(ctx))
	t.seen("killed and back after %.2f s", time.Since(began).Seconds())
	for _, id := range []string{well, seven} {
		v := must(d.job(ctx, id))
		t.expect(v.State == job.Running && v.Attempt == 1, "after the restart job %s is %s, attempt %d", id, v.State, v.Attempt)
	}
	ends := must(d.ended(ctx, well, seven))
	for i, want := range []string{"ok", "exit:7"} {
		peak := ends[i].PeakVRAMMiB[fmt.Sprint(d.index())]
		t.expect(outcome(ends[i]) == want, "it should be %s: %s", want, d.explain(ctx, ends[i]))
		t.expect(peak >= before[i] && peak > 0, "job %s: peak %d MiB, but %d before the daemon was killed", ends[i].ID, peak, before[i])
		t.seen("%s: %s, peak %d MiB (%d before)", ends[i].Name, outcome(ends[i]), peak, before[i])
	}
}

// index is the number of this run's card.
func (d *daemon) index() int {
	if d.t.Sim {
		return 0
	}
	return d.t.Card.Index
}

// peaks are the peaks of each job so far, once they reach what the job
// allocated.
func (d *daemon) peaks(ctx context.Context, took map[string]int64, ids ...string) ([]int64, error) {
	peaks := make([]int64, len(ids))
	return peaks, pollFor(ctx, 10*time.Second, "the jobs' memory to be measured", func() (bool, error) {
		c, err := d.card(ctx)
		if err != nil {
			return false, err
		}
		measured := true
		for i, id := range ids {
			_, peaks[i] = c.of(id)
			measured = measured && peaks[i] >= took[id]
		}
		return measured, nil
	})
}
