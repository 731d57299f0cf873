package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// takeLock makes this process the only one with the store open. The kernel
// drops the lock with the process, however it ends; what the file says is for
// people.
func takeLock(dir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		defer file.Close()
		return nil, readHolder(dir, file)
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
	}
	// The line has one length, so that it is overwritten in place and needs
	// no room on a full disk. If it cannot be written the lock holds anyway.
	_, _ = file.WriteAt(fmt.Appendf(nil, "%10d %19d\n", os.Getpid(), time.Now().UnixNano()), 0)
	return file, nil
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
