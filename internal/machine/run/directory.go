package run

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"berth/internal/machine/keep"
)

// The files in a supervisor's directory, beside copyName.
const (
	lockName   = "lock"
	recordName = "record"
	sockName   = "sock"
)

// directory is that of one supervisor, and is named by its token.
type directory string

func (d directory) file(name string) string { return filepath.Join(string(d), name) }

func (d directory) token() string { return filepath.Base(string(d)) }

// record is what the supervisor says of its job there.
func (d directory) record() (keep.Record, bool, error) { return keep.ReadRecords(d.file(recordName)) }

// holdsJob reports whether a live supervisor has begun a job: its record says
// so before there is a process.
func (d directory) holdsJob() bool {
	record, ok, err := d.record()
	return err == nil && ok && record.State != keep.Idle
}

// free reports whether no process holds the supervisor's lock. Only the
// kernel's answer counts: after any other failure the supervisor counts as
// alive.
func (d directory) free() bool {
	file, err := os.OpenFile(d.file(lockName), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return true // berth died while it created the directory
	}
	if err != nil {
		return false
	}
	defer file.Close()
	return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}

// whole reports whether a later berth could find the supervisor: somebody may
// have removed its files.
func (d directory) whole() bool {
	for _, name := range []string{lockName, recordName, sockName} {
		if _, err := os.Lstat(d.file(name)); err != nil {
			return false
		}
	}
	return true
}
