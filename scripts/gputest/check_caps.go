package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// contextMiB is what a framework uses on a GPU beside its allocations: the
// CUDA context and the libraries.
const contextMiB = 1536

// softCap: JAX has to stay within its cap; torch's behaviour depends on its
// version, and is only reported.
func softCap(ctx context.Context, t *trial) {
	d := must(t.onCard(ctx))
	declared := t.slice(0.1, 6144)
	ids := map[string]string{}
	for _, name := range []string{"jax", "torch"} {
		var why skip
		id, err := d.run(ctx, program{with: name, growMiB: 2 * declared, hold: 2 * time.Second}, vram(declared), "--cap", "soft")
		if errors.As(err, &why) {
			t.seen("%s: skipped: %s", name, why)
			continue
		}
		need(unknown(err))
		ids[name] = id
	}
	t.requires(len(ids) > 0, "neither JAX nor torch is installed")
	for _, name := range []string{"jax", "torch"} {
		if ids[name] == "" {
			continue
		}
		ends := must(d.allWell(ctx, ids[name]))
		grown, found := d.saidNumber(ctx, ids[name], "grown")
		refused, _ := d.said(ctx, ids[name], "refused")
		peak := ends[0].PeakVRAMMiB[fmt.Sprint(t.Card.Index)]
		within := found && refused == "yes" && grown <= declared
		t.seen("%s: cap %d MiB, got %d of %d, refused beyond that: %s, peak %d", name, declared, grown, 2*declared, refused, peak)
		t.expect(within || name == "torch", "%s went beyond its cap", name)
		t.expect(!within || peak <= declared+contextMiB, "%s: peak %d MiB", name, peak)
	}
}

func (t *trial) needMPS() {
	_, err := exec.LookPath("nvidia-cuda-mps-control")
	t.requires(err == nil, "nvidia-cuda-mps-control is not installed")
}

// hardCap: one job over its cap, one within, one without a cap, one with half
// a GPU.
func hardCap(ctx context.Context, t *trial) {
	t.needMPS()
	d := must(t.onCard(ctx))
	before := named("nvidia-cuda-mps")
	limit := t.slice(0.05, 4096)
	within := program{with: t.usual(), mib: limit / 2, hold: 14 * time.Second, compute: true}
	capped := known(d.run(ctx, within, vram(limit), "--cap", "mps", "--name", "within"))
	free := must(d.run(ctx, within, vram(limit), "--name", "uncapped"))
	need(d.ready(ctx, capped, free))
	// The job over its cap tries to lift the limit, as a user can.
	over := must(d.run(ctx, program{with: t.usual(), mib: 2 * limit}, vram(limit), "--cap", "mps", "--name", "over",
		"-e", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=100G", "-e", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100"))
	half := must(d.run(ctx, program{with: t.bare(), mib: 256, hold: time.Second}, "--gpus", "0.5", vram(limit), "--cap", "mps", "--name", "half"))
	ends := must(d.ended(ctx, over))
	t.expect(outcome(ends[0]) == "oom", "the job over its cap should be oom: %s", d.explain(ctx, ends[0]))
	t.seen("cap %d MiB: a job that asks for %d ends %s", limit, 2*limit, outcome(ends[0]))
	must(d.allWell(ctx, half, capped, free))
	t.seen("its neighbours, one with a cap and one without, finished")
	d.compareShares(ctx, free, half)
	t.noMPSLeft(ctx, before)
}

// compareShares compares the multiprocessors of a whole and half a GPU.
func (d *daemon) compareShares(ctx context.Context, whole, half string) {
	all, known := d.saidNumber(ctx, whole, "multiprocessors")
	some, alsoKnown := d.saidNumber(ctx, half, "multiprocessors")
	if !known || !alsoKnown {
		d.t.seen("multiprocessors: not reported by these frameworks")
		return
	}
	d.t.expect(some <= all/2+2 && some >= all/2-2, "half a GPU has %d of %d multiprocessors", some, all)
	d.t.seen("half a GPU: %d of %d multiprocessors", some, all)
}

// noMPSLeft waits until only the earlier MPS processes are left.
func (t *trial) noMPSLeft(ctx context.Context, before []int) {
	var left []int
	err := pollFor(ctx, 15*time.Second, "the MPS processes to end", func() (bool, error) {
		left = slices.DeleteFunc(named("nvidia-cuda-mps"), func(pid int) bool { return slices.Contains(before, pid) })
		return len(left) == 0, nil
	})
	if err != nil && ctx.Err() != nil {
		need(err)
	}
	t.expect(len(left) == 0, "MPS processes are left: %v", left)
	if len(left) == 0 {
		t.seen("no MPS process left")
	}
}

// hardCapKilled: the supervisor that holds MPS is killed.
func hardCapKilled(ctx context.Context, t *trial) {
	t.needMPS()
	used := must(t.smiUsed(ctx))
	d := must(t.onCard(ctx))
	before := named("nvidia-cuda-mps")
	limit := t.slice(0.05, 4096)
	id := known(d.run(ctx, program{with: t.bare(), mib: limit / 2, hold: time.Minute, compute: true}, vram(limit), "--cap", "mps"))
	need(d.ready(ctx, id))
	t.expect(len(named("nvidia-cuda-mps")) > len(before), "the job runs without an MPS process")
	_, err := d.berth(ctx, "park", id)
	t.expect(err != nil && strings.Contains(err.Error(), "it runs under MPS"), "parking it was answered with: %v", err)
	d.killSupervisor(ctx, id)
	t.noMPSLeft(ctx, before)
	t.memoryBack(ctx, used)
}

// killSupervisor kills a job's supervisor and expects the job to be lost.
func (d *daemon) killSupervisor(ctx context.Context, id string) {
	v := must(d.job(ctx, id))
	keeper := must(d.supervisor(v))
	processes := d.processes(v)
	began := time.Now()
	needTo("kill the supervisor", syscall.Kill(keeper, syscall.SIGKILL))
	ends := must(d.ended(ctx, id))
	d.t.expect(outcome(ends[0]) == "lost", "it should be lost: %s", d.explain(ctx, ends[0]))
	d.t.seen("supervisor killed: lost after %.1f s", time.Since(began).Seconds())
	need(pollFor(ctx, 30*time.Second, "the processes of the killed job to end", func() (bool, error) {
		return !slices.ContainsFunc(processes, alive), nil
	}))
}
