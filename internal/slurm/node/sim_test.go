package node

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/slurm/handover"
	"berth/internal/tests/testkit"
)

// simulated gives the node cards of 10,000 MiB, and returns their directory.
func (w *world) simulated(n int) string {
	w.t.Helper()
	dir := w.file("box")
	box, err := gpu.OpenSim(dir, n, 10000)
	testkit.Must(w.t, err)
	w.env = append(w.env, "BERTH_SIM_DIR="+dir)
	_ = box.Close()
	return dir
}

func onGPUs(n int, vramMiB int64) func(*job.Spec) {
	return func(s *job.Spec) { s.GPUs, s.VRAMMiB = n, vramMiB }
}

// TestWhatAJobUsedComesBack, while it runs and when it has ended.
func TestWhatAJobUsedComesBack(t *testing.T) {
	w := newWorld(t, order("berth simjob --vram 3000 --util 80 --hold 300 & sim=$!; while ! [ -e gate ]; do sleep 0.05; done; kill $sim; wait $sim; true", onGPUs(2, 0)))
	w.simulated(4)
	r := w.start(0, "CUDA_VISIBLE_DEVICES=1,2", "SLURM_JOB_GPUS=1,2")
	testkit.Eventually(t, "it reports what it uses", func() bool {
		now, err := handover.ReadNow(w.batch, 0)
		return err == nil && now != nil && now.NowMiB[1] == 3000 && now.PeakMiB[2] == 3000 && now.AvgUtil != nil
	})
	testkit.Write(t, w.file("gate"), "open")
	status := r.status()
	got := w.record(0, r)
	if status != 0 || got.Outcome != job.OK || got.PeakMiB[1] != 3000 || got.PeakMiB[2] != 3000 || len(got.PeakMiB) != 2 || got.AvgUtil == nil || *got.AvgUtil < 10 {
		t.Errorf("exited with %d: %+v", status, got)
	}
	begun, err := handover.ReadBegun(w.batch, 0)
	if err != nil || len(begun.GPUs) != 2 || begun.GPUs[0].Index != 1 || begun.GPUs[1].TotalMiB != 10000 || begun.GPUs[1].UUID == "" {
		t.Errorf("marker: %+v %v", begun, err)
	}
}

// TestCardsThatSlurmHides: the driver shows one card as 0; to the node it is 3.
func TestCardsThatSlurmHides(t *testing.T) {
	w := newWorld(t, order(`echo "has $BERTH_GPUS, sees $CUDA_VISIBLE_DEVICES"; berth simjob --vram 2000 --hold 2`, onGPUs(1, 0)))
	w.simulated(1)
	r, status := w.run(0, "CUDA_VISIBLE_DEVICES=0", "SLURM_JOB_GPUS=3")
	if status != 0 || r.PeakMiB[3] != 2000 || !strings.Contains(w.log(0), "has 3, sees 0") {
		t.Errorf("exited with %d: %+v\n%s", status, r, w.log(0))
	}
}

// TestItRunsBesideOthers: Slurm gave a part of a card that others use, too. Only the
// job's own use is measured.
func TestItRunsBesideOthers(t *testing.T) {
	w := newWorld(t, order("berth simjob --vram 1500 --util 20 --hold 3", onGPUs(1, 3000)))
	box := w.simulated(1)
	other := exec.Command(filepath.Join(programs, "berth"), "simjob", "--vram", "8000", "--util", "70", "--hold", "300")
	other.Env = append(os.Environ(), "BERTH_SIM_DIR="+box, "CUDA_VISIBLE_DEVICES=0")
	testkit.Must(t, other.Start())
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	testkit.Eventually(t, "the card is in use", func() bool {
		files, _ := filepath.Glob(filepath.Join(box, "procs", "*"))
		return len(files) > 0 && strings.Contains(testkit.Read(t, files[0]), "8000")
	})
	r, status := w.run(0, "CUDA_VISIBLE_DEVICES=0", "SLURM_JOB_GPUS=0")
	if status != 0 || r.Outcome != job.OK || r.PeakMiB[0] != 1500 || r.AvgUtil == nil || *r.AvgUtil > 40 {
		t.Errorf("exited with %d: %+v", status, r)
	}
}

// TestOutOfMemoryComesBack, with what it had used.
func TestOutOfMemoryComesBack(t *testing.T) {
	w := newWorld(t, order("berth simjob --vram 12000 --ramp 3", onGPUs(1, 4000)))
	w.simulated(1)
	if r, status := w.run(0, "CUDA_VISIBLE_DEVICES=0"); r.Outcome != job.OOM || status != 1 || r.PeakMiB[0] < 5000 || !strings.Contains(r.Detail, "4000 MiB declared") {
		t.Errorf("exited with %d: %+v", status, r)
	}
}

// TestTwoOnOneCard: two jobs of berth's on one card do not wait for each other.
func TestTwoOnOneCard(t *testing.T) {
	both := "echo up >up$INDEX; while ! [ -e up0 ] || ! [ -e up1 ]; do sleep 0.05; done"
	a, b := order(both, onGPUs(1, 0)), order(both, onGPUs(1, 0))
	a.Job.Spec.Env, b.Job.Spec.Env = []job.EnvVar{{Key: "INDEX", Value: "0"}}, []job.EnvVar{{Key: "INDEX", Value: "1"}}
	w := newWorld(t, a, b)
	w.simulated(1)
	first, second := w.start(0, "CUDA_VISIBLE_DEVICES=0"), w.start(1, "CUDA_VISIBLE_DEVICES=0")
	if first.status() != 0 || second.status() != 0 {
		t.Errorf("%s\n%s", first.out, second.out)
	}
}
