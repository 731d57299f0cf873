package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/machine/keep"
)

// box is a launcher that knows two cards: a whole one, and a part of another.
func box() *Launcher {
	whole, part := gpu.Unknown(0, "GPU-a", "A100"), gpu.Unknown(100, "MIG-b", "A100")
	whole.Minor, whole.CPUs = 0, "0-3"
	part.Minor, part.Part, part.CPUs = 1, &gpu.Part{Of: 1, Caps: []int{30, 31}}, "2-5,8"
	l := launcher()
	l.card = func(uuid string) (gpu.Device, bool) {
		for _, d := range []gpu.Device{whole, part} {
			if d.UUID == uuid {
				return d, true
			}
		}
		return gpu.Device{}, false
	}
	l.MPSControl, l.MPSDir = "/usr/bin/nvidia-cuda-mps-control", "/run/berth/mps"
	return l
}

func granting(uuids ...string) *job.Job {
	j := &job.Job{ID: "7", Attempt: job.Attempt{Keep: "tok", Number: 2}, Spec: spec()}
	for i, uuid := range uuids {
		j.Grant.GPUs, j.Grant.UUIDs = append(j.Grant.GPUs, i), append(j.Grant.UUIDs, uuid)
	}
	return j
}

func TestTheMPSServerOfAJob(t *testing.T) {
	rows := []struct {
		name  string
		setup func(j *job.Job)
		want  *keep.MPS
	}{
		{"a job without a cap has none", func(j *job.Job) { j.Grant.BudgetMiB = 4096 }, nil},
		{"a soft cap needs none", func(j *job.Job) { j.Spec.Cap, j.Grant.BudgetMiB = "soft", 4096 }, nil},
		{"a budget is the limit on each card", func(j *job.Job) { j.Spec.Cap, j.Grant.BudgetMiB = "mps", 4096 },
			&keep.MPS{LimitMiB: 4096}},
		{"a share is also one of the multiprocessors", func(j *job.Job) { j.Spec.Cap, j.Grant.BudgetMiB, j.Grant.Share = "mps", 4096, 0.255 },
			&keep.MPS{LimitMiB: 4096, Threads: 26}},
		{"a tiny share is not the whole card", func(j *job.Job) { j.Spec.Cap, j.Grant.BudgetMiB, j.Grant.Share = "mps", 4096, 0.001 },
			&keep.MPS{LimitMiB: 4096, Threads: 1}},
		{"one that has its cards alone is held to what it declared", func(j *job.Job) { j.Spec.Cap, j.VRAMMiB = "mps", 8000 },
			&keep.MPS{LimitMiB: 8000}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			j := granting("GPU-a", "MIG-b")
			row.setup(j)
			if row.want != nil {
				row.want.Control, row.want.Dir = "/usr/bin/nvidia-cuda-mps-control", "/run/berth/mps/tok.2"
				row.want.Cards = []string{"GPU-a", "MIG-b"}
			}
			o := mustOrder(box(), j)
			if diff := cmp.Diff(row.want, o.MPS); diff != "" {
				t.Error(diff)
			}
			if err := o.Check(); err != nil {
				t.Error(err)
			}
			pipes := environment(box(), j)["CUDA_MPS_PIPE_DIRECTORY"]
			if (pipes == "/run/berth/mps/tok.2/pipe") != (row.want != nil) {
				t.Errorf("its pipes are in %q", pipes)
			}
		})
	}
}

func TestAJobDoesNotRunWithoutTheCapItAskedFor(t *testing.T) {
	l, j := box(), granting("GPU-a")
	l.MPSControl, l.NoMPS = "", "there is none"
	j.Spec.Cap, j.Grant.BudgetMiB = "mps", 4096
	if _, err := l.Order(j, l.card); err == nil || err.Error() != "cap=mps: there is none" {
		t.Errorf("%v", err)
	}
	j.Spec.Cap = "soft"
	if _, err := l.Order(j, l.card); err != nil {
		t.Error(err)
	}
}

