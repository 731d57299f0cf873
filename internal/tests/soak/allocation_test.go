package soak

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"berth/internal/tests/testkit"
)

// allocation is a `berth run` inside a job of a real Slurm.
type allocation struct {
	*testkit.Slurm
	dir string
	env string // set by the script
}

func newAllocation(t *testing.T, jobs string) allocation {
	t.Helper()
	a := allocation{Slurm: testkit.NewSlurm(t, testkit.SlurmSetup{GPUs: 4, CPUs: 8}), dir: t.TempDir()}
	testkit.Write(t, filepath.Join(a.dir, "jobs.txt"), jobs)
	return a
}

// submit starts the run on simulated GPUs, as many as the node has.
func (a allocation) submit(t *testing.T, options ...string) string {
	t.Helper()
	script := filepath.Join(a.dir, "script")
	testkit.Write(t, script, fmt.Sprintf("#!/bin/sh\ncd %s\nexport BERTH_LEDGER_DIR=%s/ledger %s\nexec %s run jobs.txt --sim 4 --sim-vram 10000\n", a.dir, a.dir, a.env, berthProgram()), 0o755)
	return a.Must(t, "sbatch", slices.Concat([]string{"--parsable", "--open-mode=append", "--output=" + a.dir + "/out"}, options, []string{script})...)
}

func (a allocation) state(t *testing.T, id string) string {
	t.Helper()
	return a.Must(t, "squeue", "-h", "-t", "all", "-j", id, "-o", "%T")
}

func (a allocation) read(name string) string {
	text, _ := os.ReadFile(filepath.Join(a.dir, name)) // missing: nothing yet
	return string(text)
}

func (a allocation) await(t *testing.T, id, state string) {
	t.Helper()
	if !testkit.Holds(testkit.Patience, func() bool { return a.state(t, id) == state }) {
		t.Fatalf("job %s is %s, want %s:\n%s", id, a.state(t, id), state, a.read("out"))
	}
}

// TestARunKeepsToItsAllocation: the cards, CPUs and memory that Slurm gave.
func TestARunKeepsToItsAllocation(t *testing.T) {
	a := newAllocation(t, `echo $BERTH_GPUS $CUDA_VISIBLE_DEVICES >>saw
echo $BERTH_GPUS $CUDA_VISIBLE_DEVICES >>saw
[gpus=2] echo $BERTH_GPUS $CUDA_VISIBLE_DEVICES >>saw
[gpus=3] echo three >>never
[gpus=0 cpus=2] echo cpus >>never
[gpus=0 mem=2G] echo memory >>never
`)
	first := a.Must(t, "sbatch", "--parsable", "--gres=gpu:2", "--output=/dev/null", "--wrap", "sleep 300")
	a.await(t, first, "RUNNING")
	id := a.submit(t, "--gres=gpu:2", "--mem=1000", "--cpus-per-task=1")
	testkit.Eventually(t, "the run ends", func() bool { s := a.state(t, id); return s == "FAILED" || s == "COMPLETED" })
	for _, line := range strings.Split(strings.TrimSpace(a.read("saw")), "\n") {
		if !slices.Contains([]string{"2 2", "3 3", "2,3 2,3"}, line) {
			t.Errorf("a job saw %q", line)
		}
	}
	out := a.read("out")
	if strings.Count(a.read("saw"), "\n") != 3 || a.read("never") != "" || strings.Count(out, "[INFEASIBLE]") != 3 {
		t.Errorf("saw %q, never %q:\n%s", a.read("saw"), a.read("never"), out)
	}
}

// TestARunWithoutGPUsInItsAllocation uses none, although the node has some.
func TestARunWithoutGPUsInItsAllocation(t *testing.T) {
	a := newAllocation(t, "[gpus=0] echo ran >>ran\n")
	a.env = "CUDA_VISIBLE_DEVICES=NoDevFiles"
	id := a.submit(t)
	a.await(t, id, "COMPLETED")
	if a.read("ran") != "ran\n" {
		t.Errorf("%s", a.read("out"))
	}
	testkit.Write(t, filepath.Join(a.dir, "jobs.txt"), "echo ran >>never\n")
	a.await(t, a.submit(t), "FAILED")
	if !strings.Contains(a.read("out"), "Slurm gave no GPU to this job, and the job in line 1 needs one") {
		t.Errorf("%s", a.read("out"))
	}
}

