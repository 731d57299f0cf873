package api

import (
	"context"
	"io"
)

// Caller is the user who makes a request.
type Caller struct {
	UID   int    `json:"uid"`
	Name  string `json:"name"`
	Admin bool   `json:"admin"`
	// PID is the calling process, if the kernel reported it.
	PID int `json:"pid,omitempty"`
	// Token is the id of the token used instead of peer credentials.
	Token string `json:"token,omitempty"`
	// Over ends with that token, and the caller's streams with it; nil: never.
	Over context.Context `json:"-"`
	// Way is how the request came in.
	Way Way `json:"-"`
}

// Peer is what is known about a connection before the caller is identified: the
// credentials that the kernel reports on a Unix socket, a token, or a proof.
type Peer struct {
	UID, GID, PID int
	Secret        string // of a token; the ids are then meaningless
	Proof         Proof  // of a session, if it has one; likewise
	Way           Way
}

// Way is how a request reached the server.
type Way struct {
	Via      string // viaSocket, viaHTTP, viaHTTPS or viaProxy
	From     string // the caller's address; empty on a Unix socket
	Listener string // TCPOptions.ListenerID; empty on the daemon's own socket
}

// Values of Way.Via.
const (
	viaSocket = "socket" // the daemon's own, where the kernel names the caller
	viaHTTP   = "http"   // a loopback port, where anybody may listen while the daemon does not
	viaHTTPS  = "https"
	viaProxy  = "proxy" // a Unix socket behind a proxy, which sees to TLS
)

// Trusted reports whether the caller could tell that it reached this server and
// no other.
func (w Way) Trusted() bool { return w.Via != viaHTTP }

// Streams are what sends or receives more than one reply.
type Streams struct {
	// What Log and Attach return is closed when ctx ends, even during a read or
	// write, and possibly twice.
	Log    func(ctx context.Context, c Caller, q LogQuery) (LogStream, error)
	Attach func(ctx context.Context, c Caller, id string) (io.ReadWriteCloser, error)
	// Events calls send with each event until ctx is done or send fails.
	Events func(ctx context.Context, c Caller, q EventQuery, send func(Event) error) error
	Backup func(ctx context.Context, c Caller, to io.Writer) error
}

// LogStream is a log being read. Offset is where it begins, so that a client
// that lost its connection can continue. A read that reaches a dropped part
// returns a *LogGap, and the next read continues after it.
type LogStream struct {
	io.ReadCloser
	Attempt int
	Offset  int64
}
