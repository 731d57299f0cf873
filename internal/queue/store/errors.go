package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// Errors that callers branch on.
var (
	// ErrLocked: another process has the store open. It comes as a
	// *LockedError.
	ErrLocked = errors.New("store is in use")
	// ErrFull: the disk, or the user's quota on it, is full. Nothing of the
	// commit happened; the same commit may succeed later.
	ErrFull error = fullError{}
	// ErrUnwritable: the file system is read-only or reports errors. The commit
	// does not count, and the same one may succeed later: SQLite then writes
	// everything again that did not reach the disk. If the process dies before
	// another commit succeeds, the failed one may turn out to be there.
	ErrUnwritable = errors.New("the file system of the store is read-only or fails")
	// errBroken: the file is damaged. The store takes no more commits.
	errBroken = errors.New("store is broken")
	// ErrNotFound: no job has that id.
	ErrNotFound = errors.New("no such job")
)

// fullError is the system's error for a full disk, too.
type fullError struct{}

func (fullError) Error() string { return "disk is full" }

func (fullError) Is(target error) bool { return target == unix.ENOSPC }

// LockedError says which process has the store open. PID is 0 if that is not
// known.
type LockedError struct {
	Dir   string
	PID   int
	Since time.Time
}

func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%s is in use by another berth", e.Dir)
	}
	return fmt.Sprintf("%s has been in use by process %d since %s", e.Dir, e.PID, e.Since.Format(time.DateTime))
}

// Unwrap lets errors.Is find ErrLocked.
func (e *LockedError) Unwrap() error { return ErrLocked }

// NewerSchemaError means that a later berth wrote this store.
type NewerSchemaError struct{ Found, Known int }

func (e *NewerSchemaError) Error() string {
	return fmt.Sprintf("the store was written by a newer berth (format %d, this one knows up to %d): upgrade berth, or use another directory", e.Found, e.Known)
}

// MayPass reports whether the store may take the same commit later, without
// being opened again.
func MayPass(err error) bool { return errors.Is(err, ErrFull) || errors.Is(err, ErrUnwritable) }

// classify turns the driver's error into one that callers branch on.
func (s *Store) classify(err error) error {
	var driver *sqlite.Error
	if !errors.As(err, &driver) {
		return err
	}
	switch driver.Code() & 0xff {
	case sqlite3.SQLITE_FULL:
		return fmt.Errorf("%w: %w", ErrFull, err)
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY:
		// An exhausted quota and a shared-memory file that cannot grow are both
		// reported as I/O errors. A failed sync never counts as that.
		reason := s.probe()
		switch {
		case isFull(reason) && !syncFailed(driver.Code()):
			return fmt.Errorf("%w: %w", ErrFull, err)
		case reason != nil:
			return fmt.Errorf("%w: %w: %w", ErrUnwritable, reason, err)
		}
		return fmt.Errorf("%w: %w", ErrUnwritable, err)
	}
	return classifyDamage(err)
}

// classifyDamage is classify for a store that is only read: it writes no probe.
func classifyDamage(err error) error {
	var driver *sqlite.Error
	if !errors.As(err, &driver) {
		return err
	}
	switch driver.Code() & 0xff {
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	return err
}

func syncFailed(code int) bool {
	return code == sqlite3.SQLITE_IOERR_FSYNC || code == sqlite3.SQLITE_IOERR_DIR_FSYNC
}

// probe asks the file system what is wrong with it, by writing a little more than
// the largest step by which SQLite's files grow. SQLite's own error does not say.
func (s *Store) probe() error {
	file, err := os.CreateTemp(s.dir, "probe-")
	if err == nil {
		_, err = file.Write(make([]byte, 128<<10))
		err = errors.Join(err, file.Close(), os.Remove(filepath.Clean(file.Name())))
	}
	if reason := unix.Errno(0); errors.As(err, &reason) {
		return reason // without the name of the file
	}
	return err
}

func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
