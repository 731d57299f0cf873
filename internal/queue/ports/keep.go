package ports

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"berth/internal/machine/site"
)

// portKeep lets the sockets of the HTTP port outlive the daemon, so that nobody
// else can listen there while it is down: pages that are open would go on
// talking to whoever did. The service manager keeps them, or a process of
// berth's own.
type portKeep struct {
	dir   string        // the state directory
	again time.Duration // between attempts
	log   *slog.Logger

	mu   sync.Mutex
	held []net.Listener // an earlier daemon's, not in use yet
	hold *site.PortHold // nil: the service manager keeps the sockets, or nobody does
}

// find receives the sockets of an earlier daemon; given are those that the
// service manager passed.
func (k *portKeep) find(given []net.Listener) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held = given; len(given) > 0 {
		return
	}
	var err error
	if k.hold, k.held, err = site.TakePort(k.dir); err != nil {
		k.log.Warn("the earlier daemon's port is not taken over", "err", err)
	}
}

// address is where an earlier daemon listened; empty: nowhere.
func (k *portKeep) address() (address string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range k.held {
		if at := l.Addr().String(); address == "" || strings.HasPrefix(at, loopback4) {
			address = at
		}
	}
	return address
}

// claim returns the sockets of an earlier daemon if they are for these addresses,
// in their order, and lets go of any others.
func (k *portKeep) claim(wanted []string) (taken []net.Listener) {
	k.mu.Lock()
	defer k.mu.Unlock()
	held := k.held
	k.held = nil
	for _, address := range wanted {
		for _, l := range held {
			if sameAddress(l, address) {
				taken = append(taken, l)
			}
		}
	}
	if len(held) == 0 || len(taken) == len(held) && sameAddress(taken[0], wanted[0]) {
		return taken
	}
	closeAll(held)
	k.release()
	return nil
}

// sameAddress reports whether a listener is the one wanted; port 0 is any.
func sameAddress(l net.Listener, wanted string) bool {
	address := l.Addr().String()
	host, isAny := strings.CutSuffix(wanted, ":0")
	return address == wanted || isAny && strings.HasPrefix(address, host+":")
}

// keep has the sockets kept until release, and again if the process that holds
// them ends.
func (k *portKeep) keep(ctx context.Context, listeners []net.Listener) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var err error
	switch {
	case k.hold != nil:
	case site.Managed():
		err = site.StorePort(listeners)
	default:
		k.hold, err = site.HoldPort(k.dir, listeners)
	}
	if err != nil {
		k.log.Warn("while the daemon is down, its port is open to everybody", "err", err)
	}
	if k.hold != nil {
		go k.guard(ctx, k.hold, listeners)
	}
}

// guard starts another process to hold the sockets if the first one ends.
func (k *portKeep) guard(ctx context.Context, hold *site.PortHold, listeners []net.Listener) {
	hold.Gone()
	select {
	case <-ctx.Done():
		return
	case <-time.After(k.again):
	}
	k.mu.Lock()
	isCurrent := k.hold == hold
	if isCurrent {
		hold.Close()
		k.hold = nil
	}
	k.mu.Unlock()
	if isCurrent {
		k.log.Warn("the process that holds the port ended; starting another")
		k.keep(ctx, listeners)
	}
}

// free lets the port go, whose sockets failed.
func (k *portKeep) free() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.release()
}

// release frees the port. The caller holds the lock.
func (k *portKeep) release() {
	if k.hold != nil {
		k.hold.LetGo()
		k.hold = nil
	} else if site.Managed() {
		if err := site.DropPort(); err != nil {
			k.log.Warn("free the port", "err", err)
		}
	}
}

// end leaves the port to the next daemon, or frees it. A service manager frees it
// itself when the service is stopped and not restarted.
func (k *portKeep) end(free bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	closeAll(k.held)
	k.held = nil
	if k.hold == nil {
		return
	}
	if free {
		k.hold.LetGo()
	} else {
		k.hold.Close()
	}
	k.hold = nil
}

func closeAll(listeners []net.Listener) {
	for _, l := range listeners {
		l.Close()
	}
}
