package node

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/job"
	"berth/internal/slurm/handover"
	"berth/internal/tests/testkit"
)

// onCluster is a batch that a real Slurm runs.
type onCluster struct {
	*testkit.Slurm
	*world
}

func newCluster(t *testing.T, orders ...handover.Order) onCluster {
	t.Helper()
	s := testkit.NewSlurm(t, testkit.SlurmSetup{Nodes: 1, GPUs: 4, CPUs: 8, Shards: 4})
	return onCluster{s, newWorld(t, orders...)}
}

// submit hands jobs over as berth does, and returns Slurm's id.
func (c onCluster) submit(t *testing.T, options ...string) string {
	t.Helper()
	script := filepath.Join(c.home, "script")
	testkit.Write(t, script, fmt.Sprintf("#!/bin/sh\nexport TMPDIR=%s BERTH_GPU_HELPER=none\nexec %s %s %s ${SLURM_ARRAY_TASK_ID:-0}\n",
		c.place, filepath.Join(programs, "berth"), Word, c.batch), 0o755)
	args := append([]string{"--parsable", "--no-requeue", "--chdir=/", "--output=" + filepath.Join(c.home, "slurm-%a.out")}, options...)
	return c.Must(t, "sbatch", append(args, script)...)
}

// await is the record of a job.
func (c onCluster) await(t *testing.T, index int) handover.Record {
	t.Helper()
	var got *handover.Record
	if !testkit.Holds(testkit.Patience, func() bool { got, _ = handover.ReadRecord(c.batch, index); return got != nil }) {
		said, _ := filepath.Glob(filepath.Join(c.home, "slurm-*"))
		for _, path := range said {
			t.Logf("%s: %s", path, testkit.Read(t, path))
		}
		queue, _ := c.Run("scontrol", "show", "job")
		t.Fatalf("no record of %d\n%s", index, queue)
	}
	return *got
}

// ended is how Slurm saw a job end, such as "COMPLETED 0:0".
func (c onCluster) ended(t *testing.T, id string) string {
	t.Helper()
	var words []string
	testkit.Eventually(t, "Slurm sees the end of "+id, func() bool {
		words = nil
		for _, word := range strings.Fields(c.Must(t, "scontrol", "-o", "show", "job", id)) {
			for _, name := range []string{"JobState=", "ExitCode="} {
				if value, ok := strings.CutPrefix(word, name); ok {
					words = append(words, value)
				}
			}
		}
		return len(words) == 2 && words[0] != "RUNNING" && words[0] != "PENDING" && words[0] != "COMPLETING"
	})
	return strings.Join(words, " ")
}

// TestABatchOnARealSlurm: an array on GPUs, each job with its own end.
func TestABatchOnARealSlurm(t *testing.T) {
	see := `echo "$SLURM_JOB_ID $CUDA_VISIBLE_DEVICES ${SLURM_ARRAY_TASK_ID-none}" >saw$BERTH_JOB_ID; `
	orders := []handover.Order{order(see + "true"), order(see + "exit 3"), order(see + "kill -SEGV $$")}
	for i := range orders {
		orders[i].Job.ID, orders[i].Job.Spec.GPUs = fmt.Sprint(17+i), 2
	}
	c := newCluster(t, orders...)
	id := c.submit(t, "--gres=gpu:2", "--array=0-2")
	for i, want := range []struct {
		outcome job.Outcome
		slurms  string
	}{{job.OK, "COMPLETED 0:0"}, {"exit:3", "FAILED 3:0"}, {"signal:SEGV", "FAILED 139:0"}} {
		if got := c.await(t, i); got.Outcome != want.outcome || got.Stopped != "" {
			t.Errorf("job %d: %+v", i, got)
		}
		if got := c.ended(t, fmt.Sprintf("%s_%d", id, i)); got != want.slurms {
			t.Errorf("Slurm says %s of job %d, want %s", got, i, want.slurms)
		}
		saw := strings.Fields(testkit.Read(t, c.file(fmt.Sprintf("saw%d", 17+i))))
		if len(saw) != 3 || strings.Count(saw[1], ",") != 1 || saw[2] != "none" {
			t.Errorf("job %d saw %q", i, saw)
		}
		begun, err := handover.ReadBegun(c.batch, i)
		if err != nil || begun.Slurm != fmt.Sprintf("%s_%d", id, i) || begun.Node != "n1" {
			t.Errorf("marker %d: %+v %v", i, begun, err)
		}
		if said := testkit.Read(t, filepath.Join(c.home, fmt.Sprintf("slurm-%d.out", i))); said != "" {
			t.Errorf("all was well, but job %d said %q", i, said)
		}
	}
	again := c.submit(t, "--array=1")
	if got := c.ended(t, again+"_1"); got != "COMPLETED 0:0" {
		t.Errorf("a second start: %s", got)
	}
}

