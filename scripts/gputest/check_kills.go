package main

import (
	"context"
	"fmt"
	"time"

	"berth/internal/job"
)

// killInKernel: a job that hangs in a kernel dies with its supervisor; the GPU
// has to become free and be allocated again.
func killInKernel(ctx context.Context, t *trial) error {
	size := t.slice(0.1, 4000)
	d, id, used, err := t.holding(ctx, program{with: t.bare(), mib: size, hold: time.Minute, endless: !t.Sim}, vram(size+1024))
	if err != nil {
		return err
	}
	if err := d.killSupervisor(ctx, id); err != nil {
		return err
	}
	if err := t.memoryBack(ctx, used); err != nil {
		return err
	}
	began := time.Now()
	next, err := d.run(ctx, program{with: t.bare(), mib: 512, hold: 200 * time.Millisecond}, vram(2048), "--name", "next")
	if err != nil {
		return err
	}
	if _, err := d.allWell(ctx, next); err != nil {
		return err
	}
	t.seen("the next job was done %.1f s later", time.Since(began).Seconds())
	return pollFor(ctx, 35*time.Second, "the GPU to be ok again", func() (bool, error) {
		c, err := d.card(ctx)
		return err == nil && c.Health == "ok" && !c.Stale && c.ForeignMiB < 64+used, nil
	})
}

// holding is a daemon on this run's GPU with a job that holds its memory there, and
// the memory that was in use before.
func (t *trial) holding(ctx context.Context, p program, flags ...string) (d *daemon, id string, before int64, err error) {
	if d, err = t.onCard(ctx); err != nil {
		return nil, "", 0, err
	}
	if !t.Sim {
		if before, err = t.smiUsed(ctx); err != nil {
			return nil, "", 0, err
		}
	}
	if id, err = d.run(ctx, p, flags...); err != nil {
		return nil, "", 0, err
	}
	return d, id, before, d.ready(ctx, id)
}

// memoryBack waits until the GPU is as empty as before.
func (t *trial) memoryBack(ctx context.Context, before int64) error {
	if t.Sim {
		return nil
	}
	began := time.Now()
	now := int64(0)
	err := pollFor(ctx, 30*time.Second, "the memory to come back", func() (bool, error) {
		var err error
		now, err = t.smiUsed(ctx)
		return now <= before+64, err
	})
	if err != nil {
		return fmt.Errorf("%w: %d MiB in use, %d before", err, now, before)
	}
	t.seen("memory back at %d MiB (%d before) after %.1f s", now, before, time.Since(began).Seconds())
	return nil
}

// daemonKill: two jobs with memory on the GPU; the daemon is killed and
// restarted.
func daemonKill(ctx context.Context, t *trial) error {
	d, err := t.onCard(ctx)
	if err != nil {
		return err
	}
	size := t.slice(0.1, 4000)
	const hold = 8 * time.Second
	well, err := d.run(ctx, program{with: t.usual(), mib: size, hold: hold, compute: true}, vram(size+1500), "--name", "well")
	if err != nil {
		return err
	}
	seven, err := d.run(ctx, program{with: t.bare(), mib: size / 2, hold: hold, exit: 7}, vram(size), "--name", "seven")
	if err != nil {
		return err
	}
	if err := d.ready(ctx, well, seven); err != nil {
		return err
	}
	before, err := d.peaks(ctx, map[string]int64{well: size, seven: size / 2}, well, seven)
	if err != nil {
		return err
	}
	d.kill()
	began := time.Now()
	if err := d.start(ctx); err != nil {
		return fmt.Errorf("start the daemon again: %w", err)
	}
	t.seen("killed and back after %.2f s", time.Since(began).Seconds())
	for _, id := range []string{well, seven} {
		v, err := d.job(ctx, id)
		if err != nil {
			return err
		}
		t.expect(v.State == job.Running && v.Attempt == 1, "after the restart job %s is %s, attempt %d", id, v.State, v.Attempt)
	}
	ends, err := d.ended(ctx, well, seven)
	if err != nil {
		return err
	}
	for i, want := range []string{"ok", "exit:7"} {
		peak := ends[i].PeakVRAMMiB[fmt.Sprint(d.index())]
		t.expect(outcome(ends[i]) == want, "it should be %s: %s", want, d.explain(ctx, ends[i]))
		t.expect(peak >= before[i] && peak > 0, "job %s: peak %d MiB, but %d before the daemon was killed", ends[i].ID, peak, before[i])
		t.seen("%s: %s, peak %d MiB (%d before)", ends[i].Name, outcome(ends[i]), peak, before[i])
	}
	return nil
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
