package site

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// state checks that the state directory is on a disk that can be trusted, or
// could be created there.
func (e exam) state(context.Context) Finding {
	dir := e.places.StateDir
	if dir == "" {
		return fail("set HOME or XDG_STATE_HOME", "no state directory: HOME and XDG_STATE_HOME are not set")
	}
	there := existing(e.path(dir))
	remote, err := OnNetwork(there)
	if err != nil {
		return fail("check that its file system responds", "%s: %v", dir, err)
	}
	if remote {
		return fail("set XDG_STATE_HOME to a directory on a local disk", "%s is on a network file system, where locks cannot be trusted", dir)
	}
	if e.places.Shared && !e.isRoot() {
		return ok("%s is on a local disk; only root can check that it is writable", dir)
	}
	if there != e.path(dir) {
		if err := unix.Access(there, unix.W_OK|unix.X_OK); err != nil {
			return fail("create "+dir+" for the user that runs berth", "%s does not exist and cannot be created in %s: %v", dir, there, err)
		}
		return ok("%s will be created, on a local disk", dir)
	}
	if err := tryWrite(there); err != nil {
		return fail("check that the disk is healthy, not full and not read-only, and that the daemon owns the directory", "%s: %v", dir, err)
	}
	return ok("%s is on a local disk and writable", dir)
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
		return fail("check that its file system responds", "%s: %v", there, err)
	}
	return judgeDisk(there, int64(fs.Bavail)*fs.Bsize>>20, int64(fs.Files), int64(fs.Ffree))
}

func judgeDisk(dir string, freeMiB, inodes, freeInodes int64) Finding {
	const fix = "free some space, or shorten the retention in berth's configuration"
	switch {
	case freeMiB < leastFreeMiB:
		return fail(fix, "only %d MiB free at %s: submissions will be refused", freeMiB, dir)
	case freeMiB < wantedFreeMiB:
		return warn(fix, "only %d MiB free at %s", freeMiB, dir)
	case inodes > 0 && freeInodes < wantedInodes: // some file systems do not count them
		return warn(fix, "only %d more files can be created at %s", freeInodes, dir)
	}
	return ok("%d MiB free at %s", freeMiB, dir)
}

// ledger checks the directory where all berths of this machine record their
// bookings.
func (e exam) ledger(context.Context) Finding {
	const fix = "mount -t tmpfs -o mode=1777 tmpfs /dev/shm"
	info, err := os.Stat(e.path("/dev/shm"))
	if err != nil || !info.IsDir() {
		return warn(fix, "/dev/shm is missing: the booking ledger is in /tmp, which a reboot may not clear")
	}
	if info.Mode().Perm() != 0o777 || info.Mode()&os.ModeSticky == 0 {
		return warn(fix, "/dev/shm has mode %v: berths of several users cannot share a booking ledger", info.Mode())
	}
	const remove = "remove it as root, and restart the berths that run"
	dir := e.path("/dev/shm/berth-ledger")
	for _, file := range []struct {
		path string
		want os.FileMode
		kind string
	}{{dir, os.ModeDir, "a directory"}, {filepath.Join(dir, "lock"), 0, "a file"}} {
		info, err := os.Lstat(file.path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return ok("all users will share the booking ledger in /dev/shm")
		case err != nil:
			return warn("check /dev/shm", "the booking ledger: %v", err)
		case info.Mode().Type() != file.want:
			return fail(remove, "expected %s of the booking ledger, found %s at %s", file.kind, kindOf(info.Mode()), file.path)
		}
	}
	return ok("all users share the booking ledger in /dev/shm")
}

// kindOf names what is in the place of a file.
func kindOf(mode os.FileMode) string {
	switch mode.Type() {
	case os.ModeSymlink:
		return "a symlink"
	case os.ModeNamedPipe:
		return "a named pipe"
	case os.ModeDir:
		return "a directory"
	case 0:
		return "a file"
	}
	return "a device or socket"
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
		return warn("give jobs a memory limit (--mem), or the machine more memory", "%d of %d MiB of swap in use: jobs wait for the disk", used>>10, total>>10)
	}
	return ok("%d of %d MiB of swap in use", used>>10, total>>10)
}
