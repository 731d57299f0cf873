package main

import (
	"context"
	"encoding/json"
	"time"
)

// discovery compares the GPUs with nvidia-smi, read in both ways.
func discovery(ctx context.Context, t *trial) {
	if t.Sim {
		discoverySim(ctx, t)
		return
	}
	ways := []struct {
		name string
		env  []string
		nvml bool
	}{
		{"through berth-gpu", nil, true},
		{"through nvidia-smi", []string{"BERTH_GPU_HELPER=none"}, false},
	}
	for _, way := range ways {
		if way.nvml && !t.hasHelper() {
			t.seen("berth-gpu is not in this bundle: only nvidia-smi was tried")
			continue
		}
		d, err := t.serve(ctx, way.env)
		needTo(way.name, err)
		helpers := childrenOf(d.pid(), "berth-gpu")
		t.expect(way.nvml == (len(helpers) > 0), "%s: the daemon has %d helpers", way.name, len(helpers))
		compareCards(ctx, t, d, way.name)
		d.stop()
	}
}

// printed is what berth gpus prints.
func (d *daemon) printed(ctx context.Context) (cards []card) {
	text := must(d.berth(ctx, "gpus", "--json"))
	needTo("parse berth gpus --json", json.Unmarshal([]byte(text), &cards))
	return cards
}

func compareCards(ctx context.Context, t *trial, d *daemon, way string) {
	cards := d.printed(ctx)
	truth := must(smiCards(ctx))
	if !t.expect(len(cards) == len(truth), "%s: berth shows %d GPUs, nvidia-smi %d", way, len(cards), len(truth)) {
		return
	}
	for i, want := range truth {
		got := cards[i]
		t.expect(got.Index == want.Index && got.UUID == want.UUID && got.Name == want.Name, "%s: GPU %d is %d %s %s, nvidia-smi says %s %s", way, want.Index, got.Index, got.UUID, got.Name, want.UUID, want.Name)
		t.expect(got.TotalMiB == want.TotalMiB, "%s: GPU %d has %d MiB, nvidia-smi says %d", way, want.Index, got.TotalMiB, want.TotalMiB)
		t.expect(want.ReservedMiB < 0 || near(got.ReservedMiB, want.ReservedMiB, 2), "%s: the driver reserves %d MiB of GPU %d, nvidia-smi says %d", way, got.ReservedMiB, want.Index, want.ReservedMiB)
		t.expect(near(got.UsedMiB, want.UsedMiB, 4), "%s: %d MiB of GPU %d are in use, nvidia-smi says %d", way, got.UsedMiB, want.Index, want.UsedMiB)
		t.expect(got.Health == "ok", "%s: GPU %d is %s: %s", way, want.Index, got.Health, got.HealthReason)
		if i < 2 {
			t.seen("%s: gpu%d %s, %d MiB, reserved %d, used %d", way, got.Index, got.Name, got.TotalMiB, got.ReservedMiB, got.UsedMiB)
		}
	}
}

func discoverySim(ctx context.Context, t *trial) {
	d := must(t.onCard(ctx))
	began := time.Now()
	cards := d.printed(ctx)
	t.expect(len(cards) == 1 && cards[0].TotalMiB == simTotalMiB && cards[0].UsedMiB == 0, "berth gpus shows %+v", cards)
	t.seen("one simulated GPU, shown within %s", milliseconds(time.Since(began)))
}
