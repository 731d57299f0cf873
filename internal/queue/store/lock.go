package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// A process that was killed while it started another leaves its lock to the
// half-started child until that calls exec. A lock whose holder is dead is
// therefore waited for, but not forever: the pid in the file may be invisible to
// this process.
const (
	heirWait = 2 * time.Second
	heirPoll = 2 * time.Millisecond
)

// lockName is the file that is locked.
const lockName = "lock"

// takeLock makes this process the only one with the store open. The kernel
// releases the lock with the process, however it ends; the content of the file
// is for people.
func takeLock(dir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	for deadline := time.Now().Add(heirWait); errors.Is(err, unix.EWOULDBLOCK); {
		holder := readHolder(dir, file)
		if holder.alive() || time.Now().After(deadline) {
			file.Close()
			return nil, holder
		}
		time.Sleep(heirPoll)
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
	}
	// The line has a fixed length, so that it is overwritten in place and needs
	// no room on a full disk. If it cannot be written, the lock still holds.
	_, _ = file.WriteAt(fmt.Appendf(nil, "%10d %19d\n", os.Getpid(), time.Now().UnixNano()), 0)
	return file, nil
}

// releaseLock gives the lock up at once. Closing the file would leave it to a
// child that has a copy of the descriptor until it calls exec.
func releaseLock(file *os.File) error {
	return errors.Join(unix.Flock(int(file.Fd()), unix.LOCK_UN), file.Close())
}

func readHolder(dir string, file *os.File) *LockedError {
	holder := &LockedError{Dir: dir}
	line := make([]byte, 64)
	n, _ := file.ReadAt(line, 0)
	var pid int
	var nanos int64
	if _, err := fmt.Sscan(string(line[:n]), &pid, &nanos); err == nil {
		holder.PID, holder.Since = pid, time.Unix(0, nanos)
	}
	return holder
}

// alive reports whether the process named in the file is alive. One that has not
// written its number yet counts as dead: it will have written it at the next
// look. So does one of which only a zombie is left, whose last threads are about
// to release the lock.
func (l *LockedError) alive() bool {
	if l.PID <= 0 || errors.Is(unix.Kill(l.PID, 0), unix.ESRCH) {
		return false
	}
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", l.PID)) // it may be hidden and still exist
	state := stat[max(0, bytes.LastIndexByte(stat, ')')):]
	return !bytes.HasPrefix(state, []byte(") Z"))
}
