package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/job"
	"berth/internal/text/problem"
)

// Place is where a user's snapshots are:
//
//	lock             held shared while a snapshot is made, exclusively while some are removed
//	blobs/<sum>      each content once; an x follows if it is executable
//	<id>/<name>/     a snapshot, of hard links to blobs
//	<id>/for/<queue> one file per queue whose jobs may need it
//	tmp-*            unfinished, or being removed
type Place struct {
	Dir   string
	Limit int64 // bytes of one snapshot
}

const (
	blobsDir = "blobs"
	leaseDir = "for"
	lockName = "lock"
	tmpName  = "tmp-"
)

// Ask is one snapshot to make.
type Ask struct {
	Queue Queue
	Dir   string   // the job's directory, absolute
	Tree  string   // job.SnapshotAuto, or the directory to copy, absolute
	Skip  []string // directories that are never part of it, absolute
}

// Queue is a daemon or a `berth run` whose jobs use a snapshot.
type Queue struct {
	Name string // unique on this machine: the daemon's socket, or the directory of the run
	Dir  string // without this directory the queue is gone; empty: it is never considered gone
}

func (q Queue) file() string {
	sum := sha256.Sum256([]byte(q.Name))
	return hex.EncodeToString(sum[:8])
}

// Made is a finished snapshot.
type Made struct {
	job.Snapshot
	Dir     string // the job's directory without links, if it is in the tree
	Files   int
	Bytes   int64
	Notices []string // for the user
}

// Make copies a tree as it is now, unless a copy of the same content exists. The
// queue may then use it for a day; after that, Remove removes what its jobs do
// not refer to.
func (p Place) Make(ctx context.Context, a Ask) (Made, error) {
	if err := p.open(); err != nil {
		return Made{}, err
	}
	lock, err := p.lock(unix.LOCK_SH)
	if err != nil {
		return Made{}, p.failed(err)
	}
	defer lock.Close()
	a.Skip = append([]string{p.Dir}, a.Skip...)
	made, err := p.make(ctx, a)
	if changed := (*changedError)(nil); errors.As(err, &changed) {
		if made, err = p.make(ctx, a); errors.As(err, &changed) {
			return Made{}, problem.Newf(problem.Unable, "submit again when it is complete, or list it in "+ignoreFile+" if jobs do not need it", "snapshot: %v, twice", changed)
		}
	}
	return made, err
}

func (p Place) make(ctx context.Context, a Ask) (Made, error) {
	l, err := list(ctx, a)
	if err != nil {
		return Made{}, err
	}
	if err := l.check(p.Limit); err != nil {
		return Made{}, err
	}
	dir, err := l.place(a.Dir)
	if err != nil {
		return Made{}, err
	}
	if err := l.read(ctx); err != nil {
		return Made{}, keepChanged(err)
	}
	made := Made{Dir: dir, Files: l.files, Bytes: l.bytes, Notices: l.notices}
	made.Tree, made.ID = l.root, l.id()
	made.Path = filepath.Join(p.Dir, made.ID, nameOf(l.root))
	if l.repo != nil {
		made.Commit = l.repo.commit
		if made.Dirty, err = l.repo.isDirty(ctx, l.root); err != nil {
			return Made{}, err
		}
	}
	if _, err := os.Lstat(made.Path); errors.Is(err, fs.ErrNotExist) {
		if err := p.build(ctx, l, made.ID); err != nil {
			return Made{}, p.failed(keepChanged(err))
		}
	}
	if err := p.lease(made.ID, a.Queue); err != nil {
		return Made{}, p.failed(err)
	}
	return made, nil
}

// keepChanged leaves the error that Make tries again for as it is.
func keepChanged(err error) error {
	if changed := (*changedError)(nil); errors.As(err, &changed) {
		return changed
	}
	return unreadable(err)
}

// nameOf is the name of the copy: programs look at the name of their directory.
func nameOf(root string) string {
	if name := filepath.Base(root); name != "/" && name != leaseDir {
		return name
	}
	return "tree"
}

func (p Place) failed(err error) error {
	if changed := (*changedError)(nil); problem.KindOf(err) != "" || errors.As(err, &changed) || errors.Is(err, context.Canceled) {
		return err
	}
	return problem.Newf(problem.Unable, "is the disk full, or a quota reached?", "keep the snapshot in %s: %v", p.Dir, err)
}

// open makes the place, for its user alone.
func (p Place) open() error {
	if p.Dir == "" {
		return problem.Newf(problem.Unable, "set HOME or XDG_STATE_HOME", "found no directory to keep snapshots in")
	}
	err := os.MkdirAll(filepath.Dir(p.Dir), 0o700)
	if err == nil {
		err = unshared(filepath.Dir(p.Dir))
	}
	if err == nil {
		err = os.Mkdir(p.Dir, 0o700)
	}
	if err == nil || errors.Is(err, fs.ErrExist) {
		err = owned(p.Dir)
	}
	if err == nil {
		if err = os.Mkdir(filepath.Join(p.Dir, blobsDir), 0o700); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	if err != nil {
		return p.failed(err)
	}
	return nil
}

func notOwn(format string, args ...any) error {
	return problem.Newf(problem.Refused, "set XDG_STATE_HOME to a directory of your own", format, args...)
}

// unshared refuses a directory in which another user could replace the place.
func unshared(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || stat.Uid != 0 && int(stat.Uid) != os.Geteuid() || info.Mode()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0 {
		return notOwn("another user could replace the files in %s, and change the code of your jobs", dir)
	}
	return nil
}

// owned refuses a place that another user could read or change.
func owned(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || !info.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	case int(stat.Uid) != os.Geteuid():
		return notOwn("%s belongs to user %d, who could change the code of your jobs", dir, stat.Uid)
	case info.Mode().Perm()&0o077 != 0:
		return os.Chmod(dir, 0o700)
	}
	return nil
}

