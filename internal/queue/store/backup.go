package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Backup writes a complete and consistent copy of the store to a new file.
// Commits do not wait for it.
func (s *Store) Backup(target string) error {
	s.mu.Lock()
	broken := s.broken
	s.mu.Unlock()
	if broken != nil {
		return broken
	}
	if err := s.backUpAside(target); err != nil {
		return fmt.Errorf("back up store: %w", s.classify(err))
	}
	return nil
}

// backUpAside copies through a connection of its own, which sees the store as it
// was at the beginning.
func (s *Store) backUpAside(target string) error {
	ctx := context.Background()
	db, err := sql.Open("sqlite", s.address(readerCacheKiB))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }() // it only reads
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return backUp(ctx, conn, target)
}

// Restore replaces the store in a directory that no process has open. The old
// store is kept under the name it returns. The backup is opened and checked
// first, so that a bad one changes nothing. check may refuse it; present is nil
// if the old store cannot be read.
func Restore(dir, backup string, check func(present, backup *Store) error) (kept string, err error) {
	fail := func(err error) (string, error) { return "", fmt.Errorf("restore %s: %w", backup, err) }
	if err := makeDir(dir); err != nil {
		return fail(err)
	}
	lock, err := takeLock(dir)
	if err != nil {
		return fail(err)
	}
	defer lock.Close()
	trial, err := os.MkdirTemp(dir, "restore-")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(trial)
	if err := copyFile(backup, filepath.Join(trial, "berth.db")); err != nil {
		return fail(err)
	}
	// Opening checks the file and migrates it to the current format; closing
	// folds its log into it.
	s, err := Open(trial)
	if err != nil {
		return fail(err)
	}
	present := peek(dir)
	refusal := check(present, s)
	if present != nil {
		_ = present.release() // it only reads
	}
	if err := s.Close(); err != nil || refusal != nil {
		return "", cmp.Or(refusal, err)
	}
	path := filepath.Join(dir, "berth.db")
	if _, err := os.Stat(path); err == nil {
		if kept, err = setAside(dir, path); err != nil {
			return fail(err)
		}
	}
	if err := os.Rename(filepath.Join(trial, "berth.db"), path); err != nil {
		return fail(err)
	}
	if err := syncPath(dir); err != nil {
		return fail(err)
	}
	return kept, nil
}

// peek opens the store of a directory for reading alone; the lock is held. Nil:
// there is none, it is damaged, or it has another format.
func peek(dir string) *Store {
	s := &Store{dir: dir, path: filepath.Join(dir, "berth.db")}
	if _, err := os.Stat(s.path); err != nil {
		return nil
	}
	version, err := 0, error(nil)
	if s.reader, err = sql.Open("sqlite", s.address(readerCacheKiB, "query_only(1)")); err == nil {
		s.lookup, err = sql.Open("sqlite", s.address(readerCacheKiB, "query_only(1)"))
	}
	if err == nil {
		err = s.lookup.QueryRowContext(context.Background(), "PRAGMA user_version").Scan(&version)
	}
	if err != nil || version != len(migrations()) {
		_ = s.release()
		return nil
	}
	return s
}

// setAside moves a store's files to the first unused name.
func setAside(dir, path string) (kept string, err error) {
	for n := 1; ; n++ {
		kept = filepath.Join(dir, fmt.Sprintf("berth.db.before-restore-%d", n))
		if _, err := os.Stat(kept); os.IsNotExist(err) {
			break
		}
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Rename(path+suffix, kept+suffix); err != nil && !os.IsNotExist(err) {
			return "", err
		}
	}
	return kept, nil
}

func copyFile(from, to string) error {
	data, err := os.OpenFile(from, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe must not block
	if err != nil {
		return err
	}
	defer data.Close()
	if info, err := data.Stat(); err != nil || !info.Mode().IsRegular() {
		return cmp.Or(err, errors.New("not a regular file"))
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err := out.ReadFrom(data); err != nil {
		out.Close()
		return err
	}
	if err := out.Sync(); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}
