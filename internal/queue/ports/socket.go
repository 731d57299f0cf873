package ports

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"berth/internal/api"
	"berth/internal/machine/site"
	"berth/internal/text/problem"
)

// listening is one address of the daemon.
type listening struct {
	name  string
	serve func() error
}

// listen opens the socket, or takes the one that a service manager opened. own
// means that the socket is the daemon's.
func (p *Ports) listen() (all []listening, own bool, err error) {
	given, page, err := site.ActivationListeners()
	if err != nil {
		return nil, false, problem.Newf(problem.Refused, "", "sockets passed by the service manager: %v", err)
	}
	p.keep.find(page)
	for _, l := range given {
		all = append(all, listening{l.Addr().String(), func() error { return p.setup.Server.ServeUnix(l) }})
	}
	if len(all) > 0 {
		return all, false, nil
	}
	socket := p.setup.Places.Socket
	l, err := p.listenAt(socket)
	if err != nil {
		return nil, false, problem.Newf(problem.Refused, "choose another with --socket", "listen on %s: %v", socket, err)
	}
	return []listening{l}, true, nil
}

// socketLook is how often the daemon looks whether its socket is there.
const socketLook = time.Second

// listenAt opens the daemon's socket.
func (p *Ports) listenAt(socket string) (listening, error) {
	mode := os.FileMode(0o600)
	if p.setup.Places.Shared {
		mode = 0o666
	}
	l, err := api.Listen(socket, mode)
	if err != nil {
		return listening{}, err
	}
	return listening{socket, func() error { return p.setup.Server.ServeUnix(l) }}, nil
}

// keepSocket opens the socket again if somebody removed it: a daemon that nobody
// can reach also keeps the next one from starting.
func (p *Ports) keepSocket(ctx context.Context, stop context.CancelCauseFunc) {
	socket, said := p.setup.Places.Socket, ""
	look := time.NewTicker(socketLook)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		if _, err := os.Lstat(socket); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if p.setup.Store.Present() != nil {
			continue // the socket's place may be another daemon's now
		}
		l, err := p.listenAt(socket)
		if err == nil {
			p.setup.Log.Warn("the socket was removed; it is there again", "socket", socket)
			said = ""
			p.listenOn(ctx, stop, l)
		} else if why := err.Error(); why != said {
			said = why
			p.setup.Log.Error("the socket was removed and cannot be made again", "socket", socket, "err", err)
		}
	}
}

// listenOn serves an address until the daemon stops.
func (p *Ports) listenOn(ctx context.Context, stop context.CancelCauseFunc, l listening) {
	go func() {
		if err := l.serve(); err != nil && ctx.Err() == nil {
			p.setup.Log.Error("serve", "on", l.name, "err", err)
			stop(fmt.Errorf("serve %s: %w", l.name, err))
		}
	}()
}
