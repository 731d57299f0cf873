package api

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"berth/internal/queue/fair"
	"berth/internal/text/problem"
)

// ServerOptions are what a server answers with besides the handlers of its endpoints.
type ServerOptions struct {
	// Identify says who a peer is. Its errors, as those of every handler, are
	// *problem.Problem where the caller can act on them.
	Identify func(ctx context.Context, p Peer) (Caller, error)
	Streams  Streams
	Log      *slog.Logger
	Version  string // of the program, shown in the API description
	Limits   Limits
	Gate     *fair.Gate // where requests with long replies take turns; nil: one at a time
	NotHTTP  string     // reply to a caller on the socket that sends JSON instead of HTTP; empty: HTTP's own

	// Page serves the files of the page; nil: the server has no page.
	Page http.Handler
	// Metrics writes what Prometheus reads; nil if the server has no metrics.
	Metrics func(context.Context) ([]byte, error)
	// Served hears of every request: its operation, the status of the reply, how
	// long it took, and whether it was a stream. Nil: nobody does.
	Served func(operation string, status int, took time.Duration, stream bool)
	// Ended is why nothing can be changed: no process works on the queue. Nil: it can.
	Ended error
}

// TCPOptions are the options for TCP.
type TCPOptions struct {
	TLS        *tls.Config // nil: loopback only
	Hosts      []string    // host names that callers may use, besides its address
	ListenerID string      // what sessions opened here are bound to
}

// Server turns requests into calls of the handlers of its endpoints.
type Server struct {
	options  ServerOptions
	limits   Limits
	handlers map[*Operation]func(*exchange) error
	log      *slog.Logger
	mux      *http.ServeMux
	open     map[string]bool // by pattern: what a caller without an identity may ask for

	userConns, streamsHeld tally
	unproven, scrapers     unproven
	heavy                  *fair.Gate // limits each user; the rest wait before any of them is in memory
	gate                   *fair.Gate

	active   atomic.Int64
	lastBusy atomic.Int64 // nanoseconds since 1970

	stopping context.Context // done when streams must end
	stop     context.CancelFunc

	mu      sync.Mutex
	servers []*http.Server
	closed  bool
	taken   sync.WaitGroup // upgraded connections
}

// Stopping reports whether a daemon answered that it is stopping.
func Stopping(err error) bool {
	p, ok := errors.AsType[*problem.Problem](err)
	return ok && p.What == errStopping.What
}

// errStopping ends streams when the server stops.
var errStopping = &problem.Problem{Kind: problem.Unable, What: "the daemon is stopping", Hint: "try again in a moment"}

// Active counts pending requests and streams.
func (s *Server) Active() int { return int(s.active.Load()) }

// LastActivity is when a request last came in or ended.
func (s *Server) LastActivity() time.Time { return time.Unix(0, s.lastBusy.Load()) }

// hostCheck reports whether a request is for the server's own address or one of
// its names, against DNS rebinding.
func hostCheck(own netip.Addr, names []string) func(host string) bool {
	known := map[string]bool{}
	for _, name := range names {
		known[hostName(name)] = true
	}
	if own.IsLoopback() {
		known["localhost"] = true
	}
	return func(host string) bool {
		host = hostName(host)
		literal, err := netip.ParseAddr(host)
		// An IP address cannot be rebound: it is what the client connected to.
		isOwn := err == nil && (literal.Unmap() == own || own.IsUnspecified() || own.IsLoopback() && literal.IsLoopback())
		return isOwn || known[host]
	}
}

func wrongHost(host, hint string) error {
	return problem.Newf(problem.Forbidden, hint, "this server does not answer to the name %s", quoted(hostName(host)))
}

// hostName is a Host header without its port, normalised.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
}
