package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// The ballast is a file that only takes up room. When the disk is full it is let
// go, so that endings and cancellations can still be recorded: about 40 KiB each,
// until SQLite's log is folded into the file. Ordinary commits are refused until
// there is room for the ballast again.
const (
	ballastName  = "ballast"
	ballastShare = 32 // of the file system: a small disk has a small ballast
	minBallast   = 256 << 10
	maxBallast   = 4 << 20
)

// ballast is the room kept in a store's directory.
type ballast struct {
	path   string
	bytes  int64
	absent bool // it was let go
}

func newBallast(dir string) *ballast {
	b := &ballast{path: filepath.Join(dir, ballastName), bytes: maxBallast}
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err == nil {
		b.bytes = min(max(int64(disk.Blocks)*disk.Bsize/ballastShare, minBallast), maxBallast)
	}
	return b
}

// reserve takes the room if it is not held. Only a full disk is an error: a file
// system that cannot reserve room has no ballast.
func (b *ballast) reserve() error {
	file, err := os.OpenFile(b.path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err == nil {
		err = unix.Fallocate(int(file.Fd()), 0, 0, b.bytes)
		file.Close()
	}
	if b.absent = isFull(err); !b.absent {
		return nil
	}
	_ = os.Remove(b.path) // part of it may have been reserved
	return fmt.Errorf("%w: no room for %s", ErrFull, b.path)
}

// free frees the room. It reports whether there was any.
func (b *ballast) free() bool {
	info, err := os.Lstat(b.path)
	if err != nil || info.Size() == 0 || os.Remove(b.path) != nil {
		return false
	}
	b.absent = true
	return true
}

// refill takes the ballast again if it was let go.
func (b *ballast) refill() error {
	if !b.absent {
		return nil
	}
	return b.reserve()
}

// commitReserved is a commit that may use the ballast.
func (s *Store) commitReserved(tx Tx) error {
	err := s.commit(tx)
	if errors.Is(err, ErrFull) && s.ballast.free() {
		err = s.commit(tx)
	}
	if err == nil && s.ballast.absent {
		s.flush() // the log is used again from its beginning, and does not grow
	}
	return err
}
