package daemon

import (
	"context"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/queue/access"
	"berth/internal/queue/config"
	"berth/internal/queue/engine"
	"berth/internal/queue/fair"
	"berth/internal/queue/ports"
	"berth/internal/queue/store"
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

// history sums up and replays what has ended.
type history struct {
	svc     *service
	jobs    *jobs
	replays *fair.Gate // where replays take turns
}

// Status is the daemon itself.
func (h *admin) Status(ctx context.Context, c api.Caller) (api.Status, error) {
	s := api.Status{
		Version: h.svc.version, PID: os.Getpid(), Since: h.life.started, Shared: h.svc.places.Shared,
		User: h.svc.people.Name(h.svc.people.UID), StateDir: h.svc.places.StateDir, Config: h.svc.places.Config, SimDir: h.svc.queue.SimDir,
		Snapshot: h.svc.Config().Snapshot, You: c, Enforced: h.enforced.get(h.svc.queue.Runner.Facts),
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

// Stats sums up what the machine did.
func (h *history) Stats(ctx context.Context, _ api.Caller, q api.StatsQuery) (api.Stats, error) {
	now := time.Now()
	since, until := now.Add(-30*24*time.Hour), now
	if q.Since != nil {
		since = *q.Since
	}
	if q.Until != nil && q.Until.Before(now) {
		until = *q.Until // nothing was used in the future
	}
	if !since.Before(until) {
		return api.Stats{}, problem.Newf(problem.Invalid, "", "the period ends before it begins")
	}
	// Running jobs are read first: one that ends in between is found in the
	// store.
	running := map[string]job.Job{}
	err := h.svc.Do(ctx, func(t *engine.Turn) {
		for _, r := range t.Running().List() {
			running[r.Job.ID] = t.Running().Copy(r.Job)
		}
	})
	if err != nil {
		return api.Stats{}, err
	}
	sum := newStatsSum(since, until, len(h.svc.queue.Devices), q.User, time.Local)
	err = h.eachEnded(ctx, since, func(j *job.Job) {
		delete(running, j.ID)
		sum.add(j)
	})
	if err != nil {
		return api.Stats{}, err
	}
	for _, j := range running {
		sum.add(&j)
	}
	return sum.result(), nil
}

// eachEnded visits the jobs that have ended since then. A long history takes
// seconds, in which the long work of other users has its turns.
func (h *history) eachEnded(ctx context.Context, since time.Time, visit func(*job.Job)) error {
	ctx, leave := h.svc.gate.Begin(ctx)
	defer leave()
	return h.svc.queue.Store.EachOver(store.Filter{EndedSince: since, Pause: pauses(ctx)}, func(j *job.Job) error {
		visit(j)
		return nil
	})
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

// NewToken creates a token with the caller's own permissions.
func (h *door) NewToken(_ context.Context, c api.Caller, r api.TokenRequest) (api.Token, error) {
	if c.Token != "" {
		return api.Token{}, problem.Newf(problem.Forbidden, "use the socket on the machine itself", "a token cannot create another token")
	}
	t, err := h.tokens.Create(c.Name, c.UID, r.Name, access.TTL(r.TTLS), time.Now())
	h.svc.Note(c, "token create", nil, t.ID, err)
	return t, err
}

// Tokens lists the caller's tokens, or all for an administrator.
func (h *door) Tokens(_ context.Context, c api.Caller) ([]api.Token, error) {
	return h.tokens.List(c.UID, c.Admin, time.Now()), nil
}

// RevokeTokens revokes all tokens and sessions of a user.
func (h *door) RevokeTokens(_ context.Context, c api.Caller, q api.RevokeQuery) (api.Revoked, error) {
	name, uid := c.Name, c.UID
	if q.User != "" && q.User != c.Name {
		name, uid = q.User, -1
		if !c.Admin {
			err := problem.Newf(problem.Forbidden, "", "only administrators revoke other users' tokens")
			h.svc.Note(c, "token revoke all", nil, name, err)
			return api.Revoked{}, err
		}
	}
	ids, err := h.tokens.RevokeAll(name, uid)
	h.svc.Note(c, "token revoke all", nil, name+": "+strings.Join(ids, " "), err)
	return api.Revoked{IDs: ids}, err
}

// RevokeToken revokes one.
func (h *door) RevokeToken(_ context.Context, c api.Caller, q api.TokenID) (api.None, error) {
	err := h.tokens.Revoke(q.ID, c.UID, c.Admin)
	h.svc.Note(c, "token revoke", nil, q.ID, err)
	return api.None{}, err
}
