package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
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

// NewServer makes a server that does not listen yet.
func NewServer(o ServerOptions) *Server {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Gate == nil {
		o.Gate = fair.NewGate(1, 1)
	}
	if o.Served == nil {
		o.Served = func(string, int, time.Duration, bool) {}
	}
	s := &Server{options: o, limits: o.Limits.withDefaults(), log: o.Log, gate: o.Gate}
	s.heavy = fair.NewGate(s.limits.Connections, s.limits.UserHeavy)
	s.unproven.most, s.scrapers.most = s.limits.Unproven, s.limits.Scrapers
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.lastBusy.Store(time.Now().UnixNano())
	s.handlers = map[*Operation]func(*exchange) error{
		&readLog.Operation: sendLog, &attachTo.Operation: sendTerminal, &followEvents.Operation: sendEvents, &copyStore.Operation: sendStore, &scrape.Operation: sendMetrics,
		&describeJSON.Operation: sendOpenAPI, &describeYAML.Operation: sendOpenAPI, &page.Operation: sendPage, &asset.Operation: sendPage,
	}
	s.mux = s.routes()
	return s
}

// ServeUnix serves a Unix socket, whose callers the kernel identifies, until
// Shutdown.
func (s *Server) ServeUnix(l net.Listener) error {
	return s.serve(unixListener{Listener: l, limits: s.limits, tally: &s.userConns, notHTTP: s.options.NotHTTP}, http.HandlerFunc(s.serveUnix))
}

// ServeTCP serves TCP until Shutdown, or a Unix socket behind a proxy. Every
// request must carry a token. Without TLS the address must be a loopback one,
// because anyone on the network could read the token. The proxy before a socket
// sees to TLS itself; whom the kernel reports there does not matter.
func (s *Server) ServeTCP(l net.Listener, o TCPOptions) error {
	if l.Addr().Network() == "unix" { // a proxy connects, and only names tell which site a request is for
		return s.serve(tcpListener{Listener: l, unproven: &s.unproven}, s.tcpHandler(newDoor(netip.Addr{}, viaProxy, o)))
	}
	address, err := netip.ParseAddrPort(l.Addr().String())
	if err != nil {
		return fmt.Errorf("listen on %s: expected a TCP address", l.Addr())
	}
	if o.TLS == nil && !address.Addr().Unmap().IsLoopback() {
		return fmt.Errorf("listen on %s: without TLS only a loopback address is allowed", l.Addr())
	}
	var counted net.Listener = tcpListener{Listener: l, unproven: &s.unproven}
	via := viaHTTP
	if o.TLS != nil {
		via = viaHTTPS
		config := o.TLS.Clone()
		config.MinVersion = max(config.MinVersion, tls.VersionTLS12)
		config.NextProtos = []string{"http/1.1"}
		counted = tls.NewListener(counted, config)
	}
	return s.serve(counted, s.tcpHandler(newDoor(address.Addr().Unmap(), via, o)))
}

func (s *Server) serve(l net.Listener, h http.Handler) error {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true) // HTTP/2 has no upgrade, and is not needed here
	server := &http.Server{
		Handler:           h,
		Protocols:         protocols,
		ConnContext:       connContext,
		MaxHeaderBytes:    s.limits.HeaderBytes,
		ReadHeaderTimeout: s.limits.HeaderTimeout,
		IdleTimeout:       s.limits.IdleTimeout,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		l.Close()
		return nil
	}
	s.servers = append(s.servers, server)
	s.mu.Unlock()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return nil
}

// Shutdown ends streams with an end mark, lets pending requests finish, and
// returns when all have ended or ctx is done; the rest is then cut off.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	servers := s.servers
	s.mu.Unlock()
	s.stop()
	var first error
	for _, server := range servers {
		if err := server.Shutdown(ctx); err != nil && first == nil {
			first = fmt.Errorf("end pending requests: %w", err)
			server.Close()
		}
	}
	gone := make(chan struct{})
	go func() { s.taken.Wait(); close(gone) }()
	select {
	case <-gone:
	case <-ctx.Done():
		if first == nil {
			first = fmt.Errorf("end attached terminals: %w", ctx.Err())
		}
	}
	return first
}

// Active counts pending requests and streams.
func (s *Server) Active() int { return int(s.active.Load()) }

// LastActivity is when a request last came in or ended.
func (s *Server) LastActivity() time.Time { return time.Unix(0, s.lastBusy.Load()) }

// tcpHandler checks the Host header and leaves the token to the request.
func (s *Server) tcpHandler(d *door) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.serveAs(w, r, d, func(x *exchange, ctx context.Context) (Caller, error) {
			if !d.answersTo(r.Host) {
				return Caller{}, wrongHost(r.Host, "use its address, or add the name to http.hosts in the daemon's config")
			}
			if s.isOpen(r) {
				one := visitor
				one.Way = x.way()
				return one, nil
			}
			caller, err := x.tcpCaller(ctx)
			if err == nil && !s.meet(connOf(ctx), caller.UID) {
				w.Header().Set("Connection", "close")
				err = errConnections
			}
			return caller, err
		})
	})
}

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
