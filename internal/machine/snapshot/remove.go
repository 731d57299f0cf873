package snapshot

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// leaseTime is how long a queue may use a snapshot that none of its jobs
	// refers to: a submission may be on its way.
	leaseTime = 24 * time.Hour
	// goneTime is how long the snapshots of a queue that no longer exists are
	// kept: its disk may only be unmounted.
	goneTime = 30 * 24 * time.Hour
	// removeEvery is how often it is worth looking.
	removeEvery = time.Hour
	sweptName   = "swept"
)

// Due reports whether it is time to look for snapshots to remove.
func (p Place) Due(now time.Time) bool {
	info, err := os.Lstat(filepath.Join(p.Dir, sweptName))
	return errors.Is(err, fs.ErrNotExist) || err == nil && (now.Sub(info.ModTime()) > removeEvery || info.ModTime().After(now))
}

// Remove removes the snapshots that no queue needs, and unfinished ones. used are
// the ids that jobs of this queue refer to, ended ones included: they may run
// again. It does nothing while a snapshot is being made.
func (p Place) Remove(ctx context.Context, q Queue, now time.Time, used func(context.Context) (map[string]bool, error)) error {
	lock, err := p.lock(unix.LOCK_EX | unix.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	needed, err := used(ctx)
	if err != nil {
		return err
	}
	found, err := os.ReadDir(p.Dir)
	if err != nil {
		return err
	}
	for _, item := range found {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		path := filepath.Join(p.Dir, item.Name())
		switch {
		case strings.HasPrefix(item.Name(), tmpName):
			discard(path)
		case isID(item.Name()) && !p.wanted(path, q, now, needed[item.Name()]):
			// From here on it cannot be taken for a snapshot.
			gone := filepath.Join(p.Dir, tmpName+item.Name())
			if err := os.Rename(path, gone); err != nil {
				return err
			}
			discard(gone)
		}
	}
	if err := p.removeBlobs(); err != nil {
		return err
	}
	mark := filepath.Join(p.Dir, sweptName)
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		return err
	}
	return os.Chtimes(mark, now, now)
}

// wanted drops the leases that have ended, and reports whether any is left.
func (p Place) wanted(snapshot string, q Queue, now time.Time, needed bool) bool {
	leases, err := os.ReadDir(filepath.Join(snapshot, leaseDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return true
	}
	left := 0
	for _, item := range leases {
		path := filepath.Join(snapshot, leaseDir, item.Name())
		info, err := item.Info()
		if err != nil {
			left++
			continue
		}
		age := now.Sub(info.ModTime())
		own := item.Name() == q.file()
		if own && !needed && age > leaseTime || !own && age > goneTime && isGone(path) {
			_ = os.Remove(path)
			continue
		}
		left++
	}
	return left > 0 || needed
}

// isGone reports a lease of a queue whose directory does not exist.
func isGone(lease string) bool {
	dir, err := os.ReadFile(lease)
	if err != nil || len(dir) == 0 {
		return false
	}
	_, err = os.Lstat(string(dir))
	return errors.Is(err, fs.ErrNotExist)
}

// removeBlobs removes contents that no snapshot has.
func (p Place) removeBlobs() error {
	dir := filepath.Join(p.Dir, blobsDir)
	found, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, item := range found {
		info, err := item.Info()
		if err != nil {
			continue
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Nlink == 1 {
			if err := os.Remove(filepath.Join(dir, item.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
