package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// DialQueue makes a client for a queue that may have no process: if nothing
// listens at the socket, open makes a server in this process, and done closes
// it. Each request looks anew, so that a queue whose process ends or begins in
// between is followed. Only root's and the caller's own process is talked to.
func DialQueue(socket string, open func() (s *Server, done func(), err error)) *Client {
	transport := &http.Transport{DisableKeepAlives: true}
	client := newClient(socket, "http://berth", "", transport)
	transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, err := dialSocket(ctx, socket)
		if _, nobody := errors.AsType[*Unreachable](err); nobody {
			return dialInside(open)
		}
		if err != nil {
			return nil, err
		}
		if err := checkOwn(c, socket); err != nil {
			c.Close()
			return nil, err
		}
		return c, client.notice(ctx, c)
	}
	return client
}

// Listening reports whether a process listens at a socket.
func Listening(ctx context.Context, socket string) bool {
	c, err := dialSocket(ctx, socket)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// dialInside connects to a server in this process, and closes the server with
// the connection.
func dialInside(open func() (*Server, func(), error)) (net.Conn, error) {
	s, done, err := open()
	if err != nil {
		return nil, err
	}
	ours, theirs, err := socketPair()
	if err != nil {
		done()
		return nil, err
	}
	l := &onlyOne{conn: make(chan net.Conn, 1), closed: make(chan struct{}), addr: theirs.LocalAddr()}
	l.conn <- theirs
	go func() { _ = s.ServeUnix(l) }() // it ends with the server
	return &inside{Conn: ours, done: func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Shutdown(now) // its only caller is gone
		done()
	}}, nil
}

func socketPair() (ours, theirs net.Conn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a pair of sockets: %w", err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "berth")
		c, connErr := net.FileConn(file)
		file.Close() // the connection has a descriptor of its own
		ends[i], err = c, errors.Join(err, connErr)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("make a pair of sockets: %w", err)
	}
	return ends[0], ends[1], nil
}

// inside is a connection to a server in this process.
type inside struct {
	net.Conn
	once sync.Once
	done func()
}

func (c *inside) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { go c.done() }) // the server may be in the middle of a reply
	return err
}

// onlyOne is a listener for one connection.
type onlyOne struct {
	conn   chan net.Conn
	once   sync.Once
	closed chan struct{}
	addr   net.Addr
}

func (l *onlyOne) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *onlyOne) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *onlyOne) Addr() net.Addr { return l.addr }
