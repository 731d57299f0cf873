package daemon

import (
	"context"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync"

	"berth/internal/api"
	"berth/internal/queue/config"
	"berth/internal/queue/engine"
	"berth/internal/queue/ports"
	"berth/internal/text/problem"
)

// admin shows and changes the daemon itself.
type admin struct {
	svc       *service
	opt       *Options
	ports     *ports.Ports
	record    *cardRecord
	tidier    *tidier
	life      *life
	begun     config.Config // the config at the start
	enforced  enforced
	reloading sync.Mutex // held by the one that reads the config again
}

// Status is the daemon itself.
func (h *admin) Status(ctx context.Context, c api.Caller) (api.Status, error) {
	s := api.Status{
		Version: h.svc.version, PID: os.Getpid(), Since: h.life.started, Shared: h.svc.places.Shared,
		User: h.svc.people.Name(h.svc.people.UID), StateDir: h.svc.places.StateDir, Config: h.svc.places.Config, SimDir: h.svc.queue.SimDir,
		Snapshot: h.svc.Config().Snapshot, You: c, Enforced: h.enforced.get(h.svc.queue.Runner.Cgroups.Facts),
	}
	if h.svc.places.Shared {
		s.AdminGroup = &h.svc.Config().AdminGroup
	}
	s.HTTP, s.Warnings = h.ports.HTTP()
	scraped, troubles := h.ports.Metrics()
	s.Metrics, s.Warnings = scraped, append(s.Warnings, troubles...)
	s.Warnings = append(append(s.Warnings, missingGPUs(h.begun.GPUs, h.record.there)...), h.begun.Warnings(s.Shared)...)
	err := h.svc.Do(ctx, func(t *engine.Turn) {
		s.Counts = map[string]int{}
		countLive(t, s.Counts)
		s.Blocked, s.Strays = t.Explain().Blocked(), len(t.Recovery().Strays())
		s.Source = h.svc.queue.Source.Name()
		s.Parking = h.parking(t)
	})
	return s, err
}

func (h *admin) parking(t *engine.Turn) *api.Parking {
	p := t.Parking().State()
	return &api.Parking{
		Jobs: h.svc.Config().Parking, Cannot: p.Cannot, OutMiBs: math.Round(p.Out), BackMiBs: math.Round(p.Back), HostMiB: p.HeldMiB, RoomMiB: orNil(p.RoomMiB),
	}
}

// Backup writes a copy of the store while the daemon runs.
func (h *admin) Backup(ctx context.Context, c api.Caller, to io.Writer) error {
	err := h.backup(ctx, c, to)
	h.svc.Note(c, "backup", nil, "", err)
	return err
}

func (h *admin) backup(_ context.Context, c api.Caller, to io.Writer) error {
	if !c.Admin {
		return problem.Newf(problem.Forbidden, "root and members of the group "+h.svc.Config().AdminGroup+" are administrators", "only an administrator can back up the state: it has every user's jobs")
	}
	dir, err := os.MkdirTemp(h.svc.places.StateDir, "backup-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "berth.db")
	if err := h.svc.queue.Store.Backup(path); err != nil {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(to, file)
	return err
}
