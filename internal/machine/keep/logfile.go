package keep

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// logFile is a job's log, held by descriptor, because its path may lead to
// another user's file by now.
type logFile struct {
	fd      int
	from    int64 // where this attempt's output begins
	regular bool  // not a device: its end can be read, and its middle cut
}

const (
	logFlags = syscall.O_WRONLY | syscall.O_APPEND | syscall.O_CLOEXEC | syscall.O_NONBLOCK
	logMode  = 0o644
)

// mostAside is how many old logs of one name are kept; beyond that the log is
// appended to, and nothing is lost.
const mostAside = 100

// setAside renames an existing log, with the caller's permissions: NAME
// becomes NAME.old, or NAME.old.2 if that exists. If it cannot, the log is
// appended to.
func setAside(path string) {
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return
	}
	old := path + ".old"
	for n := 2; n <= mostAside+1; n++ {
		if _, err := os.Lstat(old); errors.Is(err, os.ErrNotExist) {
			_ = os.Rename(path, old)
			return
		}
		old = path + ".old." + strconv.Itoa(n)
	}
}

// excuse writes to the log why the command never ran: its user may look
// nowhere else.
func (l *logFile) excuse(why error) {
	if l != nil {
		_ = l.write([]byte("berth: " + why.Error() + "\n")) // the record says it, too
	}
}

// openLog opens the log for appending, with the caller's permissions. A named
// pipe would block the supervisor for ever, so only files and devices such as
// /dev/null are accepted.
func openLog(path string) (*logFile, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("create log directory: %w", err)
	}
	fd, err := syscall.Open(path, logFlags|syscall.O_CREAT, logMode)
	if err != nil {
		return nil, fmt.Errorf("open log %s: %w", path, err)
	}
	l, stat, err := newLog(fd)
	if err == nil && !l.regular && stat.Mode&syscall.S_IFMT != syscall.S_IFCHR {
		err = errNotAFile
	}
	if err != nil {
		syscall.Close(fd)
		return nil, fmt.Errorf("open log %s: %w", path, err)
	}
	return l, nil
}

// openLog opens the log of a job without a credential.
func (o Order) openLog() (*logFile, error) {
	if !o.LogKept {
		return openLog(o.Log)
	}
	uid := os.Geteuid()
	err := syscall.Mkdir(filepath.Dir(o.Log), 0o755)
	if err != nil && !errors.Is(err, syscall.EEXIST) {
		err = os.MkdirAll(filepath.Dir(o.Log), 0o755)
	}
	if err != nil && !errors.Is(err, syscall.EEXIST) {
		return nil, fmt.Errorf("create log directory: %w", err)
	}
	var stat syscall.Stat_t
	if err := syscall.Lstat(filepath.Dir(o.Log), &stat); err != nil {
		return nil, fmt.Errorf("log directory: %w", err)
	}
	switch {
	case stat.Mode&syscall.S_IFMT != syscall.S_IFDIR:
		return nil, fmt.Errorf("open log %s: expected a directory, found a link or a file", o.Log)
	case int(stat.Uid) != uid:
		return nil, fmt.Errorf("open log %s: its directory belongs to user %d", o.Log, stat.Uid)
	case stat.Mode&0o002 != 0:
		return nil, fmt.Errorf("open log %s: all users can write to its directory", o.Log)
	}
	return openOwnLog(o.Log, uid)
}

// openOwnLog opens the log of a job with a credential, once the process runs
// as that user. It refuses paths that another user may have prepared: a link,
// a second name of another file, a file of another user.
func openOwnLog(path string, uid int) (*logFile, error) {
	const flags = logFlags | syscall.O_NOFOLLOW
	fd, err := syscall.Open(path, flags|syscall.O_CREAT|syscall.O_EXCL, logMode)
	if errors.Is(err, syscall.ENOENT) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, fmt.Errorf("create log directory: %w", err)
		}
		fd, err = syscall.Open(path, flags|syscall.O_CREAT|syscall.O_EXCL, logMode)
	}
	made := err == nil
	if errors.Is(err, syscall.EEXIST) {
		fd, err = syscall.Open(path, flags, 0)
	}
	switch {
	case errors.Is(err, syscall.ELOOP):
		return nil, fmt.Errorf("open log %s: expected a file, found a link", path)
	case errors.Is(err, syscall.ENXIO):
		return nil, fmt.Errorf("open log %s: %w", path, errNotAFile) // a named pipe without a reader
	case err != nil:
		return nil, fmt.Errorf("open log %s: %w", path, err)
	}
	l, stat, err := newLog(fd)
	if err == nil && !made {
		err = checkOwnLog(stat, uid)
	}
	if err != nil {
		syscall.Close(fd)
		return nil, fmt.Errorf("open log %s: %w", path, err)
	}
	return l, nil
}

var errNotAFile = errors.New("not a file")

// checkOwnLog checks a file that existed before.
func checkOwnLog(stat syscall.Stat_t, uid int) error {
	const null = 1<<8 | 3 // the device number of /dev/null
	switch {
	case stat.Mode&syscall.S_IFMT == syscall.S_IFCHR && stat.Rdev == null:
		return nil
	case stat.Mode&syscall.S_IFMT != syscall.S_IFREG:
		return errNotAFile
	case int(stat.Uid) != uid:
		return fmt.Errorf("it belongs to user %d", stat.Uid)
	case stat.Nlink > 1:
		return fmt.Errorf("it has %d hard links", stat.Nlink)
	}
	return nil
}

func newLog(fd int) (*logFile, syscall.Stat_t, error) {
	var stat syscall.Stat_t
	if err := syscall.Fstat(fd, &stat); err != nil {
		return nil, stat, err
	}
	syscall.SetNonblock(fd, false)
	l := &logFile{fd: fd, regular: stat.Mode&syscall.S_IFMT == syscall.S_IFREG}
	if l.regular {
		l.from = stat.Size
	}
	return l, stat, nil
}

// reopened is the same file under another descriptor, with other flags. It is
// opened through the descriptor, so it cannot be another file.
func (l *logFile) reopened(flags int) (fd int, err error) {
	return syscall.Open("/proc/self/fd/"+strconv.Itoa(l.fd), flags|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
}

// tail reads the last bytes of what this attempt wrote.
func (l *logFile) tail(size int64) []byte {
	if !l.regular {
		return nil
	}
	var stat syscall.Stat_t
	if syscall.Fstat(l.fd, &stat) != nil {
		return nil
	}
	begin := max(l.from, stat.Size-size, 0)
	if begin >= stat.Size {
		return nil
	}
	fd := l.fd
	text := make([]byte, stat.Size-begin)
	n, err := syscall.Pread(fd, text, begin)
	if errors.Is(err, syscall.EBADF) { // it was opened for writing only
		if fd, err = l.reopened(syscall.O_RDONLY); err != nil {
			return nil
		}
		defer syscall.Close(fd)
		n, err = syscall.Pread(fd, text, begin)
	}
	if err != nil {
		return nil
	}
	return text[:n]
}

// write appends all of it.
func (l *logFile) write(data []byte) error {
	for len(data) > 0 {
		n, err := syscall.Write(l.fd, data)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

func (l *logFile) close() { syscall.Close(l.fd) }
