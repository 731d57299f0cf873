package gpu

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"berth/internal/tests/testkit"
)

// helperSimJob is a stand-in as "berth simjob" runs it.
func helperSimJob() {
	dir := os.Getenv("BERTH_SIM_DIR")
	cards, err := SimCards(os.LookupEnv, dir)
	if err != nil {
		panic(err)
	}
	number := func(key string) int { n, _ := strconv.Atoi(os.Getenv(key)); return n }
	os.Exit(SimJob(context.Background(), SimJobOptions{
		Dir: dir, Cards: cards, VRAMMiB: int64(number("MIB")), UtilPct: 90,
		Ramp: time.Duration(number("RAMP_MS")) * time.Millisecond, Hold: time.Duration(number("HOLD_MS")) * time.Millisecond,
		ExitCode: number("CODE"), OOMOnce: os.Getenv("OOM_ONCE"), Out: os.Stdout, Err: os.Stderr,
	}))
}

func simJobCmd(s *Sim, stderr *bytes.Buffer, env ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), "GPU_TEST_HELPER=simjob", "BERTH_SIM_DIR="+s.dirPath(), "CUDA_VISIBLE_DEVICES=0"), env...)
	cmd.Stderr = stderr
	return cmd
}

func exitCode(t *testing.T, err error, cmd *exec.Cmd) int {
	t.Helper()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode()
}

func TestSimJobGrowsHoldsAndExits(t *testing.T) {
	s := openSim(t, 2)
	var stderr bytes.Buffer
	cmd := simJobCmd(s, &stderr, "CUDA_VISIBLE_DEVICES=1,0", "MIB=1000", "RAMP_MS=400", "HOLD_MS=300", "CODE=7")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var sizes []int64
	testkit.Eventually(t, "the job to reach its size", func() bool {
		d := takeSample(t, s).Devices
		if used := d[0].UsedMiB; len(sizes) == 0 || sizes[len(sizes)-1] != used {
			sizes = append(sizes, used)
		}
		return d[0].UsedMiB == 1000 && d[1].UsedMiB == 1000 && d[0].UtilPct == 90
	})
	for i := 1; i < len(sizes); i++ {
		if sizes[i] < sizes[i-1] {
			t.Errorf("it shrank on the way: %v", sizes)
		}
	}
	if code := exitCode(t, cmd.Wait(), cmd); code != 7 {
		t.Errorf("exit %d: %s", code, &stderr)
	}
	if d := takeSample(t, s).Devices; d[0].UsedMiB != 0 {
		t.Errorf("it left %d MiB behind", d[0].UsedMiB)
	}
}

func TestSimJobSaysOutOfMemoryLikeTorch(t *testing.T) {
	s := openSim(t, 2)
	user := startUser(t, s)
	user.ask("set 1 20480")
	var stderr bytes.Buffer
	cmd := simJobCmd(s, &stderr, "CUDA_VISIBLE_DEVICES=1", "MIB=8192")
	if code := exitCode(t, cmd.Run(), cmd); code != 1 {
		t.Errorf("exit %d", code)
	}
	want := "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 4.00 GiB is free.\n"
	if stderr.String() != want {
		t.Errorf("said %q", stderr.String())
	}
}

func TestSimJobFailsOnceAndThenWorks(t *testing.T) {
	s := openSim(t, 1)
	marker := filepath.Join(t.TempDir(), "failed-once")
	var stderr bytes.Buffer
	for attempt, want := range []int{1, 0, 0} {
		cmd := simJobCmd(s, &stderr, "MIB=600", "RAMP_MS=20", "OOM_ONCE="+marker)
		if code := exitCode(t, cmd.Run(), cmd); code != want {
			t.Errorf("attempt %d: exit %d: %s", attempt, code, &stderr)
		}
	}
	if got := stderr.String(); strings.Count(got, "CUDA out of memory. Tried to allocate 300.00 MiB.") != 1 {
		t.Errorf("said %q", got)
	}
}

func TestSimJobWithoutCardsTouchesNoBox(t *testing.T) {
	s := openSim(t, 1)
	var stderr bytes.Buffer
	cmd := simJobCmd(s, &stderr, "BERTH_SIM_DIR=/nonexistent", "CUDA_VISIBLE_DEVICES=", "MIB=600", "CODE=3")
	if code := exitCode(t, cmd.Run(), cmd); code != 3 {
		t.Errorf("exit %d: %s", code, &stderr)
	}
}

func TestSimJobLeavesWhenTold(t *testing.T) {
	for sig, want := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGINT: 130} {
		s := openSim(t, 1)
		var stderr bytes.Buffer
		cmd := simJobCmd(s, &stderr, "MIB=600", "HOLD_MS=600000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "the job to hold", func() bool { return takeSample(t, s).Devices[0].UsedMiB == 600 })
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if code := exitCode(t, cmd.Wait(), cmd); code != want {
			t.Errorf("%v: exit %d", sig, code)
		}
		left, _ := os.ReadDir(filepath.Join(s.dirPath(), "procs"))
		if len(left) != 0 {
			t.Errorf("%v: left %v", sig, left)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if code := SimJob(ctx, SimJobOptions{Hold: time.Hour, Out: &bytes.Buffer{}, Err: &bytes.Buffer{}}); code != 143 {
		t.Errorf("cancelled: %d", code)
	}
}

func TestSimCards(t *testing.T) {
	s := openSim(t, 3)
	uuid := takeSample(t, s).Devices[2].UUID
	for visible, want := range map[string][]int{
		"0": {0}, "2,0": {2, 0}, " 1 , 2": {1, 2}, uuid: {2}, uuid + ",1": {2, 1}, "": nil, " ": nil,
	} {
		got, err := SimCards(func(string) (string, bool) { return visible, true }, s.dirPath())
		if err != nil || !cmp.Equal(got, want) {
			t.Errorf("%q: %v %v", visible, got, err)
		}
	}
	for _, visible := range []string{"3", "-1", "GPU-sim", "0,,1", "0-1"} {
		if got, err := SimCards(func(string) (string, bool) { return visible, true }, s.dirPath()); err == nil {
			t.Errorf("%q: %v", visible, got)
		}
	}
	if got, err := SimCards(func(string) (string, bool) { return "", false }, s.dirPath()); err != nil || !cmp.Equal(got, []int{0}) {
		t.Errorf("unset: %v %v", got, err)
	}
}

func TestSimFromEnv(t *testing.T) {
	for text, want := range map[string]int{"": 0, "4": 4, " 8 ": 8, "0": 0, "-2": -1, "many": -1, "99999": -1} {
		n, dir := SimFromEnv(func(key string) string {
			return map[string]string{"BERTH_SIM": text, "BERTH_SIM_DIR": "/box"}[key]
		})
		if n != want || dir != "/box" {
			t.Errorf("%q: %d %q", text, n, dir)
		}
	}
}
