package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// maxAddressBytes is the longest address of a Unix socket.
const maxAddressBytes = 107

// A daemon whose backlog is full answers with EAGAIN; the client then tries
// again for some time.
const (
	busyPatience = 5 * time.Second
	busyPause    = 10 * time.Millisecond
)

// address is a socket's address within that limit: a long path goes through a
// descriptor of its directory, which done closes.
func address(socket string) (name string, done func(), err error) {
	if len(socket) <= maxAddressBytes {
		return socket, func() {}, nil
	}
	fd, err := unix.Open(filepath.Dir(socket), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, &os.PathError{Op: "open", Path: filepath.Dir(socket), Err: err}
	}
	name = within(fd, filepath.Base(socket))
	if len(name) > maxAddressBytes {
		unix.Close(fd)
		return "", nil, &os.PathError{Op: "connect", Path: socket, Err: unix.ENAMETOOLONG}
	}
	return name, func() { unix.Close(fd) }, nil
}

// within is a name below an open directory.
func within(dir int, base string) string {
	return filepath.Join("/proc/self/fd", strconv.Itoa(dir), base)
}

// dialSocket connects to a daemon.
func dialSocket(ctx context.Context, socket string) (net.Conn, error) {
	name, done, err := address(socket)
	if err != nil {
		return nil, &Unreachable{Socket: socket, Err: err}
	}
	defer done()
	var dialer net.Dialer
	for until := time.Now().Add(busyPatience); ; {
		c, err := dialer.DialContext(ctx, "unix", name)
		switch {
		case err == nil:
			return c, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !errors.Is(err, unix.EAGAIN) || time.Now().After(until):
			return nil, &Unreachable{Socket: socket, Err: innermost(err)}
		}
		if err := Pause(ctx, busyPause); err != nil {
			return nil, err
		}
	}
}

// innermost drops the addresses in a network error: the message names the socket
// once, as the user knows it.
func innermost(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// Pause waits before a client tries again, or until ctx is done.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Unreachable is the error when no daemon listens.
type Unreachable struct {
	Socket string // or the URL
	Err    error
}

func (u *Unreachable) Error() string {
	return fmt.Sprintf("no daemon answers at %s: %v", u.Socket, u.Err)
}

func (u *Unreachable) Unwrap() error { return u.Err }
