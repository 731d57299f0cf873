package ports

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"berth/internal/api"
	"berth/internal/machine/site"
	"berth/internal/queue/config"
	"berth/internal/queue/people"
	"berth/internal/queue/store"
)

// Door is told who answers at the page's address.
type Door interface {
	// Listening: this listener answers from now on, and no other.
	Listening(id string)
	// Taken: another process has the address. One without the certificate of an
	// encrypted port can pass for nobody.
	Taken(ctx context.Context, address string, encrypted bool)
}

// Setup is known when the queue is open.
type Setup struct {
	Server *api.Server
	Config *config.Config
	Places site.Places
	People *people.People
	Door   Door
	Store  *store.Store
	Log    *slog.Logger
	Retry  time.Duration // between two attempts to listen; 0: the usual
}

// Ports are all addresses of a daemon.
type Ports struct {
	setup   Setup
	http    *port
	scrapes *port
	keep    *portKeep // of http
}

// New listens nowhere.
func New() *Ports { return &Ports{http: &port{}, scrapes: &port{}} }

// HTTP is where the page is, and what is wrong with that.
func (p *Ports) HTTP() (address string, warnings []string) { return p.http.state() }

// Metrics is where metrics are, and what is wrong with that.
func (p *Ports) Metrics() (address string, warnings []string) { return p.scrapes.state() }

// OpenPage listens on a loopback address where none is configured.
func (p *Ports) OpenPage() (string, error) { return p.http.openPage() }

// Serve listens on all addresses until ctx ends, and returns the names of those that
// are needed. stop is called if one of these fails.
func (p *Ports) Serve(ctx context.Context, stop context.CancelCauseFunc, wait *sync.WaitGroup, setup Setup) (names []string, err error) {
	p.setup = setup
	every := cmp.Or(setup.Retry, portRetry)
	p.keep = &portKeep{dir: setup.Places.StateDir, again: every, log: setup.Log}
	p.http, p.scrapes = p.httpPort(ctx, every), p.metricsPort(every)
	listeners, own, err := p.listen()
	if err != nil {
		return nil, err
	}
	for _, l := range listeners {
		names = append(names, l.name)
		p.listenOn(ctx, stop, l)
	}
	if own {
		wait.Go(func() { p.keepSocket(ctx, stop) })
	}
	if !setup.Places.Shared && p.http.wanted == "" {
		p.http.wanted = p.keep.address() // browsers that are logged in find the page again
	}
	if p.http.wanted == "" {
		p.keep.claim(nil)
	}
	for _, one := range []*port{p.http, p.scrapes} {
		l := one.listen()
		wait.Go(func() { one.keep(ctx, setup.Server, l) })
	}
	return names, nil
}

// End leaves the page's port to the next daemon, or frees it.
func (p *Ports) End(free bool) { p.keep.end(free) }

// httpPort is the port for everything, which needs tokens.
func (p *Ports) httpPort(ctx context.Context, every time.Duration) *port {
	cfg := p.setup.Config
	options := api.TCPOptions{Hosts: cfg.Hosts}
	return &port{
		what: "for HTTP", wanted: cfg.Listen, every: every, log: p.setup.Log, asked: make(chan []net.Listener, 1),
		open: func(address string) ([]net.Listener, error) {
			if cfg.TLSCert != "" {
				pair, err := tls.LoadX509KeyPair(cfg.TLSCert, cfg.TLSKey)
				if err != nil {
					return nil, err
				}
				options.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
			}
			if socket, isSocket := strings.CutPrefix(address, config.UnixListen); isSocket {
				p.keep.claim(nil)
				l, err := api.Listen(socket, 0o666) // like a loopback address: whoever connects needs a token
				return []net.Listener{l}, err
			}
			addresses := loopbacks(address, options.TLS != nil)
			all, err := p.keep.claim(addresses), error(nil)
			if all == nil {
				all, err = listenAll(addresses)
			}
			if err == nil {
				p.keep.keep(ctx, all)
			}
			return all, err
		},
		owner:  p.setup.People.ListenerOwner,
		closed: p.keep.free,
		taken:  func(address string) { p.setup.Door.Taken(ctx, address, cfg.TLSCert != "") },
		serve: func(s *api.Server, all []net.Listener) error {
			// Which of the two a browser reaches may change, so they have one id.
			served := options
			served.ListenerID = ID(all[0], served.TLS != nil)
			p.setup.Door.Listening(served.ListenerID)
			return serveAll(all, func(l net.Listener) error { return s.ServeTCP(l, served) })
		},
	}
}

// metricsPort is the port for metrics alone, which needs no token.
func (p *Ports) metricsPort(every time.Duration) *port {
	return &port{
		what: "for metrics", wanted: p.setup.Config.MetricsListen, every: every, log: p.setup.Log, owner: p.setup.People.ListenerOwner,
		open: func(address string) ([]net.Listener, error) { return listenAll([]string{address}) },
		serve: func(s *api.Server, all []net.Listener) error {
			return serveAll(all, s.ServeMetrics)
		},
	}
}
