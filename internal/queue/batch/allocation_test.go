package batch

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/sched"
	"berth/internal/tests/testkit"
)

func TestWhatSlurmAllocated(t *testing.T) {
	t.Parallel()
	const inside = "SLURM_JOB_ID=120 SLURMD_NODENAME=n1 "
	for env, want := range map[string]sched.Host{
		inside + "SLURM_CPUS_ON_NODE=4 SLURM_MEM_PER_NODE=2000":                    {CPUs: 4, MemMiB: 2000},
		inside + "SLURM_CPUS_ON_NODE=4 SLURM_MEM_PER_CPU=500":                      {CPUs: 4, MemMiB: 2000},
		inside + "SLURM_CPUS_ON_NODE=4 SLURM_MEM_PER_GPU=900 SLURM_GPUS_ON_NODE=2": {CPUs: 4, MemMiB: 1800},
		inside + "SLURM_CPUS_ON_NODE=4 SLURM_MEM_PER_NODE=0":                       {CPUs: 4},
		inside + "SLURM_CPUS_ON_NODE=-4 SLURM_MEM_PER_NODE=x":                      {},
		inside + "SLURM_CLUSTER_NAME=berth SLURM_CPUS_ON_NODE=1":                   {},
		"SLURM_CPUS_ON_NODE=4 SLURM_MEM_PER_NODE=2000":                             {},
	} {
		o := Options{Env: strings.Fields(env)}
		if got := allocated(o.Env); got != want {
			t.Errorf("%s: %+v", env, got)
		}
		if again := o.defaults().Requeue; again != inAllocation(o.Env) {
			t.Errorf("%s: requeue is %v", env, again)
		}
	}
}

// TestWhoWasStoppedWithBerth: by a TERM that Slurm sends to all processes.
func TestWhoWasStoppedWithBerth(t *testing.T) {
	t.Parallel()
	var h halt
	if h.stopped(time.Now(), time.Second, true) {
		t.Error("no signal came")
	}
	h.note(syscall.SIGINT)
	if h.stopped(time.Now(), time.Second, false) {
		t.Error("only berth got that signal")
	}
	waits := make(chan bool)
	go func() { waits <- h.stopped(time.Now(), time.Second, false) }()
	h.note(syscall.SIGTERM)
	if !<-waits {
		t.Error("a job failed just before the signal")
	}
	if !h.stopped(time.Now(), time.Second, true) {
		t.Error("a job saved its work")
	}
	if h.stopped(time.Now().Add(-time.Minute), time.Second, false) || h.stopped(time.Now().Add(-time.Minute), time.Second, true) {
		t.Error("it ended long before")
	}
	for ran, want := range map[time.Duration]time.Duration{0: 5 * time.Millisecond, 10 * time.Second: 100 * time.Millisecond, time.Hour: haltWait} {
		if got := haltWaitWell(ran); got != want {
			t.Errorf("the end of a job that ran for %s waits %s", ran, got)
		}
	}
}

// TestAQueueOfAnotherMachineIsNotStartedAgain.
func TestAQueueOfAnotherMachineIsNotStartedAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	here, err := os.Hostname()
	testkit.Must(t, err)
	for pointer, fails := range map[string]bool{
		"": false, "other:/no/such/state": true, "other:" + dir: false, here + ":/no/such/state": false,
	} {
		testkit.Write(t, filepath.Join(dir, pointerName), pointer+"\n")
		if pointer == "" {
			testkit.Must(t, os.Remove(filepath.Join(dir, pointerName)))
		}
		if err := elsewhere(dir); (err != nil) != fails {
			t.Errorf("%q: %v", pointer, err)
		}
	}
}
