package main

import (
	"context"
	"path/filepath"
	"strings"
)

// enforced is what the daemon says it holds its jobs to.
type enforced struct {
	Enforced *struct {
		Cgroup  string   `json:"cgroup"`
		Devices *bool    `json:"devices"`
		CPUs    string   `json:"cpus"`
		Mem     string   `json:"mem"`
		Missing []string `json:"missing"`
	} `json:"enforced"`
}

// isolation: what a job without cards and one with a card can see.
func isolation(ctx context.Context, t *trial) {
	d := must(t.serve(ctx, nil))
	var e enforced
	need(d.get(ctx, "/v1/status", &e))
	if e.Enforced == nil || e.Enforced.Devices == nil || !*e.Enforced.Devices {
		why := "no reason given"
		if e.Enforced != nil && len(e.Enforced.Missing) > 0 {
			why = strings.Join(e.Enforced.Missing, "; ")
		}
		need(skipf("the daemon cannot hide GPUs here: %s", why))
	}
	words := []string{t.python, filepath.Join(t.dir, "..", "programs", "see.py")}
	none := must(d.submit(ctx, words, "--gpus", "0", "--name", "cpu"))
	one := must(d.submit(ctx, words, "--gpu-ids", "0", vram(2048), "--name", "gpu"))
	must(d.allWell(ctx, none, one))
	d.seesNothing(ctx, none)
	d.seesOne(ctx, one)
}

func (d *daemon) seesNothing(ctx context.Context, id string) {
	listed, _ := d.said(ctx, id, "listed")
	smi, _ := d.said(ctx, id, "smi")
	torch, _ := d.said(ctx, id, "torch")
	bare, _ := d.said(ctx, id, "cuda")
	opens, _ := d.said(ctx, id, "opens")
	d.t.expect(listed == "0", "nvidia-smi -L in a CPU job lists %s GPUs", listed)
	d.t.expect(opens == "", "a CPU job opens the GPUs %s", opens)
	d.t.expect(strings.HasPrefix(torch, "False") || torch == "(none)", "torch in a CPU job that sets CUDA_VISIBLE_DEVICES=0: %s", torch)
	d.t.expect(strings.HasPrefix(bare, "no"), "the driver gives a GPU to a CPU job")
	d.t.seen("CPU job: nvidia-smi -L: %s; torch %s; CUDA %s", smi, torch, bare)
}

func (d *daemon) seesOne(ctx context.Context, id string) {
	want := d.t.Cards[0]
	listed, _ := d.said(ctx, id, "listed")
	card, _ := d.said(ctx, id, "card")
	visible, _ := d.said(ctx, id, "visible")
	torch, _ := d.said(ctx, id, "torch")
	bare, _ := d.said(ctx, id, "cuda")
	opens, _ := d.said(ctx, id, "opens")
	d.t.expect(listed == "1" && strings.Contains(card, want.UUID), "nvidia-smi -L in a job with %s lists %s: %s", want.UUID, listed, card)
	// The first GPU has the same number inside the filter.
	d.t.expect(visible == want.UUID || visible == "0" && want.Index == 0, "CUDA_VISIBLE_DEVICES is %s, not %s", visible, want.UUID)
	d.t.expect(torch == "True 1" || torch == "(none)" || d.t.Frameworks["torch"] == "", "torch: %s", torch)
	d.t.expect(strings.HasPrefix(bare, "yes") || d.t.Frameworks["cuda"] == "", "the driver: %s", bare)
	d.t.expect(len(strings.Fields(opens)) == 1, "the job opens the GPUs %q", opens)
	d.t.seen("GPU job, of %d GPUs: sees %s, opens /dev/nvidia%s, torch %s", len(d.t.Cards), visible, opens, torch)
}
