package api

import (
	"context"
	"encoding/json"
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

// Backend is what a daemon does. Its errors are *problem.Problem where the
// caller can act on them.
type Backend interface {
	Identify(ctx context.Context, p Peer) (Caller, error)
	Status(ctx context.Context, c Caller) (Status, error)

	Submit(ctx context.Context, c Caller, r SubmitRequest) (SubmitReply, error)
	Jobs(ctx context.Context, c Caller, q Query) (JobPage, error)
	Batches(ctx context.Context, c Caller, q BatchQuery) ([]BatchSum, error)
	Job(ctx context.Context, c Caller, id string) (Detail, error)
	Why(ctx context.Context, c Caller, id string) (Why, error)
	Act(ctx context.Context, c Caller, r ActRequest) (ActReply, error)
	Edit(ctx context.Context, c Caller, id string, r EditRequest) (Detail, error)
	Adopt(ctx context.Context, c Caller, r AdoptRequest) (Detail, error)
	Strays(ctx context.Context, c Caller) ([]Stray, error)
	AdoptStrays(ctx context.Context, c Caller, r AdoptStraysRequest) ([]AdoptedStray, error)
	Wait(ctx context.Context, c Caller, r WaitRequest) (WaitReply, error)

	// What Log and Attach return is closed when ctx ends, even during a read or
	// write, and possibly twice.
	Log(ctx context.Context, c Caller, q LogQuery) (LogStream, error)
	Attach(ctx context.Context, c Caller, id string) (io.ReadWriteCloser, error)
	// Events calls send with each event until ctx is done or send fails.
	Events(ctx context.Context, c Caller, q EventQuery, send func(Event) error) error

	GPUs(ctx context.Context, c Caller) ([]GPU, error)
	PauseGPU(ctx context.Context, c Caller, index int, paused bool) (GPU, error)
	DrainGPU(ctx context.Context, c Caller, index int, r DrainRequest) (Drained, error)
	SetHealth(ctx context.Context, c Caller, index int, r HealthRequest) (GPU, error)
	CardHistory(ctx context.Context, c Caller, q CardQuery) ([]CardEvent, error) // the newest first
	JobSamples(ctx context.Context, c Caller, id string, q SamplesQuery) (Samples, error)
	GPUSamples(ctx context.Context, c Caller, index int, q SamplesQuery) (Samples, error)
	ReleaseGPUs(ctx context.Context, c Caller, r ReleaseRequest) (Released, error)
	Stats(ctx context.Context, c Caller, q StatsQuery) (Stats, error)
	Replay(ctx context.Context, c Caller, q ReplayQuery) (Replay, error)
	Backup(ctx context.Context, c Caller, to io.Writer) error
	Reload(ctx context.Context, c Caller, r ReloadRequest) (Reloaded, error)
	Snapshot(ctx context.Context, c Caller) (json.RawMessage, error)
	Snapshots(ctx context.Context, c Caller) (SnapshotIDs, error)

	Groups(ctx context.Context, c Caller, q GroupQuery) ([]Group, error)
	SetGroup(ctx context.Context, c Caller, name string, r GroupRequest) (Group, error)
	RemoveGroup(ctx context.Context, c Caller, user, name string) error // an empty user is the caller

	Notify(ctx context.Context, c Caller, secrets bool) (Notify, error)
	SetNotify(ctx context.Context, c Caller, r NotifyRequest) (Notify, error)
	SendNotify(ctx context.Context, c Caller, r NotifyTest) ([]NotifyResult, error)

	NewToken(ctx context.Context, c Caller, r TokenRequest) (Token, error)
	Tokens(ctx context.Context, c Caller) ([]Token, error)
	RevokeToken(ctx context.Context, c Caller, id string) error
	RevokeTokens(ctx context.Context, c Caller, user string) ([]string, error) // all of a user's; an empty user is the caller

	// NewLogin makes a secret with which OpenSession works once. A session is a
	// token without a secret.
	NewLogin(ctx context.Context, c Caller, r LoginRequest) (Login, error)
	OpenSession(ctx context.Context, r SessionRequest, w Way) (Token, error)
	EndSession(ctx context.Context, c Caller) error
}

// LogStream is a log being read. Offset is where it begins, so that a client
// that lost its connection can continue. A read that reaches a dropped part
// returns a *LogGap, and the next read continues after it.
type LogStream struct {
	io.ReadCloser
	Attempt int
	Offset  int64
}
