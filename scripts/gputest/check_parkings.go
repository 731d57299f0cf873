package main

import (
	"context"
	"strings"
	"time"

	"berth/internal/api"
	"berth/internal/job"
)

// parkings: every framework is parked and goes on, by hand, when the GPU is
// drained, and in time slices.
func parkings(ctx context.Context, t *trial) error {
	d, err := t.onCard(ctx)
	if err != nil {
		return err
	}
	size := t.slice(0.05, 2000)
	frameworks := []string{"torch", "jax", "cupy", "cuda"}
	if t.Sim {
		frameworks = []string{t.usual()}
	}
	for _, with := range frameworks {
		if why := t.Missing[with]; why != "" {
			t.seen("%s is missing: %s", with, why)
			continue
		}
		id, err := d.run(ctx, program{with: with, mib: size, hold: 3 * time.Second, compute: true}, "--name", with, "--env", "XLA_PYTHON_CLIENT_PREALLOCATE=false")
		if err != nil {
			return err
		}
		if err := d.ready(ctx, id); err != nil {
			return err
		}
		if _, err := d.berth(ctx, "park", id); err != nil {
			return err
		}
		began := time.Now()
		if _, err := d.berth(ctx, "unpark", id); err != nil {
			return err
		}
		if err := d.becomes(ctx, id, job.Running); err != nil {
			return err
		}
		back := time.Since(began)
		ends, err := d.allWell(ctx, id)
		if err != nil {
			return err
		}
		t.expect(ends[0].Parkings == 1 && ends[0].Attempt == 1, "%s: parked %d times, in attempt %d", with, ends[0].Parkings, ends[0].Attempt)
		t.seen("%s was parked, and back %.1f s after it was asked for", with, back.Seconds())
	}
	if err := t.drained(ctx, d, size); err != nil {
		return err
	}
	return t.sliced(ctx, d, size)
}

// drained empties the GPU and puts it back into service.
func (t *trial) drained(ctx context.Context, d *daemon, size int64) error {
	id, err := d.run(ctx, program{with: t.bare(), mib: size, hold: 3 * time.Second, compute: true}, "--name", "drained")
	if err != nil {
		return err
	}
	if err := d.ready(ctx, id); err != nil {
		return err
	}
	c, err := d.card(ctx)
	if err != nil {
		return err
	}
	drained, err := api.Call(ctx, d.client, api.DrainGPU, api.DrainRequest{GPUIndex: api.GPUIndex{Index: c.Index}, Park: true})
	if err != nil {
		return err
	}
	t.expect(len(drained.Jobs) == 1 && drained.Jobs[0].Done, "drained: %+v", drained.Jobs)
	if err := d.becomes(ctx, id, job.Parked); err != nil {
		return err
	}
	if _, err := api.Call(ctx, d.client, api.ResumeGPU, api.GPUIndex{Index: c.Index}); err != nil {
		return err
	}
	_, err = d.allWell(ctx, id)
	return err
}

// sliced has two jobs share the GPU in turns.
func (t *trial) sliced(ctx context.Context, d *daemon, size int64) error {
	var ids []string
	for _, name := range []string{"one", "other"} {
		id, err := d.run(ctx, program{with: t.bare(), mib: size, hold: 12 * time.Second, steps: true}, "--name", name, "--time", "2s", "--on-timeout", "park")
		if err != nil {
			return err
		}
		ids = append(ids, id)
	}
	ends, err := d.allWell(ctx, ids...)
	if err != nil {
		return err
	}
	for _, e := range ends {
		t.expect(e.Parkings >= 1 && e.Attempt == 1, "job %s was parked %d times, in attempt %d", e.ID, e.Parkings, e.Attempt)
	}
	t.seen("two jobs took turns, parked %d and %d times", ends[0].Parkings, ends[1].Parkings)
	status, err := d.berth(ctx, "status")
	if err != nil {
		return err
	}
	for line := range strings.Lines(status) {
		if rest, found := strings.CutPrefix(line, "parking"); found {
			t.seen("berth status: %s", strings.TrimSpace(rest))
		}
	}
	return nil
}
