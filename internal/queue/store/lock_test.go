package store

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// holdLock takes the lock through a descriptor of its own and writes a number
// into the file, as the process with that number would have.
func holdLock(t *testing.T, dir string, pid int) *os.File {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(file, "%10d %19d\n", pid, time.Now().UnixNano())
	return file
}

func TestALockThatADeadProcessLeftToItsChildIsWaitedFor(t *testing.T) {
	t.Parallel()
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	entry := exec.Command("true") // of which the entry is left until it is waited for
	if err := entry.Start(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Waitid(unix.P_PID, entry.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{gone.Process.Pid, entry.Process.Pid} {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			heir := holdLock(t, dir, pid)
			time.AfterFunc(heirWait-heirPoll, func() { heir.Close() })
			lock, err := takeLock(dir)
			if err != nil {
				t.Fatal(err)
			}
			lock.Close()
		})
	}
	_ = entry.Wait()
}

func TestALockIsFreeOnceItIsReleased(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lock, err := takeLock(dir)
	if err != nil {
		t.Fatal(err)
	}
	child, err := unix.Dup(int(lock.Fd())) // as one that was just forked has it
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(child)
	if err := releaseLock(lock); err != nil {
		t.Fatal(err)
	}
	if lock, err = takeLock(dir); err != nil {
		t.Fatal(err)
	}
	lock.Close()
}

func TestALockOfALivingProcessIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		holdLock(t, dir, os.Getppid())
		begun := time.Now()
		_, err := takeLock(dir)
		var locked *LockedError
		if !errors.As(err, &locked) || locked.PID != os.Getppid() {
			t.Fatalf("got %v, want a refusal that names %d", err, os.Getppid())
		}
		if waited := time.Since(begun); waited > 0 { // in the time of the bubble
			t.Errorf("it waited for %s", waited)
		}
	})
}

func TestALockThatIsNeverGivenUpIsRefusedInTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		holdLock(t, dir, 0)
		if _, err := takeLock(dir); !errors.Is(err, ErrLocked) {
			t.Fatalf("got %v, want a refusal", err)
		}
	})
}
