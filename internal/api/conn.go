package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/problem"
)

// conn is a connection and its owner. It is counted until it is closed.
type conn struct {
	net.Conn
	peer  Peer // on a Unix socket; on TCP every request identifies itself
	local bool // a Unix socket's: the kernel vouches for the peer
	full  bool // over the user's limit: it gets an error and is closed

	release func()
	once    sync.Once

	mu        sync.Mutex
	caller    Caller
	checkedAt time.Time
}

func (c *conn) Close() error {
	defer c.once.Do(c.release)
	return c.Conn.Close()
}

type connKey struct{}

// connContext gives a request its connection.
func connContext(ctx context.Context, c net.Conn) context.Context {
	if secure, isTLS := c.(*tls.Conn); isTLS {
		c = secure.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}

func connOf(ctx context.Context) *conn {
	c, isOurs := ctx.Value(connKey{}).(*conn)
	if !isOurs {
		panic("bug: a request without its connection")
	}
	return c
}

// unixListener asks the kernel for the peer of each connection and counts it.
type unixListener struct {
	net.Listener
	limits Limits
	tally  *tally
}

func (l unixListener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer, err := peerOf(raw)
		if err != nil {
			raw.Close()
			continue
		}
		most := l.limits.UserConnections
		if peer.UID == 0 {
			most = l.limits.RootConnections
		}
		if !l.tally.take(peer.UID, most+spareConnections, l.limits.Connections) {
			raw.Close()
			continue
		}
		return &conn{
			Conn: raw, peer: peer, local: true, full: l.tally.of(peer.UID) > most,
			release: func() { l.tally.drop(peer.UID) },
		}, nil
	}
}

// tcpListener counts connections of unidentified callers.
type tcpListener struct {
	net.Listener
	limits Limits
	tally  *tally
}

func (l tcpListener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if !l.tally.take(0, l.limits.TCPConnections+spareConnections, l.limits.TCPConnections+spareConnections) {
			raw.Close()
			continue
		}
		return &conn{
			Conn: raw, full: l.tally.of(0) > l.limits.TCPConnections,
			release: func() { l.tally.drop(0) },
		}, nil
	}
}

// checkOwn fails unless root or this user listens at the other end.
func checkOwn(c net.Conn, socket string) error {
	peer, err := peerOf(c)
	if err != nil {
		return err
	}
	if peer.UID != 0 && peer.UID != os.Geteuid() {
		return problem.Newf(problem.Refused, "ask an administrator to remove it, or name a daemon with BERTH_SOCKET", "%s cannot be trusted: user %d listens there, not root", socket, peer.UID)
	}
	return nil
}

// peerOf asks the kernel who is at the other end: who connected, or who listens.
func peerOf(c net.Conn) (Peer, error) {
	socket, isUnix := c.(*net.UnixConn)
	if !isUnix {
		return Peer{}, errors.New("not a Unix socket")
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return Peer{}, fmt.Errorf("reach the socket: %w", err)
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return Peer{}, fmt.Errorf("reach the socket: %w", err)
	}
	if credErr != nil {
		return Peer{}, fmt.Errorf("ask the kernel who connected: %w", credErr)
	}
	return Peer{UID: int(cred.Uid), GID: int(cred.Gid), PID: int(cred.Pid)}, nil
}
