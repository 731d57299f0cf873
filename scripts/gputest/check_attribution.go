package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// measured is a job whose memory is compared.
type measured struct {
	what string
	program
	id string
}

// attribution runs one job of each kind side by side and compares berth's
// figures for each with the sum of its processes in nvidia-smi's list.
func attribution(ctx context.Context, t *trial) {
	d := must(t.onCard(ctx))
	before := must(d.card(ctx))
	const hold = 40 * time.Second // they are cancelled once they have been compared
	size := t.slice(0.08, 4000)
	kinds := []*measured{
		{what: "torch", program: program{with: "torch", mib: size}},
		{what: "JAX", program: program{with: "jax", mib: size * 3 / 4}},
		{what: "CuPy", program: program{with: "cupy", mib: size / 2}},
		{what: "the bare driver", program: program{with: "cuda", mib: size / 4}},
		{what: "two processes", program: program{with: t.usual(), mib: size / 2, processes: 2}},
		{what: "a child in a session of its own", program: program{with: t.bare(), mib: size / 3, setsid: true}},
	}
	if t.Sim {
		kinds = []*measured{{what: "one job", program: program{mib: size}}, {what: "another", program: program{mib: size / 2}}}
	}
	var running []*measured
	var ids []string
	for _, k := range kinds {
		k.hold = hold
		var why skip
		// JAX grows in large steps; its limit is not the point here.
		id, err := d.run(ctx, k.program, vram(size+2048), "-e", "XLA_PYTHON_CLIENT_PREALLOCATE=false", "--name", "measured")
		if errors.As(err, &why) {
			t.seen("%s: skipped: %s", k.what, why)
			continue
		}
		need(err)
		k.id = id
		running, ids = append(running, k), append(ids, id)
	}
	need(d.ready(ctx, ids...))
	d.compareJobs(ctx, running, before.ForeignMiB)
	must(d.berth(ctx, append([]string{"cancel"}, ids...)...))
}

// compareJobs waits until berth and nvidia-smi agree about every job: they
// sample at different moments, and a framework may still be growing.
func (d *daemon) compareJobs(ctx context.Context, jobs []*measured, foreignBefore int64) {
	var differ []string
	var rows []string
	err := pollFor(ctx, 10*time.Second, "agreement", func() (bool, error) {
		differ, rows = nil, nil
		c, err := d.card(ctx)
		if err != nil {
			return false, err
		}
		listed, err := d.t.listed(ctx)
		if err != nil {
			return false, err
		}
		for _, m := range jobs {
			now, peak := c.of(m.id)
			want, processes := m.truth(ctx, d, listed)
			row := fmt.Sprintf("%s: %d MiB allocated; berth %d, peak %d; %s %d in %d", m.what, m.mib*int64(max(m.processes, 1)), now, peak, d.t.witness(), want, processes)
			rows = append(rows, row)
			if want <= 0 || !near(now, want, int64(processes)/2) || peak < now {
				differ = append(differ, row)
			}
		}
		if c.ForeignMiB > foreignBefore+64 {
			differ = append(differ, fmt.Sprintf("%d MiB count as external, %d before", c.ForeignMiB, foreignBefore))
		}
		return len(differ) == 0, nil
	})
	for _, row := range rows {
		d.t.seen("%s", row)
	}
	for _, row := range differ {
		d.t.expect(false, "they differ: %s", row)
	}
	if ctx.Err() != nil {
		need(err)
	}
}

// witness is the source that berth is compared with.
func (t *trial) witness() string {
	if t.Sim {
		return "requested"
	}
	return "nvidia-smi"
}

func (t *trial) listed(ctx context.Context) (map[int]int64, error) {
	if t.Sim {
		return nil, nil
	}
	return t.smiProcesses(ctx)
}

// truth is the memory of a job's processes in nvidia-smi's list, and how many
// of them it lists. A simulated job uses exactly what it was told to.
func (m *measured) truth(ctx context.Context, d *daemon, listed map[int]int64) (mib int64, processes int) {
	if d.t.Sim {
		return m.mib, 1
	}
	text, _ := d.said(ctx, m.id, "ready")
	for word := range strings.FieldsSeq(text) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			continue
		}
		if used, found := listed[pid]; found {
			mib += used
			processes++
		}
	}
	return mib, processes
}
