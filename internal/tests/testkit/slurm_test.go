package testkit_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"berth/internal/tests/testkit"
)

// TestASlurmForTests has what was asked for, and survives what tests do to it.
func TestASlurmForTests(t *testing.T) {
	s := testkit.NewSlurm(t, testkit.SlurmSetup{Nodes: 2, GPUs: 4, CPUs: 8, Shards: 4, Types: []string{"a100", "h100"}, MinJobAge: 2, Conf: []string{"KillWait=3"}})
	if got, want := s.Must(t, "sinfo", "-h", "-o", "%D %c %G"), "2 8 gpu:a100:2,gpu:h100:2,shard:a100:8,shard:h100:8"; got != want {
		t.Errorf("sinfo: %s, want %s", got, want)
	}
	if got := s.Must(t, "scontrol", "show", "config"); !strings.Contains(got, "KillWait                = 3 sec") {
		t.Error("a line of Conf does not count")
	}
	for n := 1; n <= 2; n++ {
		s.KillNode(t, n)
		s.StartNode(t, n)
	}
	s.KillController(t)
	if out, err := s.Run("timeout", "2", "squeue"); err == nil {
		t.Errorf("squeue without slurmctld: %s", out)
	}
	s.StartController(t)
	s.StopController(t)
	s.StartController(t)
	s.Must(t, "sbatch", "--gres=gpu:h100:1", "-o", "out", "--wrap", "echo $SLURM_JOB_GPUS")
	out := filepath.Join(s.Dir, "out")
	testkit.Eventually(t, "the job ran", func() bool { raw, _ := os.ReadFile(out); return string(raw) == "2\n" })
	testkit.Eventually(t, "squeue forgets it", func() bool { return s.Must(t, "squeue", "-h", "-t", "all") == "" })
	s.StopController(t)
	s.ForgetState(t)
	s.StartController(t)
	if got := s.Must(t, "sbatch", "--parsable", "--hold", "--wrap", "true"); got != "1" {
		t.Errorf("after it forgot everything, the next job is %s", got)
	}
}

// TestASlurmWithAccounts knows ended jobs that squeue forgot.
func TestASlurmWithAccounts(t *testing.T) {
	s := testkit.NewSlurm(t, testkit.SlurmSetup{Accounts: true, MinJobAge: 1})
	id := s.Must(t, "sbatch", "--parsable", "-o", "/dev/null", "--wrap", "exit 3")
	testkit.Eventually(t, "squeue forgets it", func() bool { return s.Must(t, "squeue", "-h", "-t", "all") == "" })
	testkit.Eventually(t, "sacct knows it", func() bool {
		return s.Must(t, "sacct", "-n", "-X", "-P", "-j", id, "-o", "State,ExitCode") == "FAILED|3:0"
	})
}

// TestNothingOfASlurmOutlivesIt: also the step of a job that goes on.
func TestNothingOfASlurmOutlivesIt(t *testing.T) {
	log := ""
	t.Run("with a job", func(t *testing.T) {
		s := testkit.NewSlurm(t, testkit.SlurmSetup{})
		log = filepath.Join(s.Dir, "log") // its programs run there
		s.Must(t, "sbatch", "-o", "/dev/null", "--wrap", "touch began; while [ -e began ]; do sleep 0.1; done")
		testkit.Eventually(t, "the job began", func() bool { _, err := os.Stat(filepath.Join(s.Dir, "began")); return err == nil })
	})
	if log == "" {
		t.Skip("there was none")
	}
	testkit.Eventually(t, "no process of it is left", func() bool {
		links, _ := filepath.Glob("/proc/[0-9]*/cwd")
		return !slices.ContainsFunc(links, func(link string) bool {
			dir, _ := os.Readlink(link) // it may have ended
			return strings.HasPrefix(dir, log)
		})
	})
}
