package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrOlder: an older berth wrote the store, and only one that holds its lock may
// bring it to this format.
var ErrOlder = errors.New("the store was written by an older berth")

// errReading is why a store that was opened for reading takes no commit.
var errReading = errors.New("the store is open for reading only")

// OpenToRead opens an existing store for reading. It takes no lock, so a berth can
// start and write to the store at the same time.
func OpenToRead(dir string) (*Store, error) {
	s, err := openToRead(dir)
	if err != nil {
		return nil, fmt.Errorf("read store %s: %w", dir, err)
	}
	return s, nil
}

func openToRead(dir string) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	s := &Store{dir: dir, path: Path(dir), ballast: &ballast{}, broken: errReading}
	if s.file, err = os.Stat(s.path); err != nil { // SQLite would create it
		return nil, err
	}
	if err := s.startToRead(); err != nil {
		return nil, errors.Join(s.classify(err), s.release())
	}
	return s, nil
}

func (s *Store) startToRead() error {
	if err := s.startReading(); err != nil {
		return err
	}
	ctx := context.Background()
	version, _, err := formatOf(ctx, s.lookup, len(migrations()))
	if err != nil {
		return err
	}
	if version < len(migrations()) {
		return fmt.Errorf("%w (format %d, this one knows %d)", ErrOlder, version, len(migrations()))
	}
	return s.readCounters(ctx, s.lookup)
}
