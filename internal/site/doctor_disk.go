package site

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func parent(path string) string { return filepath.Dir(path) }

// state looks whether the state directory is where it can be trusted, or could
// be made there.
func (e exam) state(context.Context) Finding {
	dir := e.places.StateDir
	if dir == "" {
		return fail("set HOME or XDG_STATE_HOME", "there is no place for the state directory")
	}
	there := existing(e.path(dir))
	remote, err := OnNetwork(there)
	if err != nil {
		return fail("see that its file system answers", "%s: %v", dir, err)
	}
	if remote {
		return fail("set XDG_STATE_HOME to a directory on a local disk", "%s is on a network file system, where locks cannot be trusted", dir)
	}
	if e.places.Shared && !e.isRoot() {
		return ok("%s is on a local disk; whether it can be written to only root can tell", dir)
	}
	if there != e.path(dir) {
		if err := unix.Access(there, unix.W_OK|unix.X_OK); err != nil {
			return fail("make "+dir+" for the user that runs berth", "%s is not there and cannot be made in %s: %v", dir, there, err)
		}
		return ok("%s will be made, on a local disk", dir)
	}
	if err := tryWrite(there); err != nil {
		return fail("see that the disk is healthy, not full, not read-only, and the directory is the daemon's own", "%s: %v", dir, err)
	}
	return ok("%s is on a local disk that keeps what is written", dir)
}

// tryWrite writes a file, waits until it is on the disk, and removes it.
func tryWrite(dir string) error {
	file, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	if _, err := file.Write(make([]byte, 4096)); err != nil {
		return err
	}
	return file.Sync()
}

const (
	leastFreeMiB  = 100
	wantedFreeMiB = 1024
	wantedInodes  = 10000
)

func (e exam) disk(context.Context) Finding {
	there := existing(e.path(e.places.StateDir))
	var fs unix.Statfs_t
	if err := unix.Statfs(there, &fs); err != nil {
		return fail("see that its file system answers", "%s: %v", there, err)
	}
	return judgeDisk(there, int64(fs.Bavail)*fs.Bsize>>20, int64(fs.Files), int64(fs.Ffree))
}

func judgeDisk(dir string, freeMiB, inodes, freeInodes int64) Finding {
	const fix = "free some space, or shorten what berth keeps (retention in its configuration)"
	switch {
	case freeMiB < leastFreeMiB:
		return fail(fix, "%d MiB are free at %s: submissions will be refused", freeMiB, dir)
	case freeMiB < wantedFreeMiB:
		return warn(fix, "only %d MiB are free at %s", freeMiB, dir)
	case inodes > 0 && freeInodes < wantedInodes: // some file systems do not count them
		return warn(fix, "only %d more files can be made at %s", freeInodes, dir)
	}
	return ok("%d MiB are free at %s", freeMiB, dir)
}

// ledger looks at the place where all berths of this machine book what they
// have placed.
func (e exam) ledger(context.Context) Finding {
	const fix = "mount -t tmpfs -o mode=1777 tmpfs /dev/shm"
	info, err := os.Stat(e.path("/dev/shm"))
	if err != nil || !info.IsDir() {
		return warn(fix, "there is no /dev/shm: berths book in /tmp, which a restart of the machine may not clear")
	}
	if info.Mode().Perm() != 0o777 || info.Mode()&os.ModeSticky == 0 {
		return warn(fix, "/dev/shm has mode %v: berths of several users cannot book there together", info.Mode())
	}
	return ok("berths of all users book in /dev/shm")
}

func (e exam) swap(context.Context) Finding {
	var total, used int64 // KiB
	for line := range strings.Lines(e.read("/proc/swaps")) {
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[0] == "Filename" {
			continue
		}
		size, _ := strconv.ParseInt(fields[2], 10, 64)
		inUse, _ := strconv.ParseInt(fields[3], 10, 64)
		total, used = total+size, used+inUse
	}
	switch {
	case total == 0:
		return ok("no swap")
	case used > total/2:
		return warn("give jobs a memory limit (--mem), or the machine more memory", "%d of %d MiB of swap are in use: jobs wait for the disk", used>>10, total>>10)
	}
	return ok("%d of %d MiB of swap are in use", used>>10, total>>10)
}
