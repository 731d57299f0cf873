package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"berth/internal/api"
)

// socketLook is how often the daemon looks whether its socket is there.
const socketLook = time.Second

// listenAt opens the daemon's socket.
func (d *Daemon) listenAt(socket string) (listening, error) {
	mode := os.FileMode(0o600)
	if d.svc.places.Shared {
		mode = 0o666
	}
	l, err := api.Listen(socket, mode)
	if err != nil {
		return listening{}, err
	}
	return listening{socket, func() error { return d.life.server.ServeUnix(l) }}, nil
}

// keepSocket opens the socket again if somebody removed it: a daemon that nobody
// can reach also keeps the next one from starting.
func (d *Daemon) keepSocket(ctx context.Context, stop context.CancelCauseFunc) {
	socket, said := d.svc.places.Socket, ""
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
		if d.svc.queue.Store.Present() != nil {
			continue // the socket's place may be another daemon's now
		}
		l, err := d.listenAt(socket)
		if err == nil {
			d.svc.queue.Log.Warn("the socket was removed; it is there again", "socket", socket)
			said = ""
			d.listenOn(ctx, stop, l)
		} else if why := err.Error(); why != said {
			said = why
			d.svc.queue.Log.Error("the socket was removed and cannot be made again", "socket", socket, "err", err)
		}
	}
}

// listenOn serves an address until the daemon stops.
func (d *Daemon) listenOn(ctx context.Context, stop context.CancelCauseFunc, l listening) {
	go func() {
		if err := l.serve(); err != nil && ctx.Err() == nil {
			d.svc.queue.Log.Error("serve", "on", l.name, "err", err)
			stop(fmt.Errorf("serve %s: %w", l.name, err))
		}
	}()
}
