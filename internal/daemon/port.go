package daemon

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"

	"berth/internal/api"
)

// portRetry is how often the daemon tries to listen on a port that it cannot
// have.
const portRetry = 10 * time.Second

// port is the address for HTTP. Without it the daemon serves its socket and
// tries again: another program's port must not keep jobs from running.
type port struct {
	every time.Duration // between attempts

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

// openPort listens on the configured port; nil without one, or if it is taken.
func (d *Daemon) openPort() *listening {
	cfg := d.config()
	if cfg.Listen == "" {
		return nil
	}
	l, options, err := listenTCP(cfg)
	if err != nil {
		d.closedPort(err)
		return nil
	}
	address := l.Addr().String() // which knows the port: 0 asks for any free one
	if d.port.set(address, "") {
		d.log.Info("listening", "on", address)
	}
	return &listening{address, func() error { return d.server.ServeTCP(l, options) }}
}

func (d *Daemon) closedPort(err error) {
	if d.port.set("", fmt.Sprintf("not listening for HTTP: %v; trying again every %s", err, d.port.every)) {
		d.log.Error("not listening for HTTP", "on", d.config().Listen, "err", err)
	}
}

// servePort serves the port until the daemon stops, and opens it again if it
// fails.
func (d *Daemon) servePort(ctx context.Context, l *listening) {
	if d.config().Listen == "" {
		return
	}
	for {
		if l != nil {
			if err := l.serve(); ctx.Err() == nil && err != nil {
				d.closedPort(err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(d.port.every):
		}
		l = d.openPort()
	}
}

func listenTCP(cfg *Config) (net.Listener, api.TCPOptions, error) {
	options := api.TCPOptions{Hosts: cfg.Hosts}
	if cfg.TLSCert != "" {
		pair, err := tls.LoadX509KeyPair(cfg.TLSCert, cfg.TLSKey)
		if err != nil {
			return nil, options, err
		}
		options.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	l, err := net.Listen("tcp", cfg.Listen)
	return l, options, err
}
