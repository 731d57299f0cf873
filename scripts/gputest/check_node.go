package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/slurm/handover"
)

// slurmNode: a job as Slurm's script starts it. Slurm says that the GPU is another
// one to the node than to the driver, as on a node that hides the others.
func slurmNode(ctx context.Context, t *trial) {
	const nodes = 5
	mib := t.slice(0.2, 8000)
	words := must(program{with: t.usual(), mib: mib, hold: 12 * time.Second, compute: true}.words(t.host))
	spec := job.Defaults()
	spec.Argv, spec.Dir, spec.TimeLimit = words, "/tmp", 5*time.Minute
	batch := filepath.Join(t.dir, "batch")
	order := handover.Order{
		Job: job.Job{ID: "17", User: "nobody", UID: os.Getuid(), Umask: -1, Spec: spec, Attempt: job.Attempt{Number: 1}},
		Log: handover.Log(batch, 0), Environ: t.environ(),
	}
	need(handover.Create(batch, []handover.Order{order}, nil))
	cmd := t.command(ctx, t.program("berth"), "__node", batch, "0")
	cmd.SysProcAttr.Credential = nil // the batch is this user's
	cmd.Env = append(cmd.Env, "SLURM_JOB_ID=120", "SLURMD_NODENAME=gputest", "SLURM_JOB_GPUS="+strconv.Itoa(nodes), "TMPDIR="+t.dir)
	t.show(cmd)
	out, failed := cmd.CombinedOutput()
	record, err := handover.ReadRecord(batch, 0)
	if err != nil || record == nil {
		need(fmt.Errorf("no record: %v, %v: %s", err, failed, out))
	}
	log, _ := os.ReadFile(order.Log) // for the message alone
	t.expect(failed == nil && record.Outcome == job.OK && len(out) == 0, "it ended with %s (%s), %v: %s%s", record.Outcome, record.Detail, failed, out, log)
	peak, util := record.PeakMiB[nodes], -1.0
	if record.AvgUtil != nil {
		util = *record.AvgUtil
	}
	t.seen("peak %d MiB of %d requested, average utilisation %.0f %%", peak, mib, util)
	t.expect(peak >= mib && peak <= mib+4000, "peaks are %v", record.PeakMiB)
	t.expect(util > 0, "the utilisation is not known")
	now, err := handover.ReadNow(batch, 0)
	t.expect(err == nil && now != nil && now.PeakMiB[nodes] > 0, "while it ran it reported %+v, %v", now, err)
	begun, err := handover.ReadBegun(batch, 0)
	if t.expect(err == nil && begun != nil && len(begun.GPUs) == 1, "the start marker is %+v, %v", begun, err) {
		t.expect(t.Sim || begun.GPUs[0].UUID == t.Card.UUID && begun.GPUs[0].TotalMiB > 0, "it got %+v", begun.GPUs[0])
	}
	left, _ := filepath.Glob(filepath.Join(t.dir, "berth-node-*"))
	t.expect(len(left) == 0, "left behind: %s", strings.Join(left, ", "))
}

// show lets a command see the GPU of this run, as Slurm does.
func (t *trial) show(cmd *exec.Cmd) {
	cmd.Env = append(cmd.Env, "CUDA_VISIBLE_DEVICES="+strconv.Itoa(t.Card.Index))
	if !t.Sim {
		return
	}
	box := filepath.Join(t.dir, "box")
	cmd.Env = append(cmd.Env, "BERTH_SIM_DIR="+box)
	cards := fmt.Sprintf(`{"cards": [{"index": 0, "uuid": "GPU-sim", "name": "Simulated GPU", "total_mib": %d}]}`, simTotalMiB)
	need(errors.Join(os.Mkdir(box, 0o755), os.WriteFile(filepath.Join(box, "box.json"), []byte(cards), 0o644)))
}
