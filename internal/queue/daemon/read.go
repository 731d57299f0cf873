package daemon

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/queue"
	"berth/internal/queue/engine"
	"berth/internal/queue/engine/launch"
	"berth/internal/queue/store"
	"berth/internal/text/problem"
)

// RunSocket is where an own queue listens.
func RunSocket(stateDir string) string { return filepath.Join(stateDir, "berth.sock") }

// Read answers requests about an own queue that has ended, from its store. name is
// its log directory as the user knows it. The caller serves one connection, and calls
// done after it.
func Read(o Options, name string) (server *api.Server, done func(), err error) {
	d := still(o)
	m, err := queue.Read(o.Places.StateDir, launch.Launcher{JobsDir: o.JobsDir, Home: job.Getenv(o.Env, "HOME")}, d.configOf)
	if err != nil {
		hint := ""
		if _, newer := errors.AsType[*store.NewerSchemaError](err); newer || errors.Is(err, store.ErrOlder) {
			hint = "run the same berth run command again, or use the berth that wrote it"
		}
		return nil, nil, problem.Newf(problem.Unable, hint, "the jobs of %s cannot be read: %w", name, err)
	}
	d.takeIn(m)
	over := problem.Newf(problem.Unable, "the same berth run command continues it", "no berth run is working on %s", name)
	d.svc.over = over.Error()
	return newEndedServer(d, over), m.Close, nil
}

// Rehearse answers dry runs for an own queue that no process has, as if it had one.
// earlier is its state directory, which stays as it is; the places of o are
// temporary.
func Rehearse(ctx context.Context, o Options, earlier string) (server *api.Server, done func(), err error) {
	d := still(o)
	setup := queue.Setup{}
	o.Own.Setup(&setup)
	m, err := queue.Rehearse(ctx, setup, earlier, d.configOf)
	if err != nil {
		return nil, nil, err
	}
	d.takeIn(m)
	m.Engine.Outside(time.Now(), func(t *engine.Turn) { err = o.Own.Restored(t) })
	return d.newServer(api.ServerOptions{}), m.Close, err
}

// configOf is the engine's config for a queue that has just been opened.
func (d *Daemon) configOf(m *queue.Queue) engine.Config {
	d.takeIn(m)
	return d.engineConfig()
}

// takeIn notes what was opened.
func (d *Daemon) takeIn(m *queue.Queue) {
	d.svc.queue = m
	d.people.Opened(m)
	d.messages.Opened(m.Store, m.Log)
}

// still is a daemon whose engine has no loop.
func still(o Options) *Daemon {
	d := newDaemon(o)
	cfg := ownConfig()
	if o.Override != nil {
		o.Override(&cfg)
	}
	d.svc.cfg.Store(&cfg)
	d.svc.still = &sync.Mutex{}
	return d
}

// newEndedServer answers from a queue that no process works on: over says so. It
// refuses what would change it, or could only wait.
func newEndedServer(d *Daemon, over error) *api.Server {
	s := d.newServer(api.ServerOptions{Ended: over, Streams: api.Streams{Log: d.logs.endedLog(over)}})
	api.Handle(s, api.GetWhy, func(ctx context.Context, c api.Caller, q api.JobID) (api.Why, error) {
		why, err := d.jobs.Why(ctx, c, q.ID)
		if err == nil && why.State == string(job.Queued) {
			why.Text = d.svc.over
		}
		return why, err
	})
	api.Handle(s, api.WaitForJobs, func(ctx context.Context, c api.Caller, r api.WaitRequest) (api.WaitReply, error) {
		r.TimeoutS = time.Millisecond.Seconds()
		reply, err := d.waits.Wait(ctx, c, r)
		if err == nil && !reply.Done {
			err = over // nothing would ever happen
		}
		return reply, err
	})
	return s
}

// endedLog reads a log of such a queue.
func (h *logs) endedLog(over error) func(context.Context, api.Caller, api.LogQuery) (api.LogStream, error) {
	return func(ctx context.Context, c api.Caller, q api.LogQuery) (api.LogStream, error) {
		if q.Follow {
			j, err := h.find.Find(ctx, c, q.ID)
			if err != nil {
				return api.LogStream{}, err
			}
			if !j.State.Terminal() {
				return api.LogStream{}, over // its end would not be noticed
			}
		}
		return h.Log(ctx, c, q)
	}
}
