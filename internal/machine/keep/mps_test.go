package keep

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOrdersForAnMPSServerThatAreRefused(t *testing.T) {
	t.Parallel()
	good := func() *MPS {
		return &MPS{Control: "/bin/control", Dir: "/run/m/t.1", Cards: []string{"GPU-a"}, LimitMiB: 1, Threads: 100}
	}
	rows := []struct {
		name   string
		change func(m *MPS)
		why    string
	}{
		{"a good one", func(*MPS) {}, ""},
		{"a program that is looked for", func(m *MPS) { m.Control = "control" }, "absolute paths"},
		{"a directory that depends on another", func(m *MPS) { m.Dir = "t.1" }, "absolute paths"},
		{"no card", func(m *MPS) { m.Cards = nil }, "found 0"},
		{"two cards in one word", func(m *MPS) { m.Cards = []string{"GPU-a,GPU-b"} }, "expected the UUID of a GPU"},
		{"less memory than none", func(m *MPS) { m.LimitMiB = -1 }, "-1 MiB"},
		{"more of the card than there is", func(m *MPS) { m.Threads = 101 }, "101 percent"},
	}
	for _, row := range rows {
		o := Order{Job: "1", Argv: []string{"true"}, MPS: good()}
		row.change(o.MPS)
		err := o.Check()
		if (err == nil) != (row.why == "") || err != nil && !strings.Contains(err.Error(), row.why) {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}

func TestListsOfCPUs(t *testing.T) {
	t.Parallel()
	rows := []struct {
		list string
		in   []int
		n    int // 0: refused
	}{
		{"0", []int{0}, 1}, {"0-7,16-23", []int{0, 7, 16, 23}, 16}, {"63-64", []int{63, 64}, 2}, {"65535", []int{65535}, 1},
		{"", nil, 0}, {"a", nil, 0}, {"3-1", nil, 0}, {"1,", nil, 0}, {"-1", nil, 0}, {"65536", nil, 0}, {"0-99999999999", nil, 0},
	}
	for _, row := range rows {
		set, err := parseAffinity(row.list)
		if (err != nil) != (row.n == 0) || set.count() != row.n {
			t.Errorf("%q: %d CPUs, %v", row.list, set.count(), err)
		}
		for _, cpu := range row.in {
			if cpu/64 >= len(set) || set[cpu/64]&(1<<(cpu%64)) == 0 {
				t.Errorf("%q has no CPU %d", row.list, cpu)
			}
		}
		if o := (Order{Job: "1", Argv: []string{"true"}, Affinity: row.list}); (o.Check() != nil) != (row.n == 0 && row.list != "") {
			t.Errorf("%q: %v", row.list, o.Check())
		}
	}
}

func TestAmountsAsTheControlDaemonPrintsThem(t *testing.T) {
	t.Parallel()
	rows := []struct {
		answer  string
		wantMiB int64
		means   bool
	}{
		{"4G", 4096, true}, {"4G\n", 5001, true}, {"140G", 143771, true}, {"100M", 100, true}, {"1G", 1500, true}, {"12G", 12345, true},
		{"4096M", 4096, true}, {"4294967296", 4096, true}, {"1T", 1 << 20, true},
		{"5G", 5001, false}, {"3G", 4096, false}, {"8G", 4096, false}, {"0G", 4096, false}, {"4M", 4096, false},
		{"", 4096, false}, {"G", 4096, false}, {"Insufficient privileges for UID 1000", 4096, false},
	}
	for _, row := range rows {
		if saysMemory(row.answer, row.wantMiB) != row.means {
			t.Errorf("%q for %d MiB: %v", row.answer, row.wantMiB, !row.means)
		}
	}
}

// Only directories of servers are swept, and only those that nobody holds.
func TestWhatHostsLeftIsSwept(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	for _, name := range []string{"dead.1", "alive.1", "keep"} {
		os.MkdirAll(filepath.Join(parent, name, "pipe"), 0o755)
	}
	os.WriteFile(filepath.Join(parent, "a.file"), nil, 0o644)
	lock, err := lockFile(filepath.Join(parent, "alive.1", homeLock), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	sweepMPS(parent)
	left, _ := filepath.Glob(filepath.Join(parent, "*"))
	for i := range left {
		left[i] = filepath.Base(left[i])
	}
	if got := strings.Join(left, " "); got != "a.file alive.1 keep" {
		t.Errorf("left: %s", got)
	}
}
