package daemon

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"berth/internal/api"
)

// portRetry is how often the daemon tries to listen on a port that it cannot
// have.
const portRetry = 10 * time.Second

// port is an address by TCP. Without it the daemon serves its socket and tries
// again: another program's port must not keep jobs from running.
type port struct {
	what   string                                     // for HTTP, for metrics
	wanted string                                     // empty: none
	open   func(address string) (net.Listener, error) // listens
	serve  func(*api.Server, net.Listener) error      // until the server shuts down
	every  time.Duration                              // between attempts
	log    *slog.Logger

	asked chan net.Listener // opened for the page, where none was wanted

	mu      sync.Mutex
	address string // empty while it does not listen
	trouble string // why not
}

// state is the address, and what is wrong.
func (p *port) state() (address string, warnings []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.trouble != "" {
		warnings = append(warnings, p.trouble)
	}
	return p.address, warnings
}

// set records the outcome of an attempt and reports whether it is news.
func (p *port) set(address, trouble string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	news := p.address != address || p.trouble != trouble
	p.address, p.trouble = address, trouble
	return news
}

// listen listens on the configured address; nil without one, or if it is taken.
func (p *port) listen() net.Listener {
	if p.wanted == "" {
		return nil
	}
	l, err := p.open(p.wanted)
	if err != nil {
		p.closed(err)
		return nil
	}
	address := l.Addr().String() // which knows the port: 0 asks for any free one
	if p.set(address, "") {
		p.log.Info("listening "+p.what, "on", address)
	}
	return l
}

func (p *port) closed(err error) {
	if p.set("", fmt.Sprintf("not listening %s: %v; trying again every %s", p.what, err, p.every)) {
		p.log.Error("not listening "+p.what, "on", p.wanted, "err", err)
	}
}

// keep serves the port until the daemon stops, and opens it again if it fails.
func (p *port) keep(ctx context.Context, server *api.Server, l net.Listener) {
	if p.wanted == "" {
		select {
		case <-ctx.Done():
			return
		case l = <-p.asked:
			p.wanted = l.Addr().String()
		}
	}
	for {
		if l != nil {
			if err := p.serve(server, l); ctx.Err() == nil && err != nil {
				p.closed(err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(p.every):
		}
		l = p.listen()
	}
}

// openPage listens on a loopback address where none is configured. Later calls
// find it open.
func (p *port) openPage() (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.address != "" {
		return p.address, nil
	}
	l, err := net.Listen("tcp", pagePort)
	if err != nil {
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return "", err
		}
	}
	p.address = l.Addr().String()
	p.asked <- l
	return p.address, nil
}

// httpPort is the port for everything, which needs tokens.
func httpPort(cfg *Config, every time.Duration, log *slog.Logger, begins func(listenerID string)) *port {
	options := api.TCPOptions{Hosts: cfg.Hosts}
	return &port{
		what: "for HTTP", wanted: cfg.Listen, every: every, log: log, asked: make(chan net.Listener, 1),
		open: func(address string) (net.Listener, error) {
			if cfg.TLSCert != "" {
				pair, err := tls.LoadX509KeyPair(cfg.TLSCert, cfg.TLSKey)
				if err != nil {
					return nil, err
				}
				options.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
			}
			if socket, isSocket := strings.CutPrefix(address, unixListen); isSocket {
				return api.Listen(socket, 0o666) // like a loopback address: whoever connects needs a token
			}
			return net.Listen("tcp", address)
		},
		serve: func(s *api.Server, l net.Listener) error {
			served := options
			served.ListenerID = listenerID(l, served.TLS != nil)
			begins(served.ListenerID)
			return s.ServeTCP(l, served)
		},
	}
}

// metricsPort is the port for metrics alone, which needs no token.
func metricsPort(cfg *Config, every time.Duration, log *slog.Logger) *port {
	return &port{
		what: "for metrics", wanted: cfg.MetricsListen, every: every, log: log,
		open:  func(address string) (net.Listener, error) { return net.Listen("tcp", address) },
		serve: (*api.Server).ServeMetrics,
	}
}
