package run

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/machine/keep"
)

// backlog is how many connections may wait; usually there is one.
const backlog = 8

// address names the socket through a descriptor of its directory, because
// an address is limited to 107 bytes and a path may be longer.
func (d directory) address() (address *unix.SockaddrUnix, done func(), err error) {
	fd, err := unix.Open(string(d), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open %s: %w", d, err)
	}
	path := filepath.Join("/proc/self/fd", strconv.Itoa(fd), sockName)
	return &unix.SockaddrUnix{Name: path}, func() { unix.Close(fd) }, nil
}

// listen makes the socket at which later berths find the supervisor.
func (d directory) listen() (*os.File, error) {
	address, done, err := d.address()
	if err != nil {
		return nil, err
	}
	defer done()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("create supervisor socket: %w", err)
	}
	file := os.NewFile(uintptr(fd), sockName)
	if err := unix.Bind(fd, address); err != nil {
		file.Close()
		return nil, fmt.Errorf("bind supervisor socket in %s: %w", d, err)
	}
	if err := unix.Listen(fd, backlog); err != nil {
		file.Close()
		return nil, fmt.Errorf("listen in %s: %w", d, err)
	}
	return file, nil
}

// socketPair makes the connection that a supervisor starts with.
func socketPair() (theirs *os.File, ours *net.UnixConn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("create socket pair: %w", err)
	}
	theirs = os.NewFile(uintptr(fds[0]), "supervisor")
	if ours, err = unixConn(fds[1]); err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return theirs, ours, nil
}

func unixConn(fd int) (*net.UnixConn, error) {
	file := os.NewFile(uintptr(fd), "berth")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("wrap socket: %w", err)
	}
	return conn.(*net.UnixConn), nil
}

// dial connects to a supervisor and reads its greeting, which must contain the
// token of the directory: another program may be listening there.
func (d directory) dial(budget time.Duration) (*net.UnixConn, keep.Frame, error) {
	conn, err := d.knock(keep.Frame{Kind: keep.FrameBerth})
	if err != nil {
		return nil, keep.Frame{}, err
	}
	conn.SetReadDeadline(time.Now().Add(budget))
	hello, err := keep.ReadFrame(conn)
	if err == nil && (hello.Kind != keep.FrameHello || hello.Get("token") != d.token()) {
		err = fmt.Errorf("%w: expected the greeting of supervisor %s", keep.ErrFrame, d.token())
	}
	if err != nil {
		conn.Close()
		return nil, keep.Frame{}, fmt.Errorf("greeting of supervisor %s: %w", d.token(), err)
	}
	conn.SetReadDeadline(time.Time{})
	return conn, hello, nil
}

// knock connects to a supervisor and sends the first frame.
func (d directory) knock(first keep.Frame) (*net.UnixConn, error) {
	address, done, err := d.address()
	if err != nil {
		return nil, err
	}
	defer done()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("create socket: %w", err)
	}
	if err := unix.Connect(fd, address); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("connect to supervisor %s: %w", d.token(), err)
	}
	conn, err := unixConn(fd)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write(encode(first)); err != nil {
		conn.Close()
		return nil, fmt.Errorf("write to supervisor %s: %w", d.token(), err)
	}
	return conn, nil
}

func resumeFrame(job string, attempt int, hold []keep.Room) []byte {
	f := keep.Message(keep.FrameResume, "job", job, "attempt", attempt)
	for _, room := range hold {
		f.Fields = append(f.Fields, keep.Field{Key: "hold", Value: room.String()})
	}
	return encode(f)
}

func encode(f keep.Frame) []byte {
	bytes, err := f.Encode()
	if err != nil {
		panic("bug: " + err.Error())
	}
	return bytes
}
