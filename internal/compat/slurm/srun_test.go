package slurm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"berth/internal/tests/testkit"
)

func TestOptionsOfSrun(t *testing.T) {
	for _, row := range []struct{ args, want, command string }{
		{"python train.py -n 4", "gpus=-1", "python train.py -n 4"},
		{"-n1 -N 1 --ntasks-per-node=1 -c 8 a", "gpus=-1 cpus=8", "a"},
		{"-n 1 --gres=gpu:2 a", "gpus=2", "a"},
		{"--gres gpu:a100:1 a", "gpus=1", "a"},
		{"--gres=gpu a", "gpus=1", "a"},
		{"--gres=none a", "gpus=0", "a"},
		{"-G2 a", "gpus=2", "a"},
		{"--gpus-per-task=h100:3 a", "gpus=-1", "a"},
		{"-N1-2 --exclusive --exact --overlap --pty --mpi=none --cpu-bind=cores -lu -K --kill-on-bad-exit=1 --label a -l", "gpus=-1", "a -l"},
		{"-D /d -o o.txt -e e.txt -i in --export=A=1 -- -a", "gpus=-1 dir=/d output=o.txt errout=e.txt input=in export=A=1", "-a"},
		{"-J name -p gpu -A lab a", "gpus=-1", "a"},
		{"-n 2 a", "gpus=-1", "a"},
		{"--container=x a", `--container: berth runs no containers`, ""},
		{"-N2 a", `--nodes: expected 1, found "2"`, ""},
		{"--ntasks a", `--ntasks: expected a whole number above 0, found "a"`, ""},
		{"--gpus=some a", `--gpus: expected [type:]number as in Slurm, found "some"`, ""},
		{"--bogus a", `unknown option "--bogus"`, ""},
		{"--exact=1 a", `unknown option "--exact=1"`, ""},
		{"-z a", `unknown option "-z"`, ""},
		{"-lz a", `unknown option "-z"`, ""},
		{"-o", `-o: expected a value, found none`, ""},
		{"--time=5 a", `--time: a step has no time limit of its own`, ""},
		{"--multi-prog a", `--multi-prog: berth starts one command`, ""},
	} {
		s := step{gpus: -1}
		command, err := s.options().parse(strings.Fields(row.args), false)
		var got strings.Builder
		if err != nil {
			got.WriteString(err.Error())
		} else {
			got.WriteString("gpus=" + map[bool]string{true: "-1", false: string(rune('0' + s.gpus))}[s.gpus < 0])
			for _, part := range []struct{ name, value string }{{"cpus", s.cpus}, {"dir", s.dir}, {"output", s.output}, {"errout", s.errout}, {"input", s.input}, {"export", s.export}} {
				if part.value != "" {
					got.WriteString(" " + part.name + "=" + part.value)
				}
			}
		}
		if err != nil && !strings.HasPrefix(got.String(), row.want) || err == nil && got.String() != row.want || strings.Join(command, " ") != row.command {
			t.Errorf("srun %s: %s, command %q; want %s, %q", row.args, got.String(), command, row.want, row.command)
		}
	}
}

func TestTheEnvironmentOfAStep(t *testing.T) {
	for _, row := range []struct{ export, want string }{
		{"", "A=1 B=2 PATH=/bin SLURM_JOB_ID=1 BERTH_GPUS=0 CUDA_VISIBLE_DEVICES=0"},
		{"ALL,C=3=4", "A=1 B=2 PATH=/bin SLURM_JOB_ID=1 BERTH_GPUS=0 CUDA_VISIBLE_DEVICES=0 C=3=4"},
		{"NONE", "SLURM_JOB_ID=1 BERTH_GPUS=0 CUDA_VISIBLE_DEVICES=0"},
		{"A,B=5", "A=1 SLURM_JOB_ID=1 BERTH_GPUS=0 CUDA_VISIBLE_DEVICES=0 B=5"},
	} {
		v := environment(strings.Fields("A=1 B=2 PATH=/bin SLURM_JOB_ID=1 BERTH_GPUS=0 CUDA_VISIBLE_DEVICES=0"))
		if err := v.only(row.export); err != nil {
			t.Error(err)
		}
		if got := strings.Join(v.list, " "); got != row.want {
			t.Errorf("--export=%s: %s, want %s", row.export, got, row.want)
		}
	}
	if environment(nil).only("A,,B") == nil {
		t.Error("an empty name is taken")
	}
}

// TestStepsShareTheCardsOfAJob: none is claimed twice, and a step that cannot have
// all that it wants keeps none.
func TestStepsShareTheCardsOfAJob(t *testing.T) {
	cards, token := []string{"4", "5", "6"}, fmt.Sprint(t.Name(), os.Getpid())
	first, ok := claimSome(token, cards, 2)
	if !ok || len(first) != 2 || first[0] != 0 || first[1] != 1 {
		t.Fatalf("the first has %v", first)
	}
	if second, ok := claimSome(token, cards, 2); ok {
		t.Errorf("the second has %v", second)
	}
	if third, ok := claimSome(token, cards, 1); !ok || third[0] != 2 {
		t.Errorf("the third has %v", third)
	}
	if _, ok := claimSome(token+" another job's", cards, 3); !ok {
		t.Error("another job's cards are taken")
	}
}

// TestInputOfAJob: it comes from srun, and a job whose srun was killed does not wait.
func TestInputOfAJob(t *testing.T) {
	pipe, done, err := feed(strings.NewReader("one\ntwo\n"))
	testkit.Must(t, err)
	defer done()
	words := fed(pipe, os.Getpid(), []string{"cat"})
	if out, err := exec.Command(words[0], words[1:]...).Output(); err != nil || string(out) != "one\ntwo\n" {
		t.Errorf("%q, %v", out, err)
	}
	gone := exec.Command("true")
	testkit.Must(t, gone.Run())
	pipe = filepath.Join(t.TempDir(), "pipe")
	testkit.Must(t, syscall.Mkfifo(pipe, 0o600))
	words = fed(pipe, gone.Process.Pid, []string{"cat"})
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err == nil || !strings.Contains(string(out), "srun was killed") {
		t.Errorf("%q, %v", out, err)
	}
}

// TestStepsAreCounted, also those that start at once, for each job on its own.
func TestStepsAreCounted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "steps")
	var wait sync.WaitGroup
	var seen [20]atomic.Int32
	for range len(seen) {
		wait.Go(func() {
			n, err := nextStep(dir, "a")
			if err != nil || n >= len(seen) {
				t.Errorf("step %d, %v", n, err)
				return
			}
			seen[n].Add(1)
		})
	}
	wait.Wait()
	for n := range seen {
		if times := seen[n].Load(); times != 1 {
			t.Errorf("%d steps have the number %d", times, n)
		}
	}
	if n, err := nextStep(dir, "b"); n != 0 || err != nil {
		t.Errorf("the first step of another job is %d, %v", n, err)
	}
	forgetSteps(dir, time.Now().Add(time.Hour))
	if n, _ := nextStep(dir, "a"); n != 0 {
		t.Errorf("an old counter is kept: %d", n)
	}
}
