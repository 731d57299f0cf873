package node

import (
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/machine/run"
	"berth/internal/machine/site"
	"berth/internal/queue"
	"berth/internal/text/problem"
)

// roomBytes is what a store and a supervisor need, with some to spare.
const roomBytes = 64 << 20

// makePlace makes the wrapper's own directory on the node: in TMPDIR or another
// place with room. Locks and SQLite do not survive a network file system.
func makePlace() (string, error) {
	why := "it is not a directory that can be written to"
	for _, parent := range []string{os.Getenv("TMPDIR"), "/tmp", "/var/tmp", "/dev/shm"} {
		if !filepath.IsAbs(parent) {
			continue
		}
		if remote, err := site.OnNetwork(parent); err != nil || remote {
			continue
		}
		var disk unix.Statfs_t
		if err := unix.Statfs(parent, &disk); err != nil || int64(disk.Bavail)*disk.Bsize < roomBytes {
			why = "it is full"
			continue
		}
		if dir, err := os.MkdirTemp(parent, placePrefix); err == nil {
			removeLeft(parent, time.Now())
			return dir, nil
		}
	}
	return "", problem.Newf(problem.Unable, "set TMPDIR to a local directory of the node with 64 MiB of room",
		"no temporary directory of this node can be used: %s", why)
}

const placePrefix = "berth-node-"

// leftAfter is when a directory that nobody uses was left behind: its wrapper was
// killed with its guard, or is only just opening it.
const leftAfter = time.Hour

// removeLeft removes what killed wrappers of this user left in a directory.
func removeLeft(parent string, now time.Time) {
	dirs, _ := filepath.Glob(filepath.Join(parent, placePrefix+"*")) // the pattern is ours
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || now.Sub(info.ModTime()) < leftAfter || site.OwnPlace(dir) != nil {
			continue
		}
		lock, err := os.Open(filepath.Join(queue.StoreDir(dir), "lock"))
		if err != nil {
			continue
		}
		living, err := run.Living(queue.KeepDir(dir))
		if err == nil && len(living) == 0 && unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = os.RemoveAll(dir) // the next one tries again
		}
		lock.Close()
	}
}