// TestARequeuedRunGoesOn: Slurm stops the run and starts it again. What had ended
// well is not repeated, and what Slurm's signal ended runs again, also if it ended
// well.
func TestARequeuedRunGoesOn(t *testing.T) {
	a := newAllocation(t, `echo once >>once
echo $BERTH_ATTEMPT $SLURM_RESTART_COUNT >>saves; [ $BERTH_ATTEMPT -gt 1 ] && exit 0; trap 'sleep 0.3; echo saved >>saves; exit 0' TERM; while :; do sleep 0.05; done
echo $BERTH_ATTEMPT >>dies; [ $BERTH_ATTEMPT -gt 1 ] && exit 0; exec sleep 300
`)
	id := a.submit(t, "--gres=gpu:4", "--requeue")
	testkit.Eventually(t, "the jobs run", func() bool { return a.read("saves") != "" && a.read("dies") != "" && a.read("once") != "" })
	testkit.Eventually(t, "the first has ended", func() bool { return strings.Contains(a.read("berth_logs/journal.jsonl"), `"outcome":"ok"`) })
	a.Must(t, "scontrol", "requeue", id)
	if !testkit.Holds(testkit.Patience, func() bool {
		switch a.state(t, id) {
		case "PENDING": // Slurm has cleaned up; it would wait for two minutes now
			_, _ = a.Run("scontrol", "update", "job="+id, "StartTime=now")
		case "FAILED": // the node refused it, as it had not cleaned up itself
			if strings.Contains(a.read("out"), "stopping 2 running jobs") {
				_, _ = a.Run("scontrol", "requeue", id)
			}
		}
		return strings.Count(a.read("dies"), "\n") >= 2 || a.state(t, id) == "COMPLETED"
	}) {
		t.Fatalf("Slurm does not start it again:\n%s\n%s", a.Must(t, "scontrol", "show", "job", id), a.read("out"))
	}
	a.await(t, id, "COMPLETED")
	// The signal that lets Slurm start it once more may come when the second
	// attempt has just begun, in Slurm's first run of the script too.
	if a.read("once") != "once\n" || !regexp.MustCompile(`^1\n([23]\n)+$`).MatchString(a.read("dies")) ||
		!regexp.MustCompile(`^1\nsaved\n([23]( [123])?\n)+$`).MatchString(a.read("saves")) {
		t.Errorf("once %q, dies %q, saves %q:\n%s", a.read("once"), a.read("dies"), a.read("saves"), a.read("out"))
	}
}

// killAll kills the run with its jobs and a supervisor, as Slurm does in the end.
func (a allocation) killAll(t *testing.T, supervisor int) {
	t.Helper()
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} { // none may see another's end
		testkit.Must(t, syscall.Kill(supervisor, sig))
		dirs, err := filepath.Glob("/proc/[0-9]*")
		testkit.Must(t, err)
		for _, dir := range dirs {
			environ, _ := os.ReadFile(filepath.Join(dir, "environ")) // it may be gone
			pid, _ := strconv.Atoi(filepath.Base(dir))
			if bytes.Contains(environ, []byte("BERTH_LEDGER_DIR="+a.dir+"/")) {
				_ = syscall.Kill(pid, sig) // likewise
			}
		}
	}
}

// TestAKilledRunGoesOn: Slurm killed everything at once, and the script is submitted
// again.
func TestAKilledRunGoesOn(t *testing.T) {
	a := newAllocation(t, `echo $PPID >supervisor; echo $BERTH_ATTEMPT >>attempts; [ $BERTH_ATTEMPT = 2 ] || exec sleep 300
echo $BERTH_ATTEMPT >>others; [ $BERTH_ATTEMPT = 2 ] || exec sleep 300
`)
	id := a.submit(t, "--gres=gpu:4")
	testkit.Eventually(t, "the jobs run", func() bool { return a.read("attempts") != "" && a.read("others") != "" })
	supervisor, err := strconv.Atoi(strings.TrimSpace(a.read("supervisor")))
	testkit.Must(t, err)
	a.killAll(t, supervisor) // the other one sees the end of its job
	testkit.Eventually(t, "Slurm's job has ended", func() bool { return a.state(t, id) != "RUNNING" && a.state(t, id) != "COMPLETING" })
	a.await(t, a.submit(t, "--gres=gpu:4"), "COMPLETED")
	if a.read("attempts") != "1\n2\n" || a.read("others") != "1\n2\n" || !strings.Contains(a.read("out"), "killed with the allocation") {
		t.Errorf("attempts %q:\n%s", a.read("attempts"), a.read("out"))
	}
}