// TestARealSlurmEndsIt: scancel, and the time limit.
func TestARealSlurmEndsIt(t *testing.T) {
	polite := "trap 'echo saved >saved$BERTH_JOB_ID; exit 0' TERM; echo $$ >up$BERTH_JOB_ID; while :; do sleep 0.05; done"
	stubborn := "trap '' TERM; echo $$ >up$BERTH_JOB_ID; while :; do sleep 0.05; done"
	orders := []handover.Order{order(polite), order(stubborn), order(polite), order("echo $$ >up$BERTH_JOB_ID; exec sleep 300")}
	for i := range orders {
		orders[i].Job.ID, orders[i].Job.Spec.Grace = fmt.Sprint(17+i), 30*second
	}
	c := newCluster(t, orders...)
	id := c.submit(t, "--array=0-3")
	var pids []string
	for i := range orders {
		pids = append(pids, strings.TrimSpace(c.awaitFile(fmt.Sprintf("up%d", 17+i))))
	}
	c.Must(t, "scancel", id+"_0", id+"_1")
	for i := range 2 {
		if got := c.await(t, i); got.Stopped != job.StopInterrupt || got.Outcome != job.WasCancelled {
			t.Errorf("job %d: %+v", i, got)
		}
	}
	if testkit.Read(t, c.file("saved17")) != "saved\n" {
		t.Error("the job could not save its work")
	}
	// Slurm's shortest limit is a minute; an earlier end is noticed within half of one.
	// It may not be past when Slurm reads it.
	c.Must(t, "scontrol", "update", "job="+id+"_2", "EndTime=now+5")
	if got := c.await(t, 2); got.Stopped != job.StopInterrupt {
		t.Errorf("at the time limit: %+v", got)
	}
	c.Must(t, "scancel", "--signal=KILL", "--full", id+"_3")
	c.ended(t, id+"_3")
	testkit.Eventually(t, "no process of the jobs is left", func() bool {
		for _, pid := range pids {
			if alive(pid) {
				return false
			}
		}
		return true
	})
}

// TestPartsOfACardOnARealSlurm: jobs with shards run at the same time on one GPU.
func TestPartsOfACardOnARealSlurm(t *testing.T) {
	both := "echo $CUDA_VISIBLE_DEVICES >up$BERTH_JOB_ID; while ! [ -e up17 ] || ! [ -e up18 ]; do sleep 0.05; done; cat up17 up18; true"
	a, b := order(both, onGPUs(1, 3000)), order(both, onGPUs(1, 3000))
	b.Job.ID = "18"
	c := newCluster(t, a, b)
	c.simulated(4)
	t.Setenv("BERTH_SIM_DIR", c.file("box"))
	c.submit(t, "--gres=shard:1", "--array=0-1")
	for i := range 2 {
		if got := c.await(t, i); got.Outcome != job.OK {
			t.Errorf("job %d: %+v", i, got)
		}
		begun, err := handover.ReadBegun(c.batch, i)
		if err != nil || len(begun.GPUs) != 1 {
			t.Errorf("marker %d: %+v %v", i, begun, err)
		}
	}
	if testkit.Read(t, c.file("up17")) != testkit.Read(t, c.file("up18")) {
		t.Errorf("they were on %s and %s", testkit.Read(t, c.file("up17")), testkit.Read(t, c.file("up18")))
	}
}
