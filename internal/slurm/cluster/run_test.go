package cluster_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"berth/internal/tests/testkit"
)

// runs starts berth run for a jobs file, and returns what it prints.
func (b *berth) runs(jobs string, args ...string) (*exec.Cmd, *testkit.Buffer) {
	b.t.Helper()
	testkit.Write(b.t, b.file("jobs.txt"), jobs)
	cmd := b.command(append([]string{"run", "jobs.txt", "--poll", "0.2", "--to", "slurm"}, args...)...)
	out := &testkit.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	testkit.Must(b.t, cmd.Start())
	b.t.Cleanup(func() {
		if _ = cmd.Process.Kill(); b.t.Failed() {
			b.t.Logf("berth run printed:\n%s", out)
		}
	})
	return cmd, out
}

// status waits for a berth run to end.
func status(cmd *exec.Cmd) int {
	_ = cmd.Wait() // the status says how
	return cmd.ProcessState.ExitCode()
}

// TestRunAJobsFileOnSlurm: a jobs file of this machine runs there unchanged, also one
// with a line that stays here.
func TestRunAJobsFileOnSlurm(t *testing.T) {
	t.Parallel()
	b := pitch(t, testkit.NewSlurm(t, testkit.SlurmSetup{}))
	cmd, out := b.runs(`# what a workstation ran
[name=gpu] echo "on a GPU: $CUDA_VISIBLE_DEVICES"; touch gpu.done
[name=second gpus=0 after=gpu] test -e gpu.done && echo second
[name=fails gpus=0] exit 3
[name=never gpus=0 after=fails] echo never
[name=again gpus=0 retries=1 retry_on=fail] echo x >>again; [ $(wc -l <again) = 2 ]
[name=here gpus=0 to=local] echo "not on Slurm: ${SLURM_JOB_ID:-no}"
`)
	if got := status(cmd); got != 3 {
		t.Errorf("exit status %d", got)
	}
	contains(t, out.String(), "6 jobs in jobs.txt", "is in Slurm's queue as", "job 1 (gpu) started on slurm n", "4 ok", "job 3 (fails) failed [exit:3]")
	for id, want := range map[string]string{"1/1": "on a GPU: 0\n", "2/1": "second\n", "6/1": "not on Slurm: no\n"} {
		if got := testkit.Read(t, b.file("berth_logs/jobs/"+id+".log")); got != want {
			t.Errorf("log %s: %q", id, got)
		}
	}
	if _, err := os.Stat(b.file("berth_logs/jobs/4/1.log")); err == nil {
		t.Error("a job ran whose dependency failed")
	}
	testkit.Eventually(t, "Slurm's queue is empty", func() bool { return b.slurm.Must(t, "squeue", "--noheader") == "" })
}

// TestAKilledRunOnSlurmGoesOn: the jobs do too, and the same command finds them.
func TestAKilledRunOnSlurmGoesOn(t *testing.T) {
	t.Parallel()
	b := pitch(t, testkit.NewSlurm(t, testkit.SlurmSetup{CPUs: 2}))
	jobs := strings.Repeat("[gpus=0] echo $BERTH_JOB_ID >>ran; while [ ! -e go ]; do sleep 0.1; done\n", 4)
	cmd, out := b.runs(jobs)
	contains(t, awaits(t, out, "started on slurm"), "4 jobs in jobs.txt, all for Slurm")
	testkit.Must(t, cmd.Process.Kill())
	status(cmd)
	testkit.Write(t, b.file("go"), "")
	cmd, out = b.runs(jobs)
	if got := status(cmd); got != 0 {
		t.Errorf("exit status %d", got)
	}
	contains(t, out.String(), "4 ok")
	if ran := strings.Fields(testkit.Read(t, b.file("ran"))); len(ran) != 4 {
		t.Errorf("these ran: %v", ran)
	}
}

// TestAnInterruptedRunOnSlurm: the jobs stay with Slurm until somebody cancels them.
func TestAnInterruptedRunOnSlurm(t *testing.T) {
	t.Parallel()
	b := pitch(t, testkit.NewSlurm(t, testkit.SlurmSetup{CPUs: 2}))
	jobs := strings.Repeat("[gpus=0] trap 'echo saved >>saved; exit 0' TERM; touch up; while :; do sleep 0.1; done\n", 6)
	cmd, out := b.runs(jobs)
	awaits(t, out, "started on slurm")
	testkit.Eventually(t, "one is up", func() bool { _, err := os.Stat(b.file("up")); return err == nil })
	testkit.Must(t, cmd.Process.Signal(syscall.SIGINT))
	if got := status(cmd); got != 130 {
		t.Errorf("exit status %d", got)
	}
	contains(t, out.String(), "6 jobs stay with Slurm")
	cmd, out = b.runs(jobs)
	awaits(t, out, "all for Slurm")
	testkit.Eventually(t, "they can be cancelled", func() bool {
		_, status := b.run("cancel", "all", "--log-dir", "berth_logs")
		return status == 0
	})
	if got := status(cmd); got != 0 {
		t.Errorf("exit status %d", got)
	}
	contains(t, out.String(), "6 cancelled")
	testkit.Eventually(t, "Slurm's queue is empty", func() bool { return b.slurm.Must(t, "squeue", "--noheader") == "" })
	contains(t, testkit.Read(t, b.file("saved")), "saved")
	if left, _ := filepath.Glob(b.file("berth_logs/jobs/6/*.log")); len(left) > 0 {
		t.Errorf("the last one ran: %v", left)
	}
}

// awaits waits until a text was printed, and returns everything that was.
func awaits(t *testing.T, out *testkit.Buffer, text string) string {
	t.Helper()
	testkit.Within(t, 2*testkit.Patience, "it prints "+text, func() bool { return strings.Contains(out.String(), text) })
	return out.String()
}