// lock takes the place's lock. The kernel drops it when the process ends.
func (p Place) lock(how int) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(p.Dir, lockName), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(file.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// lease notes that the queue may use a snapshot from now on.
func (p Place) lease(id string, q Queue) error {
	dir := filepath.Join(p.Dir, id, leaseDir)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	path := filepath.Join(dir, q.file())
	if err := os.WriteFile(path, []byte(q.Dir), 0o600); err != nil {
		return err
	}
	now := time.Now()
	if err := os.Chtimes(path, now, now); err != nil {
		return err
	}
	return errors.Join(syncDir(dir), syncDir(filepath.Join(p.Dir, id)))
}

// build makes a snapshot under another name first, so that one that exists is
// complete and on disk.
func (p Place) build(ctx context.Context, l *listing, id string) error {
	tmp, err := os.MkdirTemp(p.Dir, tmpName)
	if err != nil {
		return err
	}
	defer discard(tmp)
	if err := p.fill(ctx, l, filepath.Join(tmp, nameOf(l.root))); err != nil {
		return err
	}
	for _, dir := range []string{tmp, filepath.Join(p.Dir, blobsDir)} {
		if err := syncDir(dir); err != nil {
			return err
		}
	}
	err = os.Rename(tmp, filepath.Join(p.Dir, id))
	if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTEMPTY) {
		return nil // another client was faster
	}
	if err != nil {
		return err
	}
	return syncDir(p.Dir)
}

// fill makes the directories, then the files and links, and closes the
// directories for writing.
func (p Place) fill(ctx context.Context, l *listing, to string) error {
	dirs := []string{to}
	seen := map[string]bool{".": true}
	var add func(name string)
	add = func(name string) {
		if !seen[name] {
			seen[name] = true
			add(filepath.Dir(name))
			dirs = append(dirs, filepath.Join(to, name))
		}
	}
	for i := range l.entries {
		if e := &l.entries[i]; e.mode.IsDir() {
			add(e.name)
		} else {
			add(filepath.Dir(e.name))
		}
	}
	for _, dir := range dirs {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	err := l.each(ctx, func(e *entry) error {
		path := filepath.Join(to, e.name)
		switch e.mode.Type() {
		case fs.ModeSymlink:
			return os.Symlink(e.link, path)
		case 0:
			return p.place(ctx, l, e, path)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i := len(dirs) - 1; i >= 0; i-- {
		if err := errors.Join(syncDir(dirs[i]), os.Chmod(dirs[i], dirMode)); err != nil {
			return err
		}
	}
	return nil
}

// place puts a file into the snapshot: a link to its blob, which is made if it is
// missing. Where a file cannot have another name it is a copy.
func (p Place) place(ctx context.Context, l *listing, e *entry, path string) error {
	name, mode := e.sum, fs.FileMode(fileMode)
	if e.mode&0o111 != 0 {
		name, mode = name+"x", execMode
	}
	blob := filepath.Join(p.Dir, blobsDir, name)
	if !intact(blob, e.bytes) {
		if err := p.store(ctx, l, e, blob, mode); err != nil {
			return err
		}
	}
	if os.Link(blob, path) == nil {
		return nil
	}
	// The blob has too many links, or the file system knows none.
	return write(ctx, l, e, path, mode)
}

// storedAt is the time of every stored file. A file with another one was changed
// by hand.
var storedAt = time.Unix(1_000_000_000, 0)

func intact(blob string, bytes int64) bool {
	info, err := os.Lstat(blob)
	return err == nil && info.Mode().IsRegular() && info.Size() == bytes && info.ModTime().Equal(storedAt) && info.Mode().Perm()&0o222 == 0
}

// store makes a blob, in place of one that was changed. Another file with the
// same content may be stored at the same time: the first one stays.
func (p Place) store(ctx context.Context, l *listing, e *entry, blob string, mode fs.FileMode) error {
	tmp, err := os.CreateTemp(p.Dir, tmpName)
	if err != nil {
		return err
	}
	tmp.Close()
	defer os.Remove(tmp.Name())
	if err := write(ctx, l, e, tmp.Name(), mode); err != nil {
		return err
	}
	if os.Link(tmp.Name(), blob) == nil || intact(blob, e.bytes) {
		return nil
	}
	return os.Rename(tmp.Name(), blob)
}

// write copies a file to disk. It fails if the content is no longer the one that
// the snapshot is named after.
func write(ctx context.Context, l *listing, e *entry, path string, mode fs.FileMode) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	sum, err := l.readFile(ctx, e, file)
	if err == nil && sum != e.sum {
		err = &changedError{filepath.Join(l.root, e.name)}
	}
	if err != nil {
		return err
	}
	if err := errors.Join(file.Chmod(mode), os.Chtimes(path, storedAt, storedAt), file.Sync()); err != nil {
		return err
	}
	return file.Close()
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) { // some file systems cannot
		return err
	}
	return nil
}

// discard removes a directory whose directories may be closed for writing. What
// cannot be removed now is removed later.
func discard(path string) {
	_ = filepath.WalkDir(path, func(at string, item fs.DirEntry, err error) error {
		if err == nil && item.IsDir() {
			_ = os.Chmod(at, 0o700)
		}
		return nil
	})
	_ = os.RemoveAll(path)
}

func isID(name string) bool {
	return len(name) == idDigits && strings.Trim(name, "0123456789abcdef") == ""
}
