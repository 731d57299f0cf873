package run

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// copyName is the file in a supervisor's directory with the job as berth knew
// it. It is complete before the order is sent, and nobody reads that of a
// supervisor without a job. Nothing needs it after the machine went down, so it is
// not synced.
const copyName = "job"

// maxCopy bounds what is read of one: a command and an environment.
const maxCopy = 16 << 20

// leaveCopy replaces the copy of the supervisor's earlier job, or removes it. It is
// written over the old one: a file system may write a new one to the disk at once,
// which takes as long as a short job.
func (d directory) leaveCopy(text []byte) error {
	path := d.file(copyName)
	if text == nil {
		_ = os.Remove(path) // an old one does not match the record, and is ignored
		return nil
	}
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		return nil // the supervisor is gone, which is found out soon
	}
	if err == nil {
		err = overwrite(fd, text)
		unix.Close(fd)
	}
	if err != nil {
		return fmt.Errorf("leave a copy of the job: %w", err)
	}
	return nil
}

func overwrite(fd int, text []byte) error {
	for rest := text; len(rest) > 0; {
		n, err := unix.Write(fd, rest)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		rest = rest[max(n, 0):]
	}
	return unix.Ftruncate(fd, int64(len(text)))
}

func (d directory) copy() []byte {
	path := d.file(copyName)
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() || info.Size() > maxCopy {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return text
}
