package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"berth/internal/job"
)

// withHelper starts a daemon with a job on the card, and finds its helper.
func (t *trial) withHelper(ctx context.Context) (d *daemon, id string, helper int) {
	t.requires(t.hasHelper(), "berth-gpu is not in this bundle")
	d = must(t.onCard(ctx))
	id = must(d.run(ctx, program{with: t.bare(), mib: t.slice(0.05, 2000), hold: 80 * time.Second, compute: true}, vram(t.slice(0.1, 4000)), "--name", "bystander"))
	need(d.ready(ctx, id))
	helpers := childrenOf(d.pid(), "berth-gpu")
	if len(helpers) != 1 {
		need(fmt.Errorf("the daemon has %d helpers", len(helpers)))
	}
	return d, id, helpers[0]
}

// stillRuns expects that a job was not touched.
func (d *daemon) stillRuns(ctx context.Context, id string) {
	v := must(d.job(ctx, id))
	d.t.expect(v.State == job.Running && v.Attempt == 1, "the job that ran in the meantime: %s", d.explain(ctx, v))
}

// recovers waits for a reading that was made after a moment.
func (d *daemon) recovers(ctx context.Context, since time.Time) {
	err := pollFor(ctx, 30*time.Second, "a new reading of the card", func() (bool, error) {
		c, err := d.card(ctx)
		if err != nil {
			return false, err
		}
		return !c.Stale && c.ReadAt.After(since) && c.Health == "ok", nil
	})
	if err == nil {
		d.t.seen("read again %.2f s later", time.Since(since).Seconds())
	}
	need(err)
}

// helperKilled: the helper dies, as NVML can make it.
func helperKilled(ctx context.Context, t *trial) {
	d, id, helper := t.withHelper(ctx)
	for range 3 {
		needTo("kill the helper", syscall.Kill(helper, syscall.SIGKILL))
		d.recovers(ctx, time.Now())
		now := childrenOf(d.pid(), "berth-gpu")
		t.expect(len(now) == 1 && now[0] != helper, "helpers after the kill: %v, killed was %d", now, helper)
		if len(now) == 1 {
			helper = now[0]
		}
	}
	d.stillRuns(ctx, id)
}

// helperHangs: for ten seconds every helper is stopped as soon as it starts,
// as if the driver never answered.
func helperHangs(ctx context.Context, t *trial) {
	d, id, _ := t.withHelper(ctx)
	hung, letGo := context.WithCancel(ctx)
	defer letGo()
	var group sync.WaitGroup
	group.Go(func() { stopHelpers(hung, d.pid()) })
	began := time.Now()
	need(pollFor(ctx, 10*time.Second, "the card to be marked stale", func() (bool, error) {
		c, err := d.card(ctx)
		return c.Stale, err
	}))
	t.seen("stale after %.1f s", time.Since(began).Seconds())
	queued := must(d.run(ctx, program{with: t.bare(), mib: 256}, vram(1024), "--name", "must-wait"))
	d.answersFor(ctx, 10*time.Second)
	v := must(d.job(ctx, queued))
	t.expect(v.State == job.Queued, "a job started while the driver did not answer: it is %s", v.State)
	d.stillRuns(ctx, id)
	letGo()
	group.Wait()
	d.recovers(ctx, time.Now())
	must(d.allWell(ctx, queued))
}

// answersFor keeps asking, and expects quick answers.
func (d *daemon) answersFor(ctx context.Context, stretch time.Duration) {
	began := time.Now()
	var took []time.Duration
	most := 0
	for time.Since(began) < stretch {
		for _, path := range []string{"/v1/gpus", "/v1/status", "/v1/jobs"} {
			var answer json.RawMessage
			asked := time.Now()
			need(d.get(ctx, path, &answer))
			took = append(took, time.Since(asked))
		}
		most = max(most, len(childrenOf(d.pid(), "berth-gpu")))
		need(pause(ctx, 20*time.Millisecond))
	}
	d.t.expect(quantile(took, 0.99) <= 100*time.Millisecond, "p99 of %d answers is %s", len(took), milliseconds(quantile(took, 0.99)))
	d.t.expect(most <= 2, "there were %d helpers at once", most)
	d.t.seen("%d answers in %v: median %s, p99 %s; at most %d helpers", len(took), stretch, milliseconds(median(took)), milliseconds(quantile(took, 0.99)), most)
}

// stopHelpers stops every helper of a daemon until the context ends, then
// continues them.
func stopHelpers(ctx context.Context, daemon int) {
	var stopped []int
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for ctx.Err() == nil {
		for _, pid := range childrenOf(daemon, "berth-gpu") {
			if !slices.Contains(stopped, pid) && syscall.Kill(pid, syscall.SIGSTOP) == nil {
				stopped = append(stopped, pid)
			}
		}
		<-ticker.C
	}
	for _, pid := range childrenOf(daemon, "berth-gpu") {
		if slices.Contains(stopped, pid) {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}
}

// memoryLimits only reports: support depends on the driver's version.
func memoryLimits(ctx context.Context, t *trial) {
	t.requires(t.hasHelper(), "berth-gpu is not in this bundle")
	limited, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	text, err := exec.CommandContext(limited, t.program("berth-gpu"), "once").Output()
	if err != nil {
		need(fmt.Errorf("berth-gpu once: %s", lastLine(string(text), err)))
	}
	var once struct {
		Facts struct {
			Driver       string `json:"driver"`
			CUDA         string `json:"cuda"`
			Events       bool   `json:"events"`
			MemoryLimits *bool  `json:"memory_limits"`
			Persistence  *bool  `json:"persistence"`
		} `json:"facts"`
	}
	needTo("parse berth-gpu once", json.Unmarshal(text, &once))
	f := once.Facts
	t.expect(f.Driver == t.Driver, "the driver is %s, nvidia-smi says %s", f.Driver, t.Driver)
	if !t.expect(f.MemoryLimits != nil, "berth-gpu does not say whether there are memory limits") {
		return
	}
	word := map[bool]string{true: "supported", false: "not supported by this driver"}[*f.MemoryLimits]
	t.seen("GPU memory limits by cgroup: %s; driver %s, CUDA %s, Xid events %v", word, f.Driver, f.CUDA, f.Events)
}
