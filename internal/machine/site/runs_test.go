package site

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"berth/internal/machine/keep"
)

// runsFor is an empty list in a directory of its own.
func runsFor(t *testing.T) Runs {
	t.Helper()
	state := t.TempDir()
	runs, err := RunsOf(func(name string) string {
		return map[string]string{"XDG_STATE_HOME": state, "XDG_CONFIG_HOME": state}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	return runs
}

func (r Runs) want(t *testing.T, dirs ...string) {
	t.Helper()
	if found := r.Running(); !slices.Equal(found, dirs) {
		t.Errorf("running: %q, want %q", found, dirs)
	}
}

// files counts what is left in the directory.
func (r Runs) files(t *testing.T, want int) {
	t.Helper()
	if entries, err := os.ReadDir(r.dir); err != nil || len(entries) != want {
		t.Errorf("%d files are left (%v), want %d: %v", len(entries), err, want, entries)
	}
}

func TestARunIsListedUntilItEnds(t *testing.T) {
	runs := runsFor(t)
	runs.want(t)
	first, err := runs.Add("/exp/b")
	if err != nil {
		t.Fatal(err)
	}
	second, err := runs.Add("/exp/a")
	if err != nil {
		t.Fatal(err)
	}
	runs.want(t, "/exp/a", "/exp/b")
	if info, err := os.Stat(runs.dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory: %v, %v", info, err)
	}
	first()
	runs.want(t, "/exp/a")
	second()
	runs.want(t)
	runs.files(t, 0)
}

// TestDeadRunsAreRemoved: a run that crashed leaves its file, and its pid may
// belong to another process by now.
func TestDeadRunsAreRemoved(t *testing.T) {
	runs := runsFor(t)
	remove, err := runs.Add("/exp/alive")
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	began, err := keep.StartTicks(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command("true")
	if err := child.Run(); err != nil {
		t.Fatal(err)
	}
	zombie := exec.Command("true")
	if err := zombie.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = zombie.Wait() }()
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, zombie.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	zombieBegan, err := keep.StartTicks(zombie.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, dead := range []string{
		fmt.Sprintf("%d-%d-1", child.Process.Pid, began),
		fmt.Sprintf("%d-%d-2", os.Getpid(), began-1), // the pid was reused
		fmt.Sprintf("%d-%d-3", zombie.Process.Pid, zombieBegan),
	} {
		write(t, filepath.Join(runs.dir, dead), "/exp/dead\n")
	}
	runs.files(t, 4)
	runs.want(t, "/exp/alive")
	runs.files(t, 1)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestStrangeFilesAreNoRuns: each has the name of a living process's file, and is
// left alone.
func TestStrangeFilesAreNoRuns(t *testing.T) {
	began, err := keep.StartTicks(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	write(t, elsewhere, "/exp/false\n")
	for name, put := range map[string]func(path string) error{
		"a relative path":   func(path string) error { return os.WriteFile(path, []byte("exp\n"), 0o600) },
		"an unfinished one": func(path string) error { return os.WriteFile(path, []byte("/exp/fal"), 0o600) },
		"garbage":           func(path string) error { return os.WriteFile(path, []byte{0, 1, 2, '\n'}, 0o600) },
		"a link":            func(path string) error { return os.Symlink(elsewhere, path) },
		"a pipe":            func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a directory":       func(path string) error { return os.Mkdir(path, 0o700) },
		"too long":          func(path string) error { return os.WriteFile(path, fmt.Appendf(nil, "/%5000d\n", 0), 0o600) },
		"another user's": func(path string) error {
			if os.Geteuid() != 0 {
				return os.Symlink(elsewhere, path)
			}
			write(t, path, "/exp/false\n")
			return os.Chown(path, 12345, 12345)
		},
	} {
		t.Run(name, func(t *testing.T) {
			runs := runsFor(t)
			remove, err := runs.Add("/exp/true")
			if err != nil {
				t.Fatal(err)
			}
			defer remove()
			if err := put(filepath.Join(runs.dir, fmt.Sprintf("%d-%d-1", os.Getpid(), began))); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(runs.dir, "notes.txt"), "/exp/false\n")
			runs.want(t, "/exp/true")
			runs.files(t, 3)
		})
	}
}

// TestAListThatOthersCanWriteToIsNotBelieved: another user could name a queue of
// theirs there.
func TestAListThatOthersCanWriteToIsNotBelieved(t *testing.T) {
	runs := runsFor(t)
	remove, err := runs.Add("/exp/a")
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	if err := os.Chmod(runs.dir, 0o777); err != nil { //nolint:gosec // that is what is tested
		t.Fatal(err)
	}
	runs.want(t)
	if _, err := runs.Add("/exp/b"); err == nil {
		t.Error("a run was added to it")
	}
}
