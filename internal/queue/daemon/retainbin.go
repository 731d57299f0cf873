package daemon

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// binName is where directories wait to be removed, next to those of jobs.
	binName = ".removing"
	// maxRemovals bounds the files removed at a time; the rest waits for the
	// next time.
	maxRemovals = 200_000
)

// bin removes directories that belong to users, who may have put anything into
// them and may change them meanwhile. It is safe as root because
//   - nothing below jobsDir is ever named by a path of more than one part: each
//     entry is removed, moved or opened by its name in a directory that is open
//     already, so that no link on the way is followed;
//   - a link is removed as a link, and a directory opened only if it is one at
//     that moment;
//   - a directory is emptied only after it was moved into the bin, which only
//     the daemon may enter: its owner cannot put another in its place. A mount
//     point cannot be moved, and stays.
//
// A subdirectory that is not empty is moved up into the bin as well and emptied
// there. So a tree of any depth takes three open files, no recursion and no long
// path.
type bin struct {
	jobs, dir int      // the directory of all jobs and the bin, both open
	open      *os.File // keeps dir open
	waiting   []string // names in the bin
	next      int      // number of the next entry
	left      int      // how many files may still be removed this time
	failed    error    // the first failure
}

// openBin creates the bin if it is missing. What an earlier daemon left in it is
// removed too.
func openBin(jobsDir *os.File) (*bin, error) {
	jobs := int(jobsDir.Fd())
	if err := unix.Mkdirat(jobs, binName, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("make %s: %w", binName, err)
	}
	dir, err := openDir(jobs, binName)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", binName, err)
	}
	waiting, err := dir.Readdirnames(maxRemovals)
	if err != nil && !errors.Is(err, io.EOF) {
		dir.Close()
		return nil, fmt.Errorf("read %s: %w", binName, err)
	}
	return &bin{jobs: jobs, open: dir, dir: int(dir.Fd()), waiting: waiting, left: maxRemovals}, nil
}

func (b *bin) close() { b.open.Close() }

// throw moves a job's directory into the bin. After that only processes that
// have it open can reach it.
func (b *bin) throw(name string) error { return b.move(b.jobs, name, name) }

// move gives an entry an unused name in the bin. The job's id stays part of it,
// for messages about failures.
func (b *bin) move(from int, name, id string) error {
	for {
		b.next++
		target := id + "." + strconv.Itoa(b.next)
		err := unix.Renameat(from, name, b.dir, target)
		if errors.Is(err, unix.EACCES) && ownDirectory(from, name) == nil {
			err = unix.Renameat(from, name, b.dir, target)
		}
		switch {
		case err == nil:
			b.waiting = append(b.waiting, target)
			return nil
		case errors.Is(err, unix.ENOENT): // already gone
			return nil
		case errors.Is(err, unix.EEXIST), errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EISDIR):
			continue // left by an earlier daemon
		}
		return err
	}
}

// empty removes what is in the bin. What cannot be removed stays for the next
// time.
func (b *bin) empty() error {
	for len(b.waiting) > 0 && b.left > 0 {
		last := len(b.waiting) - 1
		name := b.waiting[last]
		b.waiting = b.waiting[:last]
		b.remove(name)
	}
	if b.failed == nil && len(b.waiting) > 0 {
		return fmt.Errorf("more than %d files; the rest is removed next time", maxRemovals)
	}
	return b.failed
}

// remove deletes one entry of the bin. A round deletes everything it finds in
// it; another is needed only if its user added files meanwhile.
func (b *bin) remove(name string) {
	id, _, _ := strings.Cut(name, ".")
	for b.left > 0 {
		err := unlink(b.dir, name)
		if err == nil {
			b.left--
			return
		}
		taken := 0
		if errors.Is(err, unix.ENOTEMPTY) {
			taken, err = b.round(name, id)
		}
		if taken == 0 {
			b.fail(name, err)
			return
		}
	}
	b.waiting = append(b.waiting, name)
}

// round deletes the contents of a directory and returns how many entries there
// were.
func (b *bin) round(name, id string) (taken int, err error) {
	dir, err := openDir(b.dir, name)
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	fd := int(dir.Fd())
	for b.left > 0 {
		names, err := dir.Readdirnames(1000)
		for _, entry := range names {
			err := unlink(fd, entry)
			if errors.Is(err, unix.ENOTEMPTY) {
				err = b.move(fd, entry, id)
			}
			if err != nil {
				b.fail(name+"/"+entry, err)
				continue
			}
			taken++
			b.left--
		}
		if err != nil {
			break // the end, or a directory that cannot be read further
		}
	}
	return taken, unix.ENOTEMPTY
}

func (b *bin) fail(name string, err error) {
	if b.failed == nil {
		b.failed = fmt.Errorf("%s: %w", name, err)
	}
}

// unlink removes a file, a link, or an empty directory. A directory that is not
// empty is ENOTEMPTY; a missing entry counts as removed.
func unlink(dir int, name string) error {
	err := unix.Unlinkat(dir, name, 0)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
		if asDir := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); !errors.Is(asDir, unix.ENOTDIR) {
			err = asDir
		}
	}
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EEXIST):
		return unix.ENOTEMPTY
	}
	return err
}

// openDir opens a directory by its name in another one.
func openDir(dir int, name string) (*os.File, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	if err := ownDirectory(dir, name); err != nil && !errors.Is(err, errRoot) {
		return nil, err
	}
	fd, err := unix.Openat(dir, name, flags, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

var errRoot = errors.New("root needs no permission")

// ownDirectory gives a private daemon access to a directory that a job has
// locked. It changes only the directory it has opened, never the target of a
// link. Root needs no access and changes nothing.
func ownDirectory(dir int, name string) error {
	if os.Geteuid() == 0 {
		return errRoot
	}
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), 0o700)
}
