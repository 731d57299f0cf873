package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func opened(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // its directory may be gone
	return s
}

func TestAStoreNoticesThatItsDirectoryIsGone(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state", "store")
	s := opened(t, dir)
	if err := s.Present(); err != nil {
		t.Fatalf("at first: %v", err)
	}
	if err := os.RemoveAll(filepath.Dir(dir)); err != nil {
		t.Fatal(err)
	}
	if err := s.Present(); !errors.Is(err, ErrRemoved) {
		t.Errorf("after it was removed: %v", err)
	}
	other := opened(t, dir)
	if err := s.Present(); !errors.Is(err, ErrRemoved) {
		t.Errorf("after it was made anew: %v", err)
	}
	if err := other.Present(); err != nil {
		t.Errorf("the new one: %v", err)
	}
	if s.Identity() == other.Identity() {
		t.Errorf("both are %s", s.Identity())
	}
}

func TestAStoreThatWasMovedAwayAndBackIsPresent(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state", "store")
	s := opened(t, dir)
	if err := os.Rename(dir, dir+"-away"); err != nil {
		t.Fatal(err)
	}
	if err := s.Present(); !errors.Is(err, ErrRemoved) {
		t.Errorf("away: %v", err)
	}
	if err := os.Rename(dir+"-away", dir); err != nil {
		t.Fatal(err)
	}
	if err := s.Present(); err != nil {
		t.Errorf("back: %v", err)
	}
}

func TestARemovedLockIsTakenAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := opened(t, dir)
	if err := os.Remove(filepath.Join(dir, lockName)); err != nil {
		t.Fatal(err)
	}
	if err := s.Present(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); !errors.Is(err, ErrLocked) {
		t.Errorf("a second one opens it: %v", err)
	}
	// If another was faster, it keeps it.
	if err := os.Remove(filepath.Join(dir, lockName)); err != nil {
		t.Fatal(err)
	}
	other, err := takeLock(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := s.Present(); !errors.Is(err, ErrTaken) {
		t.Errorf("after another took it: %v", err)
	}
}
