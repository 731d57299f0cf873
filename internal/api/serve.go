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
	"time"

	"berth/internal/queue/fair"
	"berth/internal/text/problem"
)

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

// scraper is the caller at the address for metrics, whom nobody vouches for.
var scraper = Caller{UID: -1, Name: "scraper"}

// ServeMetrics serves the metrics, and nothing else, to everyone on this machine
// until Shutdown. The address must be a loopback one.
func (s *Server) ServeMetrics(l net.Listener) error {
	address, err := netip.ParseAddrPort(l.Addr().String())
	if err != nil || !address.Addr().Unmap().IsLoopback() {
		return fmt.Errorf("listen on %s: expected a loopback address", l.Addr())
	}
	answersTo := hostCheck(address.Addr().Unmap(), nil)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.serveAs(w, r, nil, func(*exchange, context.Context) (Caller, error) {
			if !answersTo(r.Host) {
				return Caller{}, wrongHost(r.Host, "use its address")
			}
			if r.URL.Path != metricsPath {
				return Caller{}, problem.Newf(problem.Forbidden, "the daemon's socket and http.listen serve the rest", "this address serves only GET %s", metricsPath)
			}
			return scraper, nil
		})
	})
	return s.serve(tcpListener{Listener: l, unproven: &s.scrapers}, handler)
}

// serveUnix serves a request whose caller the kernel identified.
func (s *Server) serveUnix(w http.ResponseWriter, r *http.Request) {
	s.serveAs(w, r, nil, func(x *exchange, ctx context.Context) (Caller, error) {
		c := connOf(ctx)
		x.peer = c.peer
		return s.socketCaller(ctx, c)
	})
}
