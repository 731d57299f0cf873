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
func softCap(ctx context.Context, t *trial) error {
	d, err := t.onCard(ctx)
	if err != nil {
		return err
	}
	tried := 0
	declared := t.slice(0.1, 6144)
	ids := map[string]string{}
	for _, name := range []string{"jax", "torch"} {
		var why skip
		id, err := d.run(ctx, program{with: name, growMiB: 2 * declared, hold: 2 * time.Second}, vram(declared), "--cap", "soft")
		switch {
		case errors.As(err, &why):
			t.seen("%s: skipped: %s", name, why)
			continue
		case err != nil:
			return unknown(err)
		}
		ids[name] = id
		tried++
	}
	if tried == 0 {
		return skipf("neither JAX nor torch is installed")
	}
	for _, name := range []string{"jax", "torch"} {
		if ids[name] == "" {
			continue
		}
		ends, err := d.allWell(ctx, ids[name])
		if err != nil {
			return err
		}
		grown, found := d.saidNumber(ctx, ids[name], "grown")
		refused, _ := d.said(ctx, ids[name], "refused")
		peak := ends[0].PeakVRAMMiB[fmt.Sprint(t.Card.Index)]
		within := found && refused == "yes" && grown <= declared
		t.seen("%s: cap %d MiB, got %d of %d, refused beyond that: %s, peak %d", name, declared, grown, 2*declared, refused, peak)
		t.expect(within || name == "torch", "%s went beyond its cap", name)
		t.expect(!within || peak <= declared+contextMiB, "%s: peak %d MiB", name, peak)
	}
	return nil
}

func (t *trial) needMPS() error {
	if _, err := exec.LookPath("nvidia-cuda-mps-control"); err != nil {
		return skipf("nvidia-cuda-mps-control is not installed")
	}
	return nil
}

// hardCap: one job over its cap, one within, one without a cap, one with half
// a GPU.
func hardCap(ctx context.Context, t *trial) error {
	if err := t.needMPS(); err != nil {
		return err
	}
	d, err := t.onCard(ctx)
	if err != nil {
		return err
	}
	before := named("nvidia-cuda-mps")
	limit := t.slice(0.05, 4096)
	within := program{with: t.usual(), mib: limit / 2, hold: 14 * time.Second, compute: true}
	capped, err := d.run(ctx, within, vram(limit), "--cap", "mps", "--name", "within")
	if err != nil {
		return unknown(err)
	}
	free, err := d.run(ctx, within, vram(limit), "--name", "uncapped")
	if err != nil {
		return err
	}
	if err := d.ready(ctx, capped, free); err != nil {
		return err
	}
	// The job over its cap tries to lift the limit, as a user can.
	over, err := d.run(ctx, program{with: t.usual(), mib: 2 * limit}, vram(limit), "--cap", "mps", "--name", "over",
		"-e", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=100G", "-e", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100")
	if err != nil {
		return err
	}
	half, err := d.run(ctx, program{with: t.bare(), mib: 256, hold: time.Second}, "--gpus", "0.5", vram(limit), "--cap", "mps", "--name", "half")
	if err != nil {
		return err
	}
	ends, err := d.ended(ctx, over)
	if err != nil {
		return err
	}
	t.expect(outcome(ends[0]) == "oom", "the job over its cap should be oom: %s", d.explain(ctx, ends[0]))
	t.seen("cap %d MiB: a job that asks for %d ends %s", limit, 2*limit, outcome(ends[0]))
	if _, err := d.allWell(ctx, half, capped, free); err != nil {
		return err
	}
	t.seen("its neighbours, one with a cap and one without, finished")
	d.compareShares(ctx, free, half)
	return t.noMPSLeft(ctx, before)
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
func (t *trial) noMPSLeft(ctx context.Context, before []int) error {
	var left []int
	err := pollFor(ctx, 15*time.Second, "the MPS processes to end", func() (bool, error) {
		left = slices.DeleteFunc(named("nvidia-cuda-mps"), func(pid int) bool { return slices.Contains(before, pid) })
		return len(left) == 0, nil
	})
	if err != nil && ctx.Err() != nil {
		return err
	}
	t.expect(len(left) == 0, "MPS processes are left: %v", left)
	if len(left) == 0 {
		t.seen("no MPS process left")
	}
	return nil
}

// hardCapKilled: the supervisor that holds MPS is killed.
func hardCapKilled(ctx context.Context, t *trial) error {
	if err := t.needMPS(); err != nil {
		return err
	}
	used, err := t.smiUsed(ctx)
	if err != nil {
		return err
	}
	d, err := t.onCard(ctx)
	if err != nil {
		return err
	}
	before := named("nvidia-cuda-mps")
	limit := t.slice(0.05, 4096)
	id, err := d.run(ctx, program{with: t.bare(), mib: limit / 2, hold: time.Minute, compute: true}, vram(limit), "--cap", "mps")
	if err != nil {
		return unknown(err)
	}
	if err := d.ready(ctx, id); err != nil {
		return err
	}
	t.expect(len(named("nvidia-cuda-mps")) > len(before), "the job runs without an MPS process")
	_, err = d.berth(ctx, "park", id)
	t.expect(err != nil && strings.Contains(err.Error(), "it runs under MPS"), "parking it was answered with: %v", err)
	if err := d.killSupervisor(ctx, id); err != nil {
		return err
	}
	if err := t.noMPSLeft(ctx, before); err != nil {
		return err
	}
	return t.memoryBack(ctx, used)
}

// killSupervisor kills a job's supervisor and expects the job to be lost.
func (d *daemon) killSupervisor(ctx context.Context, id string) error {
	v, err := d.job(ctx, id)
	if err != nil {
		return err
	}
	keeper, err := d.supervisor(v)
	if err != nil {
		return err
	}
	processes := d.processes(v)
	began := time.Now()
	if err := syscall.Kill(keeper, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill the supervisor: %w", err)
	}
	ends, err := d.ended(ctx, id)
	if err != nil {
		return err
	}
	d.t.expect(outcome(ends[0]) == "lost", "it should be lost: %s", d.explain(ctx, ends[0]))
	d.t.seen("supervisor killed: lost after %.1f s", time.Since(began).Seconds())
	return pollFor(ctx, 30*time.Second, "the processes of the killed job to end", func() (bool, error) {
		return !slices.ContainsFunc(processes, alive), nil
	})
}