func TestAJobWithoutTheFilterThatOthersHaveIsToldSo(t *testing.T) {
	const missing = "no device filter: the driver does not report the device files of its GPUs"
	rows := []struct {
		name   string
		change func(l *Launcher)
		job    *job.Job
		want   string
		filter bool
	}{
		{"cards that are known", nil, granting("GPU-a", "MIG-b"), "", true},
		{"no card at all", nil, granting(), "", true},
		{"a card that nothing is known of", nil, granting("GPU-a", "GPU-x"), missing, false},
		{"a card whose file is not known", func(l *Launcher) {
			l.card = func(uuid string) (gpu.Device, bool) { return gpu.Unknown(0, uuid, "A100"), true }
		}, granting("GPU-a"), missing, false},
		{"a machine without filters", func(l *Launcher) { l.Filter = false }, granting("GPU-x"), "", false},
	}
	for _, row := range rows {
		l := box()
		l.Filter = true
		if row.change != nil {
			row.change(l)
		}
		if o := mustOrder(l, row.job); o.Note != row.want || (o.Devices != nil) != row.filter {
			t.Errorf("%s: note %q, devices %v", row.name, o.Note, o.Devices)
		}
	}
}

func TestNumbersAreUsedWhereTheFilterLeavesThemTrue(t *testing.T) {
	l := box()
	l.Filter = true
	l.card = func(uuid string) (gpu.Device, bool) {
		d := gpu.Unknown(int(uuid[len(uuid)-1]-'0'), uuid, "A100")
		d.Minor = d.Index
		return d, true
	}
	for _, row := range []struct {
		cards []int
		want  string
	}{
		{[]int{0}, "0"}, {[]int{0, 1}, "0,1"}, {[]int{1, 0}, "1,0"}, {nil, ""},
		{[]int{1}, "GPU-1"}, {[]int{0, 2}, "GPU-0,GPU-2"}, {[]int{2, 1}, "GPU-2,GPU-1"},
	} {
		j := granting()
		for _, card := range row.cards {
			j.Grant.GPUs, j.Grant.UUIDs = append(j.Grant.GPUs, card), append(j.Grant.UUIDs, fmt.Sprintf("GPU-%d", card))
		}
		if got := environment(l, j)["CUDA_VISIBLE_DEVICES"]; got != row.want {
			t.Errorf("GPUs %v: CUDA_VISIBLE_DEVICES=%s, want %s", row.cards, got, row.want)
		}
		if len(row.cards) > 0 && mustOrder(l, j).Devices == nil {
			t.Errorf("GPUs %v: there is no filter", row.cards)
		}
	}
}

func TestTheCPUsNextToItsCards(t *testing.T) {
	rows := []struct {
		name, want string
		cards      []string
	}{
		{"those of one card", "0-3", []string{"GPU-a"}},
		{"those of either card", "0-5,8", []string{"GPU-a", "MIG-b"}},
		{"no list where one card does not tell", "", []string{"GPU-a", "GPU-unknown"}},
		{"no list without a card", "", nil},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			j := granting(row.cards...)
			if got := environment(box(), j)["BERTH_CPUS"]; got != row.want {
				t.Errorf("BERTH_CPUS is %q, want %q", got, row.want)
			}
			if o := mustOrder(box(), j); o.Affinity != "" {
				t.Errorf("it is pinned to %s although nobody asked", o.Affinity)
			}
			j.Spec.Pin = true
			if o := mustOrder(box(), j); o.Affinity != row.want {
				t.Errorf("it is pinned to %q, want %q", o.Affinity, row.want)
			}
		})
	}
}

