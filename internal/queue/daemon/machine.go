package daemon

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/queue/access"
	"berth/internal/queue/engine"
	"berth/internal/queue/store"
	"berth/internal/text/problem"
)

// Status is the daemon itself.
func (d *Daemon) Status(ctx context.Context, c api.Caller) (api.Status, error) {
	s := api.Status{
		Version: d.opt.Version, PID: os.Getpid(), Since: d.started, Shared: d.opt.Places.Shared,
		User: d.userName(d.uid), StateDir: d.opt.Places.StateDir, Config: d.opt.Places.Config, SimDir: d.machine.SimDir,
		Snapshot: d.config().Snapshot, You: c, Enforced: d.enforced.get(d.machine.Runner.Facts),
	}
	if d.opt.Places.Shared {
		s.AdminGroup = &d.config().AdminGroup
	}
	s.HTTP, s.Warnings = d.http.state()
	scraped, troubles := d.scrapes.state()
	s.Metrics, s.Warnings = scraped, append(s.Warnings, troubles...)
	s.Warnings = append(append(s.Warnings, missingGPUs(d.begun.GPUs, d.there)...), d.begun.Warnings(s.Shared)...)
	err := d.do(ctx, func(t *engine.Turn) {
		s.Counts = map[string]int{}
		countLive(t, s.Counts)
		s.Blocked, s.Strays = t.Explain().Blocked(), len(t.Recovery().Strays())
		s.Source = d.machine.Source.Name()
		s.Parking = d.parking(t)
	})
	return s, err
}

func (d *Daemon) parking(t *engine.Turn) *api.Parking {
	p := t.Parking().State()
	return &api.Parking{
		Jobs: d.config().Parking, Cannot: p.Cannot, OutMiBs: math.Round(p.Out), BackMiBs: math.Round(p.Back), HostMiB: p.HeldMiB, RoomMiB: orNil(p.RoomMiB),
	}
}

func (d *Daemon) userName(uid int) string {
	if user, ok := d.users.Cached(uid, known); ok {
		return user.Name
	}
	return fmt.Sprint(uid)
}

// Stats sums up what the machine did.
func (d *Daemon) Stats(ctx context.Context, _ api.Caller, q api.StatsQuery) (api.Stats, error) {
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
	err := d.do(ctx, func(t *engine.Turn) {
		for _, r := range t.Running().List() {
			running[r.Job.ID] = t.Running().Copy(r.Job)
		}
	})
	if err != nil {
		return api.Stats{}, err
	}
	sum := newStatsSum(since, until, len(d.machine.Devices), q.User, time.Local)
	err = d.eachEnded(ctx, since, func(j *job.Job) {
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
func (d *Daemon) eachEnded(ctx context.Context, since time.Time, visit func(*job.Job)) error {
	ctx, leave := d.gate.Begin(ctx)
	defer leave()
	return d.store.EachOver(store.Filter{EndedSince: since, Pause: pauses(ctx)}, func(j *job.Job) error {
		visit(j)
		return nil
	})
}

// Backup writes a copy of the store while the daemon runs.
func (d *Daemon) Backup(ctx context.Context, c api.Caller, to io.Writer) error {
	err := d.backup(ctx, c, to)
	d.note(c, "backup", nil, "", err)
	return err
}

func (d *Daemon) backup(_ context.Context, c api.Caller, to io.Writer) error {
	if !c.Admin {
		return problem.Newf(problem.Forbidden, "root and members of the group "+d.config().AdminGroup+" are administrators", "only an administrator can back up the state: it has every user's jobs")
	}
	dir, err := os.MkdirTemp(d.opt.Places.StateDir, "backup-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "berth.db")
	if err := d.store.Backup(path); err != nil {
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
func (d *Daemon) NewToken(_ context.Context, c api.Caller, r api.TokenRequest) (api.Token, error) {
	if c.Token != "" {
		return api.Token{}, problem.Newf(problem.Forbidden, "use the socket on the machine itself", "a token cannot create another token")
	}
	t, err := d.tokens.Create(c.Name, c.UID, r.Name, access.TTL(r.TTLS), time.Now())
	d.note(c, "token create", nil, t.ID, err)
	return t, err
}

// Tokens lists the caller's tokens, or all for an administrator.
func (d *Daemon) Tokens(_ context.Context, c api.Caller) ([]api.Token, error) {
	return d.tokens.List(c.UID, c.Admin, time.Now()), nil
}

// RevokeTokens revokes all tokens and sessions of a user.
func (d *Daemon) RevokeTokens(_ context.Context, c api.Caller, q api.RevokeQuery) (api.Revoked, error) {
	name, uid := c.Name, c.UID
	if q.User != "" && q.User != c.Name {
		name, uid = q.User, -1
		if !c.Admin {
			err := problem.Newf(problem.Forbidden, "", "only administrators revoke other users' tokens")
			d.note(c, "token revoke all", nil, name, err)
			return api.Revoked{}, err
		}
	}
	ids, err := d.tokens.RevokeAll(name, uid)
	d.note(c, "token revoke all", nil, name+": "+strings.Join(ids, " "), err)
	return api.Revoked{IDs: ids}, err
}

// RevokeToken revokes one.
func (d *Daemon) RevokeToken(_ context.Context, c api.Caller, q api.TokenID) (api.None, error) {
	err := d.tokens.Revoke(q.ID, c.UID, c.Admin)
	d.note(c, "token revoke", nil, q.ID, err)
	return api.None{}, err
}
