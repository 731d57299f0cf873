package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// discovery compares the GPUs with nvidia-smi, read in both ways.
func discovery(ctx context.Context, t *trial) error {
	if t.Sim {
		return discoverySim(ctx, t)
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
		if err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		helpers := childrenOf(d.pid(), "berth-gpu")
		t.expect(way.nvml == (len(helpers) > 0), "%s: the daemon has %d helpers", way.name, len(helpers))
		if err := compareCards(ctx, t, d, way.name); err != nil {
			return err
		}
		d.stop()
	}
	return nil
}

func compareCards(ctx context.Context, t *trial, d *daemon, way string) error {
	text, err := d.berth(ctx, "gpus", "--json")
	if err != nil {
		return err
	}
	var cards []card
	if err := json.Unmarshal([]byte(text), &cards); err != nil {
		return fmt.Errorf("parse berth gpus --json: %w", err)
	}
	truth, err := smiCards(ctx)
	if err != nil {
		return err
	}
	if !t.expect(len(cards) == len(truth), "%s: berth shows %d GPUs, nvidia-smi %d", way, len(cards), len(truth)) {
		return nil
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
	return nil
}

func discoverySim(ctx context.Context, t *trial) error {
	d, err := t.onCard(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	text, err := d.berth(ctx, "gpus", "--json")
	if err != nil {
		return err
	}
	var cards []card
	if err := json.Unmarshal([]byte(text), &cards); err != nil {
		return fmt.Errorf("parse berth gpus --json: %w", err)
	}
	t.expect(len(cards) == 1 && cards[0].TotalMiB == simTotalMiB && cards[0].UsedMiB == 0, "berth gpus shows %s", text)
	t.seen("one simulated GPU, shown within %s", milliseconds(time.Since(began)))
	return nil
}
