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
func parkings(ctx context.Context, t *trial) {
	d := must(t.onCard(ctx))
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
		id := must(d.run(ctx, program{with: with, mib: size, hold: 3 * time.Second, compute: true}, "--name", with, "--env", "XLA_PYTHON_CLIENT_PREALLOCATE=false"))
		need(d.ready(ctx, id))
		must(d.berth(ctx, "park", id))
		began := time.Now()
		must(d.berth(ctx, "unpark", id))
		d.becomes(ctx, id, job.Running)
		back := time.Since(began)
		ends := must(d.allWell(ctx, id))
		t.expect(ends[0].Parkings == 1 && ends[0].Attempt == 1, "%s: parked %d times, in attempt %d", with, ends[0].Parkings, ends[0].Attempt)
		t.seen("%s was parked, and back %.1f s after it was asked for", with, back.Seconds())
	}
	t.drained(ctx, d, size)
	t.sliced(ctx, d, size)
}

// drained empties the GPU and puts it back into service.
func (t *trial) drained(ctx context.Context, d *daemon, size int64) {
	id := must(d.run(ctx, program{with: t.bare(), mib: size, hold: 3 * time.Second, compute: true}, "--name", "drained"))
	need(d.ready(ctx, id))
	c := must(d.card(ctx))
	drained := must(api.Call(ctx, d.client, api.DrainGPU, api.DrainRequest{GPUIndex: api.GPUIndex{Index: c.Index}, Park: true}))
	t.expect(len(drained.Jobs) == 1 && drained.Jobs[0].Done, "drained: %+v", drained.Jobs)
	d.becomes(ctx, id, job.Parked)
	must(api.Call(ctx, d.client, api.ResumeGPU, api.GPUIndex{Index: c.Index}))
	must(d.allWell(ctx, id))
}

// sliced has two jobs share the GPU in turns.
func (t *trial) sliced(ctx context.Context, d *daemon, size int64) {
	var ids []string
	for _, name := range []string{"one", "other"} {
		id := must(d.run(ctx, program{with: t.bare(), mib: size, hold: 12 * time.Second, steps: true}, "--name", name, "--time", "2s", "--on-timeout", "park"))
		ids = append(ids, id)
	}
	ends := must(d.allWell(ctx, ids...))
	for _, e := range ends {
		t.expect(e.Parkings >= 1 && e.Attempt == 1, "job %s was parked %d times, in attempt %d", e.ID, e.Parkings, e.Attempt)
	}
	t.seen("two jobs took turns, parked %d and %d times", ends[0].Parkings, ends[1].Parkings)
	status := must(d.berth(ctx, "status"))
	for line := range strings.Lines(status) {
		if rest, found := strings.CutPrefix(line, "parking"); found {
			t.seen("berth status: %s", strings.TrimSpace(rest))
		}
	}
}
