package gpu

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"berth/internal/tests/testkit"
)

func openSim(t testing.TB, n int) *Sim {
	t.Helper()
	s, err := OpenSim(filepath.Join(t.TempDir(), "sim"), n, 24576)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func takeSample(t testing.TB, s Source) Sample {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	sample, err := s.Sample(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return sample
}

func startUser(t *testing.T, s *Sim) *helper {
	return startHelper(t, "user", "BERTH_SIM_DIR="+s.dirPath())
}

func TestSimShowsWhatProcessesHold(t *testing.T) {
	s := openSim(t, 3)
	worker, desktop := startUser(t, s), startUser(t, s)
	for _, got := range []string{worker.ask("set 0,2 1000 60"), desktop.ask("graphics"), desktop.ask("set 2 300 70")} {
		if got != "ok" {
			t.Fatal(got)
		}
	}
	d := takeSample(t, s).Devices
	if d[0].UsedMiB != 1000 || d[1].UsedMiB != 0 || d[2].UsedMiB != 1300 {
		t.Errorf("used %d %d %d", d[0].UsedMiB, d[1].UsedMiB, d[2].UsedMiB)
	}
	if d[0].UtilPct != 60 || d[1].UtilPct != 0 || d[2].UtilPct != 100 {
		t.Errorf("utilisation %v %v %v", d[0].UtilPct, d[1].UtilPct, d[2].UtilPct)
	}
	if want := []Process{{PID: worker.pid(), UsedMiB: 1000, UtilPct: 60}}; !d[0].ProcessesKnown || !cmp.Equal(d[0].Processes, want) {
		t.Errorf("gpu0: %+v", d[0].Processes)
	}
	for _, p := range d[2].Processes {
		if p.Graphics != (p.PID == desktop.pid()) {
			t.Errorf("gpu2: %+v", p)
		}
	}
	if worker.ask("set 1 50"); takeSample(t, s).Devices[0].UsedMiB != 0 {
		t.Error("a process that moved still holds its old card")
	}
	if worker.ask("leave"); takeSample(t, s).Devices[1].UsedMiB != 0 {
		t.Error("a process that left still holds memory")
	}
}

func TestSimForgetsAProcessThatWasKilled(t *testing.T) {
	s := openSim(t, 1)
	user := startUser(t, s)
	user.ask("set 0 5000")
	// Not waited for, it is a zombie at first: its memory is free all the same.
	if err := user.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "memory of a killed process", func() bool { return takeSample(t, s).Devices[0].UsedMiB == 0 })
	left, err := os.ReadDir(filepath.Join(s.dirPath(), "procs"))
	if err != nil || len(left) != 0 {
		t.Errorf("files left behind: %v %v", left, err)
	}
}

func TestSimFullCardRefusesAndChangesNothing(t *testing.T) {
	s := openSim(t, 2)
	a, b := startUser(t, s), startUser(t, s)
	a.ask("set 1 20000")
	if got := b.ask("set 0,1 4000"); got != "ok" {
		t.Fatal(got)
	}
	if got := b.ask("set 0,1 5000"); got != "oom 1 1000 576 24576" {
		t.Fatal(got)
	}
	if d := takeSample(t, s).Devices; d[0].UsedMiB != 4000 || d[1].UsedMiB != 24000 {
		t.Errorf("a refused allocation changed something: %d %d", d[0].UsedMiB, d[1].UsedMiB)
	}
	if got := b.ask("set 1 4576"); got != "ok" {
		t.Errorf("the last MiB: %s", got)
	}
	if got := b.ask("set 1 4577"); got != "oom 1 1 0 24576" {
		t.Errorf("one too many: %s", got)
	}
	if got := b.ask("set 7 1"); !strings.Contains(got, "no gpu7") {
		t.Error(got)
	}
}

func TestSimTwoProcessesNeverOverfillACard(t *testing.T) {
	s := openSim(t, 1)
	a, b := startUser(t, s), startUser(t, s)
	for round := range 100 {
		a.tell("set 0 15000")
		b.tell("set 0 15000")
		gotA, gotB := a.answer(), b.answer()
		if (gotA == "ok") == (gotB == "ok") {
			t.Fatalf("round %d: %q and %q", round, gotA, gotB)
		}
		if used := takeSample(t, s).Devices[0].UsedMiB; used != 15000 {
			t.Fatalf("round %d: %d MiB used", round, used)
		}
		a.ask("leave")
		b.ask("leave")
	}
}

func TestSimIsOpenToJobsOfOtherUsers(t *testing.T) {
	s := openSim(t, 1)
	for name, want := range map[string]fs.FileMode{"procs": fs.ModeDir | fs.ModeSticky | 0o777, "lock": 0o666} {
		if info, err := os.Stat(filepath.Join(s.dirPath(), name)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v %v", name, info.Mode(), err)
		}
	}
}

// TestSimLeavesAProcessItsRecord: one that root has parked can take it away.
func TestSimLeavesAProcessItsRecord(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root parks the processes of others")
	}
	path := filepath.Join(t.TempDir(), "record")
	if err := errors.Join(os.WriteFile(path, nil, 0o644), os.Chown(path, 12345, 12346), replaceFile(path, []byte("new"))); err != nil {
		t.Fatal(err)
	}
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil || stat.Uid != 12345 || stat.Gid != 12346 || stat.Size != 3 {
		t.Errorf("it belongs to %d:%d, %d bytes: %v", stat.Uid, stat.Gid, stat.Size, err)
	}
}

