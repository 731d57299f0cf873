package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// The reasons why a store is not where others look for it.
var (
	// ErrRemoved: the directory was removed, and perhaps made anew. What is
	// still committed is lost when the store is closed.
	ErrRemoved = errors.New("the directory of the store was removed")
	// ErrTaken: the lock was removed, and another process has the store now.
	ErrTaken = errors.New("another process has taken the store over")
)

// Present returns nil if the store is still where another process would look for
// it, and locked. If only the lock was removed, it is taken again.
func (s *Store) Present() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	if s.lock == nil {
		return errReading // it never was this process's
	}
	if isAt(s.lock, filepath.Join(s.dir, lockName)) {
		_ = s.ballast.refill() // if there is no room yet, the next look tries again
		return nil
	}
	switch there, err := os.Stat(s.path); {
	case err == nil && os.SameFile(there, s.file):
	case err == nil, errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w: %s", ErrRemoved, s.dir)
	default:
		return nil // the disk does not say; commits will
	}
	lock, err := takeLock(s.dir)
	if errors.Is(err, ErrLocked) {
		return fmt.Errorf("%w: %w", ErrTaken, err)
	}
	if err != nil {
		return err
	}
	s.lock.Close()
	s.lock = lock
	return nil
}

// isAt reports whether a path names this open file.
func isAt(file *os.File, path string) bool {
	open, err := file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(path)
	return err == nil && os.SameFile(open, there)
}

// Identity is different for every store that was ever made at a path, for as long
// as one of them is open.
func (s *Store) Identity() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	info, err := s.lock.Stat()
	if err != nil {
		return s.dir
	}
	stat := info.Sys().(*syscall.Stat_t)
	return fmt.Sprintf("%s %d:%d", s.dir, stat.Dev, stat.Ino)
}
