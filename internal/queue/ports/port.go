package ports

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"berth/internal/api"
)

// portRetry is how often the daemon tries to listen on a port that it cannot
// have.
const portRetry = 10 * time.Second

// port is an address by TCP. Without it the daemon serves its socket and tries
// again: another program's port must not keep jobs from running.
type port struct {
	what   string                                       // for HTTP, for metrics
	wanted string                                       // empty: none
	open   func(address string) ([]net.Listener, error) // listens
	owner  func(address string) string                  // says whose process has an address
	closed func()                                       // is told that serving failed; may be nil
	taken  func(address string)                         // is told once that another process has it; may be nil
	serve  func(*api.Server, []net.Listener) error      // until the server shuts down
	every  time.Duration                                // between attempts
	log    *slog.Logger

	asked chan []net.Listener // opened for the page, where none was wanted

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
func (p *port) listen() []net.Listener {
	if p.wanted == "" {
		return nil
	}
	all, err := p.open(p.wanted)
	if err != nil {
		p.failed(err)
		return nil
	}
	address := all[0].Addr().String() // which knows the port: 0 asks for any free one
	if p.set(address, "") {
		p.log.Info("listening "+p.what, "on", address)
	}
	return all
}

// failed says why there is no port, and whose process has it.
func (p *port) failed(err error) {
	why, taken := err.Error(), takenAddress(err)
	if taken != "" {
		why += ", " + p.owner(taken)
	}
	if !p.set("", fmt.Sprintf("not listening %s: %s; trying again every %s", p.what, why, p.every)) {
		return
	}
	p.log.Error("not listening "+p.what, "on", p.wanted, "err", why)
	if taken != "" && p.taken != nil {
		p.taken(taken)
	}
}

// takenAddress is the address that another process has; empty: err says
// something else.
func takenAddress(err error) string {
	failed, ok := errors.AsType[*net.OpError](err)
	if !ok || !errors.Is(err, syscall.EADDRINUSE) || failed.Addr == nil {
		return ""
	}
	return failed.Addr.String()
}

// keep serves the port until the daemon stops, and opens it again if it fails.
func (p *port) keep(ctx context.Context, server *api.Server, all []net.Listener) {
	if p.wanted == "" {
		select {
		case <-ctx.Done():
			return
		case all = <-p.asked:
			p.wanted = all[0].Addr().String()
		}
	}
	for {
		if all != nil {
			if err := p.serve(server, all); ctx.Err() == nil && err != nil {
				if p.closed != nil {
					p.closed()
				}
				p.failed(err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(p.every):
		}
		all = p.listen()
	}
}

// serveAll serves listeners as one: if one of them fails, all are closed.
func serveAll(all []net.Listener, serve func(net.Listener) error) error {
	ended := make(chan error, len(all))
	for _, l := range all {
		go func() { ended <- serve(l) }()
	}
	err := <-ended
	closeAll(all)
	for range all[1:] {
		<-ended
	}
	return err
}

// openPage listens on a loopback address where none is configured. Later calls
// find it open.
func (p *port) openPage() (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.address != "" {
		return p.address, nil
	}
	all, err := p.open(loopback4 + "0")
	if err != nil {
		return "", err
	}
	p.address = all[0].Addr().String()
	p.asked <- all
	return p.address, nil
}

const (
	loopback4 = "127.0.0.1:"
	loopback6 = "[::1]:"

	anyPortTries = 20 // until one is free on both
)

// loopbacks are the addresses to listen on. A plain loopback address has two:
// browsers and ssh may resolve localhost to either, and another user could
// listen on the one that is left.
func loopbacks(address string, encrypted bool) []string {
	for _, prefixes := range [][2]string{{loopback4, loopback6}, {loopback6, loopback4}, {"localhost:", loopback6}} {
		if port, ok := strings.CutPrefix(address, prefixes[0]); ok && !encrypted {
			return []string{strings.Replace(prefixes[0], "localhost:", loopback4, 1) + port, prefixes[1] + port}
		}
	}
	return []string{address}
}

// listenAll listens on all addresses, with the port that the first one gets.
// Where the machine lacks IPv6, or IPv4, nobody can listen on that one.
func listenAll(addresses []string) ([]net.Listener, error) {
	for try := 1; ; try++ {
		first, err := net.Listen("tcp", addresses[0])
		if err != nil {
			return nil, err
		}
		all := []net.Listener{first}
		_, port, _ := net.SplitHostPort(first.Addr().String())
		for _, address := range addresses[1:] {
			host := address[:strings.LastIndex(address, ":")]
			var l net.Listener
			if l, err = net.Listen("tcp", host+":"+port); err == nil {
				all = append(all, l)
			} else if errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, syscall.EADDRNOTAVAIL) {
				err = nil // the machine has no such address
			} else {
				break // somebody else could listen there
			}
		}
		if err == nil {
			return all, nil
		}
		closeAll(all)
		if !errors.Is(err, syscall.EADDRINUSE) || !strings.HasSuffix(addresses[0], ":0") || try == anyPortTries {
			return nil, err
		}
	}
}
