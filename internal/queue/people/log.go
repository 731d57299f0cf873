package people

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"berth/internal/job"
	"berth/internal/queue/engine"
)

// Jobs of a shared daemon have their logs in directories of root's, where users
// can create, rename and remove nothing. Only the log is the user's own, and its
// size is limited.
const (
	jobDirMode = 0o711 // users reach a log whose name they know
	logMode    = 0o600
)

// makeLog creates the log of a job's attempt for its user, unless the job has one
// elsewhere. A full disk fails no job: there may be room in a moment.
func (p *People) makeLog(j *job.Job, uid, gid int) error {
	err := makeLogIn(filepath.Join(p.JobsDir, j.ID), j.Log, uid, gid)
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("make the job's log: %w: %w", err, engine.ErrNotNow)
	case err != nil:
		return fmt.Errorf("make the job's log: %w", err)
	}
	return nil
}

func makeLogIn(path, log string, uid, gid int) error {
	if err := os.Mkdir(path, jobDirMode); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	dir := os.NewFile(uintptr(fd), path)
	defer dir.Close()
	if err := takeDir(dir); err != nil || filepath.Dir(log) != path {
		return err
	}
	return createLog(dir, filepath.Base(log), uid, gid)
}

// mostTaken bounds the files in a directory that is taken over.
const mostTaken = 1000

// takeDir gives a directory to root. An earlier version gave it to its user and
// closed it to all others, so the files in it may be readable for everybody: they
// are closed first. One with very many files stays as it is.
func takeDir(dir *os.File) error {
	info, err := dir.Stat()
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if ok && stat.Uid == 0 && info.Mode().Perm() == jobDirMode {
		return nil
	}
	if err := errors.Join(dir.Chown(0, 0), dir.Chmod(0o700)); err != nil {
		return err
	}
	names, err := dir.Readdirnames(mostTaken + 1)
	if len(names) > mostTaken {
		return dir.Chown(int(stat.Uid), int(stat.Gid))
	}
	if err != nil && len(names) > 0 {
		return err
	}
	for _, name := range names {
		fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			continue // a link or a socket, which show nothing
		}
		err = unix.Fchmod(fd, logMode)
		unix.Close(fd)
		if err != nil {
			return err
		}
	}
	return dir.Chmod(jobDirMode)
}

// createLog creates a log that belongs to the user. After a restore, numbers may
// be used a second time: a log that is not the user's is replaced.
func createLog(dir *os.File, name string, uid, gid int) error {
	at := int(dir.Fd())
	var stat unix.Stat_t
	if err := unix.Fstatat(at, name, &stat, unix.AT_SYMLINK_NOFOLLOW); err == nil {
		if stat.Mode&unix.S_IFMT == unix.S_IFREG && int(stat.Uid) == uid && stat.Nlink == 1 {
			return nil
		}
		if err := unix.Unlinkat(at, name, 0); err != nil {
			return &os.PathError{Op: "unlink", Path: filepath.Join(dir.Name(), name), Err: err}
		}
	}
	fd, err := unix.Openat(at, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, logMode)
	if err != nil {
		return &os.PathError{Op: "create", Path: filepath.Join(dir.Name(), name), Err: err}
	}
	defer unix.Close(fd)
	return unix.Fchown(fd, uid, gid)
}
