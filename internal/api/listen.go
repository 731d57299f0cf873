package api

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// errInUse means that a running daemon listens there.
var errInUse = errors.New("another daemon listens there")

// backlog is how many callers may wait to be accepted.
const backlog = 4096

// Listen makes the daemon's socket. It replaces the socket of a dead daemon,
// refuses if a daemon is running (errInUse), and leaves any other file alone.
// The socket is bound under another name and then moved, so that clients never
// find it with other permissions than mode, or not yet listening.
//
// A missing parent directory is created: private (0700) for a private socket.
func Listen(socket string, mode os.FileMode) (net.Listener, error) {
	parent := filepath.Dir(socket)
	parentMode := os.FileMode(0o755)
	if mode.Perm()&0o077 == 0 {
		parentMode = 0o700
	}
	if err := os.MkdirAll(parent, parentMode); err != nil {
		return nil, fmt.Errorf("create the socket's directory: %w", err)
	}
	dir, err := unix.Open(parent, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", parent, err)
	}
	keepDir := false
	defer func() {
		if !keepDir {
			unix.Close(dir)
		}
	}()
	if _, done, err := address(socket); err != nil {
		return nil, fmt.Errorf("listen at %s: %w", socket, err)
	} else {
		done()
	}
	if err := checkPlace(dir, socket); err != nil {
		return nil, err
	}
	temporary := ".sock-" + rand.Text()[:12]
	inner, inode, err := bindAt(dir, temporary, mode)
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", socket, err)
	}
	if err := unix.Renameat(dir, temporary, dir, filepath.Base(socket)); err != nil {
		inner.Close()
		_ = unix.Unlinkat(dir, temporary, 0) // it was ours alone
		return nil, fmt.Errorf("put the socket at %s: %w", socket, err)
	}
	keepDir = true
	return &listener{UnixListener: inner, socket: socket, dir: dir, inode: inode}, nil
}

// checkPlace reports whether the path is free: it does not exist, or a dead
// daemon left it.
func checkPlace(dir int, socket string) error {
	var stat unix.Stat_t
	err := unix.Fstatat(dir, filepath.Base(socket), &stat, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return fmt.Errorf("look at %s: %w", socket, err)
	case stat.Mode&unix.S_IFMT != unix.S_IFSOCK:
		return fmt.Errorf("listen at %s: expected a socket or nothing, found another kind of file", socket)
	}
	c, err := dialSocket(context.Background(), socket)
	switch {
	case err == nil:
		c.Close()
		return fmt.Errorf("listen at %s: %w", socket, errInUse)
	case errors.Is(err, unix.EAGAIN):
		return fmt.Errorf("listen at %s: %w", socket, errInUse)
	case errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT):
		return nil
	}
	return fmt.Errorf("listen at %s: cannot tell whether a daemon is there: %w", socket, err)
}

// bindAt makes a listening socket with its final permissions: no one can connect
// between bind and listen.
func bindAt(dir int, name string, mode os.FileMode) (*net.UnixListener, uint64, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, 0, fmt.Errorf("make socket: %w", err)
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close() // the listener has a descriptor of its own
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: within(dir, name)}); err != nil {
		return nil, 0, fmt.Errorf("bind: %w", err)
	}
	bound := false
	defer func() {
		if !bound {
			_ = unix.Unlinkat(dir, name, 0) // it was ours alone
		}
	}()
	if err := unix.Fchmodat(dir, name, uint32(mode.Perm()), 0); err != nil {
		return nil, 0, fmt.Errorf("set permissions: %w", err)
	}
	var stat unix.Stat_t
	if err := unix.Fstatat(dir, name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, 0, fmt.Errorf("stat socket: %w", err)
	}
	if err := unix.Listen(fd, backlog); err != nil {
		return nil, 0, fmt.Errorf("listen: %w", err)
	}
	l, err := net.FileListener(file)
	if err != nil {
		return nil, 0, fmt.Errorf("wrap socket: %w", err)
	}
	bound = true
	return l.(*net.UnixListener), stat.Ino, nil
}

// listener removes its socket when it is closed, unless another daemon has
// replaced it.
type listener struct {
	*net.UnixListener
	socket string
	dir    int
	inode  uint64
	once   sync.Once
}

func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: l.socket, Net: "unix"} }

func (l *listener) Close() error {
	l.once.Do(func() {
		var stat unix.Stat_t
		base := filepath.Base(l.socket)
		if unix.Fstatat(l.dir, base, &stat, unix.AT_SYMLINK_NOFOLLOW) == nil && stat.Ino == l.inode {
			_ = unix.Unlinkat(l.dir, base, 0) // a stale socket is replaced at the next start
		}
		unix.Close(l.dir)
	})
	return l.UnixListener.Close()
}
