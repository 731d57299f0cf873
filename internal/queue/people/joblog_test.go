package people

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"berth/internal/job"
	"berth/internal/machine/site"
	"berth/internal/tests/testkit"
)

// TestAJobsLogIsItsUsersAndItsDirectoryIsRoots: also where an earlier version
// gave the directory to the user, and where another user had the number.
func TestAJobsLogIsItsUsersAndItsDirectoryIsRoots(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("giving logs to users needs root")
	}
	state := t.TempDir()
	p := New(site.Places{StateDir: state, Shared: true}, false, nil, filepath.Join(state, "jobs"))
	testkit.Must(t, os.Mkdir(p.JobsDir, 0o711))
	dir := filepath.Join(p.JobsDir, "7")
	make := func(attempt, uid int) string {
		t.Helper()
		log := filepath.Join(dir, fmt.Sprintf("%d.log", attempt))
		testkit.Must(t, p.makeLog(&job.Job{ID: "7", Attempt: job.Attempt{Number: attempt, Log: log}}, uid, uid))
		if owner, mode := ownedBy(t, log); owner != uid || mode != 0o600 {
			t.Errorf("the log belongs to %d, mode %v", owner, mode)
		}
		if owner, mode := ownedBy(t, dir); owner != 0 || mode.Perm() != jobDirMode {
			t.Errorf("the directory belongs to %d, mode %v", owner, mode)
		}
		return log
	}
	first := make(1, 12345)
	testkit.Must(t, os.WriteFile(first, []byte("first"), 0o600))
	make(2, 12345)
	if text := testkit.Read(t, make(1, 12345)); text != "first" {
		t.Errorf("the log of the first attempt holds %q", text)
	}
	if text := testkit.Read(t, make(1, 54321)); text != "" {
		t.Errorf("another user's job got the log %q", text)
	}

	// As an earlier version left it, with what its user may have put there.
	treasure := filepath.Join(t.TempDir(), "treasure")
	testkit.Must(t, os.WriteFile(treasure, nil, 0o644), os.RemoveAll(dir), os.Mkdir(dir, 0o700), os.Chown(dir, 12345, 12345))
	testkit.Must(t, os.WriteFile(first, []byte("first"), 0o644), os.Chown(first, 12345, 12345),
		os.Symlink(treasure, filepath.Join(dir, "2.log")), os.Mkdir(filepath.Join(dir, "mine"), 0o755))
	make(2, 12345)
	if owner, mode := ownedBy(t, first); owner != 12345 || mode != 0o600 {
		t.Errorf("the first log belongs to %d, mode %v", owner, mode)
	}
	if _, mode := ownedBy(t, treasure); mode != 0o644 {
		t.Errorf("what a link led to has mode %v", mode)
	}
	elsewhere := filepath.Join(t.TempDir(), "1.log")
	testkit.Must(t, p.makeLog(&job.Job{ID: "8", Attempt: job.Attempt{Number: 1, Log: elsewhere}}, 12345, 12345))
	if _, err := os.Lstat(elsewhere); err == nil {
		t.Error("root created a log in a place that a user chose")
	}
}

func ownedBy(t *testing.T, path string) (uid int, mode os.FileMode) {
	t.Helper()
	info, err := os.Lstat(path)
	testkit.Must(t, err)
	return int(info.Sys().(*syscall.Stat_t).Uid), info.Mode()
}