func TestWhereMPSServersLive(t *testing.T) {
	short, err := mpsPlace("/run/berth")
	if err != nil || short != "/run/berth/mps" {
		t.Errorf("%q, %v", short, err)
	}
	tmp, err := os.MkdirTemp("/tmp", "p")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	t.Setenv("TMPDIR", tmp)
	deep := "/" + strings.Repeat("x", longestPlace)
	place, err := mpsPlace(deep)
	if err != nil || !strings.HasPrefix(place, tmp+"/berth-") || len(place) > longestPlace {
		t.Errorf("%q, %v", place, err)
	}
	// Nobody else may look into it; but through root's, users get to their own.
	mode := os.FileMode(0o700)
	if os.Getuid() == 0 {
		mode = 0o711
	}
	if info, err := os.Stat(filepath.Dir(place)); err != nil || info.Mode().Perm() != mode {
		t.Errorf("its mode is not %#o: %v, %v", mode, info, err)
	}
	if again, err := mpsPlace(deep); err != nil || again != place {
		t.Errorf("it is not found again: %q, %v", again, err)
	}
	// One that is stricter than it has to be is ours all the same.
	os.Chmod(filepath.Dir(place), 0o500)
	if again, err := mpsPlace(deep); err != nil || again != place {
		t.Errorf("a stricter one is not used: %q, %v", again, err)
	}
	if info, err := os.Stat(filepath.Dir(place)); err != nil || info.Mode().Perm() != mode {
		t.Errorf("a stricter one keeps its mode: %v, %v", info, err)
	}
	// Somebody else's, or one that others can write to, is not used.
	own := filepath.Dir(place)
	t.Setenv("PATH", tmp)
	os.WriteFile(filepath.Join(tmp, mpsProgram), []byte("#!/bin/sh\n"), 0o755)
	refused := func(want string) {
		t.Helper()
		l := launcher()
		l.UseMPS(deep)
		if why := l.Refuses(&job.Spec{Cap: "mps"}); !strings.HasPrefix(why, "cap=mps: "+own+want) {
			t.Errorf("it says %q, want %q", why, want)
		}
		if strings.Contains(l.MPSHint, "install") || !strings.Contains(l.MPSHint, "TMPDIR") {
			t.Errorf("the hint is %q", l.MPSHint)
		}
	}
	os.Chmod(own, 0o777)
	refused(" is open to others: its mode is 0777")
	if os.Getuid() == 0 {
		os.Chmod(own, 0o700)
		os.Chown(own, 54321, 54321)
		refused(" belongs to user 54321")
	}
	os.Remove(own)
	os.Symlink("/tmp", own)
	refused(" is not a directory")
}

func TestWhetherThereIsMPS(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	l := launcher()
	l.UseMPS("/run/berth")
	capped := &job.Spec{Cap: "mps"}
	if why := l.Refuses(capped); why != "cap=mps: this machine has no nvidia-cuda-mps-control in PATH" || !strings.Contains(l.MPSHint, "install CUDA MPS") {
		t.Errorf("%q", why)
	}
	os.WriteFile(filepath.Join(dir, mpsProgram), []byte("#!/bin/sh\n"), 0o755)
	l.UseMPS("/run/berth")
	if why := l.Refuses(capped); why != "" || l.MPSControl != filepath.Join(dir, mpsProgram) || l.MPSDir != "/run/berth/mps" {
		t.Errorf("%q, %+v", why, l)
	}
	l.SimDir = "/sim"
	l.UseMPS("/run/berth")
	if why := l.Refuses(capped); why != "cap=mps: simulated GPUs have no CUDA MPS" {
		t.Errorf("%q", why)
	}
	if why := l.Refuses(&job.Spec{Cap: "soft"}); why != "" {
		t.Errorf("%q", why)
	}
}

// The cards of this attempt, and not of the one before.
//
// seeds: S17
func TestTheCommandIsToldTheCardsOfItsAttempt(t *testing.T) {
	j := granting("GPU-a", "MIG-b")
	j.Spec.Argv, j.Spec.Shell, j.Spec.Inject = []string{"train", "--cuda", "7"}, "", "--cuda=physical"
	for _, gpus := range [][]int{{3, 1}, {0, 2}} {
		j.Grant.GPUs = gpus
		want := []string{"train", "--cuda", job.Grant{GPUs: slices.Sorted(slices.Values(gpus))}.List()}
		if o := mustOrder(box(), j); !slices.Equal(o.Argv, want) {
			t.Errorf("on cards %v it runs %q, want %q", gpus, o.Argv, want)
		}
	}
	if !slices.Equal(j.Spec.Argv, []string{"train", "--cuda", "7"}) {
		t.Errorf("what was asked for became %q", j.Spec.Argv)
	}
}
