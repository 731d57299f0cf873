package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/text/problem"
)

// conn is a connection and its owner. It is counted until it is closed.
type conn struct {
	net.Conn
	peer  Peer // on a Unix socket; on TCP every request identifies itself
	local bool // a Unix socket's: the kernel vouches for the peer
	full  bool // over the user's limit: it gets an error and is closed

	notHTTP string // see ServerOptions; empty: nothing is looked for

	once sync.Once

	mu        sync.Mutex
	release   func()
	known     bool // on TCP: it has shown a valid token
	caller    Caller
	checkedAt time.Time
}

func (c *conn) Close() error {
	defer c.once.Do(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.release()
	})
	return c.Conn.Close()
}

// Read also looks at the first byte. No request of HTTP begins with a brace, and
// a caller that sends JSON would wait for a reply that it cannot read.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n == 0 || c.notHTTP == "" {
		return n, err
	}
	reply := c.notHTTP
	if c.notHTTP = ""; p[0] != '{' {
		return n, err
	}
	_, _ = io.WriteString(c.Conn, reply) // it is closed next
	return 0, io.EOF
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
	limits  Limits
	tally   *tally
	notHTTP string
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
		peer.Way.Via = viaSocket
		most := l.limits.mostConnections(peer.UID)
		if !l.tally.admit(peer.UID, most+spareConnections, l.limits.Connections) {
			raw.Close()
			continue
		}
		return &conn{
			Conn: raw, peer: peer, local: true, full: l.tally.of(peer.UID) > most,
			release: func() { l.tally.drop(peer.UID) }, notHTTP: l.notHTTP,
		}, nil
	}
}

// tcpListener admits callers that have yet to say who they are.
type tcpListener struct {
	net.Listener
	unproven *unproven
}

func (l tcpListener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.unproven.admit(raw), nil
}

// unproven are the connections by TCP that have not shown a valid token. If
// there are too many, the oldest is closed: a caller with a token shows it at
// once, and so cannot be kept out by others that hold connections and say
// nothing.
type unproven struct {
	most int

	mu  sync.Mutex
	all []*conn // the oldest first
}

func (s *unproven) admit(raw net.Conn) *conn {
	c := &conn{Conn: raw}
	c.release = func() { s.remove(c) }
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all = append(s.all, c); len(s.all) > s.most {
		go s.all[0].Conn.Close() // its server notices, and closes the conn
		s.all = slices.Delete(s.all, 0, 1)
	}
	return c
}

// remove does nothing if the connection is no longer unproven.
func (s *unproven) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(other *conn) bool { return other == c })
}

// meet counts a connection as one of the user's whose token came with it. A
// connection that a proxy shares stays with the first. It reports whether the
// user may have one more.
func (s *Server) meet(c *conn, uid int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known {
		return true
	}
	if !s.userConns.admit(uid, s.limits.mostConnections(uid), s.limits.Connections) {
		return false
	}
	forget := c.release
	forget()
	c.known = true
	c.release = func() { s.userConns.drop(uid) }
	return true
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
