package run

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"berth/internal/machine/keep"
)

// fakeProc is a process table of a test's own making.
type fakeProc struct {
	t         *testing.T
	dir       string
	processes map[int]keep.Process
	clock     atomic.Int64 // in nanoseconds
}

func newFakeProc(t *testing.T) *fakeProc {
	return &fakeProc{t: t, dir: t.TempDir(), processes: map[int]keep.Process{}}
}

func (f *fakeProc) world() world {
	return world{
		proc: f.dir, now: func() time.Time { return time.Unix(1000, f.clock.Load()) },
		process: func(pid int) (keep.Process, error) {
			if p, ok := f.processes[pid]; ok {
				return p, nil
			}
			return keep.Process{}, fmt.Errorf("process %d: %w", pid, fs.ErrNotExist)
		},
	}
}

// add makes a process that has these files open.
func (f *fakeProc) add(p keep.Process, cgroup string, open ...string) {
	f.t.Helper()
	p.Start = uint64(1000 + p.PID)
	f.processes[p.PID] = p
	dir := filepath.Join(f.dir, fmt.Sprint(p.PID))
	if err := os.MkdirAll(filepath.Join(dir, "fd"), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup"), []byte(cgroup), 0o644); err != nil {
		f.t.Fatal(err)
	}
	for i, target := range open {
		if err := os.Symlink(target, filepath.Join(dir, "fd", fmt.Sprint(i))); err != nil {
			f.t.Fatal(err)
		}
	}
}

func TestANumberOfAnotherNamespaceIsBelievedOfAProcessOnTheDriver(t *testing.T) {
	f := newFakeProc(t)
	const v1 = "4:memory:/user\n1:name=systemd:/\n" // no version 2 here
	const session, elsewhere = 50, 60
	f.add(keep.Process{PID: 11, Parent: 1, Session: session}, v1, "/dev/null", "/dev/nvidiactl", "/dev/nvidia-uvm")
	f.add(keep.Process{PID: 12, Parent: 1, Session: session}, v1, "/dev/null", "/home/x/nvidia0")
	f.add(keep.Process{PID: 13, Parent: 1, Session: session, State: 'Z'}, v1)
	f.add(keep.Process{PID: 14, Parent: 1, Session: elsewhere}, v1, "/dev/nvidia0")
	f.add(keep.Process{PID: 15, Parent: 1, Session: elsewhere, State: 'Z'}, v1)
	f.add(keep.Process{PID: 16, Parent: 40, Session: elsewhere}, v1, "/dev/nvidia3")
	type answer struct{ ok, known bool }
	rows := []struct {
		name         string
		pid          int
		inside, host answer
	}{
		{"a job's process with the driver open", 11, answer{true, true}, answer{true, true}},
		{"a job's process without it can be any on the host", 12, answer{false, false}, answer{true, true}},
		{"a job's dead process has nothing open", 13, answer{true, true}, answer{true, true}},
		{"an external process with the driver open", 14, answer{false, true}, answer{false, true}},
		{"a dead external process says nothing", 15, answer{false, false}, answer{false, true}},
		{"a supervisor's child", 16, answer{true, true}, answer{true, true}},
		{"a number that nobody has here", 17, answer{false, false}, answer{false, true}},
	}
	for _, inside := range []bool{true, false} {
		w := f.world()
		w.inside = inside
		a := newAttribution(w)
		a.Set([]Holder{{Key: "1", Session: session, KeepPID: 40}})
		for _, row := range rows {
			want := row.host
			if inside {
				want = row.inside
				if _, ok := a.Local(row.pid); ok != row.host.ok {
					t.Errorf("%s: berth's own number for it is not believed", row.name)
				}
			}
			for range 2 { // these answers are remembered ones
				if _, ok, known := a.Owner(row.pid); ok != want.ok || known != want.known {
					t.Errorf("%s, inside %v: %v, %v", row.name, inside, ok, known)
				}
			}
		}
	}
}

func TestWhichNamespaceBerthIsIn(t *testing.T) {
	t.Parallel()
	for name, inside := range map[string]bool{hostNamespace: false, "pid:[4026532448]": true, "": true} {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "self", "ns"), 0o755); err != nil {
			t.Fatal(err)
		}
		if name != "" {
			if err := os.Symlink(name, filepath.Join(dir, "self", "ns", "pid")); err != nil {
				t.Fatal(err)
			}
		}
		if got := inNamespace(dir); got != inside {
			t.Errorf("%q: %v", name, got)
		}
	}
}

func TestAnExternalProcessIsLookedAtAgainAfterAMoment(t *testing.T) {
	f := newFakeProc(t)
	f.add(keep.Process{PID: 11, Parent: 1, Session: 60}, "0::/x\n")
	a := newAttribution(f.world())
	ours := []Holder{{Key: "1", Session: 50}}
	a.Set(ours)
	owned := func() bool { _, ok, _ := a.Owner(11); return ok }
	if owned() {
		t.Fatal("it is external")
	}
	f.add(keep.Process{PID: 11, Parent: 1, Session: 50}, "0::/x\n")
	if f.clock.Add(int64(unownedFor - 1)); owned() {
		t.Error("it was looked at again too soon")
	}
	if f.clock.Add(1); !owned() {
		t.Error("it stayed external")
	}
	f.add(keep.Process{PID: 12, Parent: 1, Session: 70}, "0::/x\n")
	if _, ok, known := a.Owner(12); ok || !known {
		t.Error("it is external")
	}
	a.Set(append(ours, Holder{Key: "2", Session: 70}))
	if key, ok, _ := a.Owner(12); key != "2" || !ok {
		t.Error("it stayed external when the jobs changed")
	}
	for pid := range maxAnswers + 100 {
		f.processes[100+pid] = keep.Process{PID: 100 + pid, Parent: 1, Session: 80}
		a.Owner(100 + pid)
	}
	if n := len(a.known) + len(a.external); n > maxAnswers {
		t.Errorf("%d answers are remembered", n)
	}
}