func TestSimStaysTheSameOverRestarts(t *testing.T) {
	s := openSim(t, 2)
	again, err := OpenSim(s.dirPath(), 2, 24576)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(takeSample(t, s).Devices, takeSample(t, again).Devices); diff != "" {
		t.Error(diff)
	}
	user := startUser(t, s)
	user.ask("set 0 100")
	if _, err := OpenSim(s.dirPath(), 3, 24576); err == nil || !strings.Contains(err.Error(), "1 processes") {
		t.Errorf("a box in use changed its size: %v", err)
	}
	if _, err := OpenSim(s.dirPath(), 2, 8192); err == nil {
		t.Error("a box in use changed its memory")
	}
	user.kill()
	grown, err := OpenSim(s.dirPath(), 3, 8192)
	if err != nil {
		t.Fatal(err)
	}
	if d := takeSample(t, grown).Devices; len(d) != 3 || d[2].TotalMiB != 8192 {
		t.Errorf("%+v", d)
	}
}

func TestSimKeepsWhatATestWroteInTheBox(t *testing.T) {
	s := openSim(t, 2)
	path := filepath.Join(s.dirPath(), "box.json")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	edited := strings.Replace(string(data), `"reserved_mib": 0`, `"reserved_mib": 600, "numa": 1, "links": {"1": 4}`, 1)
	if err := os.WriteFile(path, []byte(edited), 0o644); err != nil {
		t.Fatal(err)
	}
	again, err := OpenSim(s.dirPath(), 2, 24576)
	if err != nil {
		t.Fatal(err)
	}
	d := takeSample(t, again).Devices
	if d[0].ReservedMiB != 600 || d[0].NUMA != 1 || d[0].Links[1] != 4 || d[1].NUMA != -1 {
		t.Errorf("%+v", d)
	}
}

func TestSimRefusesNonsense(t *testing.T) {
	for _, size := range []struct {
		n       int
		vramMiB int64
	}{{0, 1}, {-1, 1}, {1, 0}, {maxSimCards + 1, 1}} {
		if _, err := OpenSim(t.TempDir(), size.n, size.vramMiB); err == nil {
			t.Errorf("%+v was accepted", size)
		}
	}
	if _, err := joinSim(t.TempDir()); err == nil {
		t.Error("joined a box that is not there")
	}
}

func TestSimFaults(t *testing.T) {
	s := openSim(t, 2)
	user := startUser(t, s)
	user.ask("set 1 100")
	fault := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(s.dirPath(), "fault"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, text := range []string{"unreadable\n", "nonsense", "lose x"} {
		fault(text)
		if _, err := s.Sample(t.Context()); err == nil {
			t.Errorf("%q: sampled all the same", text)
		}
	}
	fault("hang")
	ctx, cancel := context.WithCancelCause(t.Context())
	gaveUp := errors.New("gave up")
	go cancel(gaveUp)
	if _, err := s.Sample(ctx); !errors.Is(err, gaveUp) {
		t.Errorf("hang: %v", err)
	}
	fault("lose 1")
	if got := takeSample(t, s); len(got.Devices) != 1 || got.Devices[0].Index != 0 || len(got.Faults) != 1 || got.Faults[0].Kind != FaultLost {
		t.Errorf("lose: %+v", got)
	}
	fault("no-processes")
	if d := takeSample(t, s).Devices[1]; d.ProcessesKnown || d.Processes != nil || d.UsedMiB != 100 {
		t.Errorf("no-processes: %+v", d)
	}
	fault("")
	if d := takeSample(t, s).Devices; len(d) != 2 || !d[1].ProcessesKnown {
		t.Errorf("after the fault: %+v", d)
	}
}

func BenchmarkSimSample(b *testing.B) {
	s := openSim(b, 8)
	p, err := joinSim(s.dirPath())
	if err != nil {
		b.Fatal(err)
	}
	if err := p.Set([]int{0, 1}, 100, 50); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		takeSample(b, s)
	}
}
