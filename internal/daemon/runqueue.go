package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"berth/internal/api"
	"berth/internal/engine"
	"berth/internal/engine/launch"
	"berth/internal/engine/settings"
	"berth/internal/job"
	"berth/internal/machine"
	"berth/internal/problem"
	"berth/internal/site"
	"berth/internal/store"
)

// RunQueue is the queue of a berth run: what its process shows of itself, or
// what is left of it.
type RunQueue struct {
	LogDir   string // as its user knows it
	StateDir string
	JobsDir  string
	Version  string
	Env      []string
	Override func(*Config) // the rules of the run

	Machine *machine.Machine
	Engine  *engine.Engine
}

// RunSocket is where a berth run listens.
func RunSocket(stateDir string) string { return filepath.Join(stateDir, "berth.sock") }

// ServeRun answers requests about a running berth run at a socket that only its
// user can reach. publish must be called with every event, and done once the
// engine's loop has ended.
func ServeRun(q RunQueue) (publish func([]job.Event), done func(), err error) {
	d := q.daemon()
	server := api.NewServer(api.ServerOptions{Backend: runQueue{d: d, logDir: q.LogDir}, Log: d.log, Version: q.Version, Gate: d.gate})
	l, err := api.Listen(RunSocket(q.StateDir), 0o600)
	if err != nil {
		return nil, nil, err
	}
	d.wait.Go(func() {
		if err := server.ServeUnix(l); err != nil {
			d.log.Error("serve", "err", err)
		}
	})
	ctx, stop := context.WithCancel(context.Background())
	d.startTelling(ctx)
	tell := func(events []job.Event) {
		d.hub.publish(events)
		d.wakeTeller()
	}
	unlist := q.list()
	return tell, func() {
		unlist()
		d.tellLast()
		stop()
		close(d.ended)
		d.hub.close()
		bounded, cancel := context.WithTimeout(context.Background(), shutdownTime)
		defer cancel()
		if err := server.Shutdown(bounded); err != nil {
			d.log.Warn("shut down", "err", err)
		}
		d.wait.Wait()
	}, nil
}

// list lets commands in other directories find the run until unlist is called. If
// it cannot be listed, --log-dir still finds it.
func (q *RunQueue) list() (unlist func()) {
	runs, err := site.RunsOf(func(name string) string { return lookup(q.Env, name) })
	if err == nil {
		unlist, err = runs.Add(q.LogDir)
	}
	if err != nil {
		q.Machine.Log.Warn("commands in other directories cannot find this run", "err", err)
		return func() {}
	}
	return unlist
}

// tellLastTime is how long a run stays for its messages. The next run of the queue
// sends what is left.
const tellLastTime = 15 * time.Second

// tellLast sends what there is to tell when a run ends.
func (d *Daemon) tellLast() {
	if d.teller == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), tellLastTime)
	defer cancel()
	if err := d.teller.hurry(ctx); err != nil {
		d.log.Warn("messages wait for the next run", "err", err)
	}
}

// ReadRun answers requests about a berth run that has ended, from its store. The
// caller serves one connection, and calls done after it.
func ReadRun(q RunQueue) (server *api.Server, done func(), err error) {
	launcher := launch.Launcher{JobsDir: q.JobsDir, Home: lookup(q.Env, "HOME")}
	cfg := DefaultConfig(false)
	m, e, err := machine.OpenToRead(q.StateDir, engine.Config{Settings: settings.Settings{Rules: cfg.Rules, Poll: cfg.Poll, Tolerance: cfg.Tolerance}}, launcher)
	if err != nil {
		return nil, nil, notReadable(q.LogDir, err)
	}
	q.Machine, q.Engine = m, e
	d := q.daemon()
	d.still = &sync.Mutex{}
	return api.NewServer(api.ServerOptions{Backend: runQueue{d: d, logDir: q.LogDir}, Version: q.Version, Gate: d.gate}), m.Close, nil
}

func notReadable(logDir string, err error) error {
	if _, newer := errors.AsType[*store.NewerSchemaError](err); newer || errors.Is(err, store.ErrOlder) {
		return problem.Newf(problem.Unable, "run the same berth run command again, or use the berth that wrote it", "the jobs of %s cannot be read: %w", logDir, err)
	}
	return problem.Newf(problem.Unable, "", "the jobs of %s cannot be read: %w", logDir, err)
}

// daemon is a private daemon around the queue, without a config file, an audit
// log or a port.
func (q *RunQueue) daemon() *Daemon {
	d := &Daemon{
		opt: Options{Places: site.Places{StateDir: q.StateDir, Socket: RunSocket(q.StateDir)}, Version: q.Version, Env: q.Env},
		uid: os.Getuid(), started: time.Now(), hub: newHub(), ended: make(chan struct{}),
		gate: newGate(runtime.GOMAXPROCS(0)), tests: newTests(), slice: sliceJobs,
		machine: q.Machine, store: q.Machine.Store, log: q.Machine.Log, engine: q.Engine, users: site.NewUsers(userTTL),
		http: &port{}, scrapes: &port{}, happened: make(chan struct{}, 1),
	}
	if dir, err := filepath.Abs(q.LogDir); err == nil {
		if dir, err = filepath.EvalSymlinks(dir); err == nil {
			d.runs = dir
		}
	}
	cfg := DefaultConfig(false)
	if q.Override != nil {
		q.Override(&cfg)
	}
	d.cfg.Store(&cfg)
	return d
}

// runQueue is the backend for a berth run. It reads, cancels and parks as a daemon
// does; the jobs file decides the rest.
type runQueue struct {
	d      *Daemon
	logDir string
}

// fileDecides refuses what the jobs file is for.
func fileDecides(what, instead string) error {
	return problem.Newf(problem.Refused, instead, "berth %s does not change jobs of a berth run: its jobs file decides", what)
}

// onlyDaemon refuses what only a daemon has.
func onlyDaemon(what string) error {
	return problem.Newf(problem.Refused, "--log-dir - asks the daemon", "berth %s needs a daemon, and this is a berth run", what)
}

// over refuses what needs a process that works on the queue.
func (q runQueue) over() error {
	if q.d.still == nil {
		return nil
	}
	return problem.Newf(problem.Unable, "the same berth run command continues it", "no berth run is working on %s", q.logDir)
}

func (q runQueue) Identify(ctx context.Context, p api.Peer) (api.Caller, error) {
	if p.Secret != "" || p.Proof.Session != "" {
		return api.Caller{}, onlyDaemon("token")
	}
	return q.d.Identify(ctx, p)
}

func (q runQueue) Status(ctx context.Context, c api.Caller) (api.Status, error) {
	if err := q.over(); err != nil {
		return api.Status{}, err
	}
	return q.d.Status(ctx, c)
}

func (q runQueue) Jobs(ctx context.Context, c api.Caller, query api.Query) (api.JobPage, error) {
	return q.d.Jobs(ctx, c, query)
}

func (q runQueue) Batches(ctx context.Context, c api.Caller, query api.BatchQuery) ([]api.BatchSum, error) {
	return q.d.Batches(ctx, c, query)
}

func (q runQueue) Job(ctx context.Context, c api.Caller, id string) (api.Detail, error) {
	return q.d.Job(ctx, c, id)
}

func (q runQueue) Why(ctx context.Context, c api.Caller, id string) (api.Why, error) {
	why, err := q.d.Why(ctx, c, id)
	if over := q.over(); err == nil && over != nil && why.State == string(job.Queued) {
		why.Text = over.Error()
	}
	return why, err
}

func (q runQueue) Act(ctx context.Context, c api.Caller, r api.ActRequest) (api.ActReply, error) {
	switch r.Action {
	case api.ActHold, api.ActRelease:
		return api.ActReply{}, fileDecides(r.Action, "put # before the job's line in the jobs file, or remove it again")
	case api.ActRequeue:
		return api.ActReply{}, fileDecides(r.Action, "berth run --retry-failed runs failed jobs again")
	}
	if err := q.over(); err != nil {
		return api.ActReply{}, err
	}
	return q.d.Act(ctx, c, r)
}

func (q runQueue) Wait(ctx context.Context, c api.Caller, r api.WaitRequest) (api.WaitReply, error) {
	over := q.over()
	if over != nil {
		r.TimeoutS = time.Millisecond.Seconds()
	}
	reply, err := q.d.Wait(ctx, c, r)
	if err == nil && over != nil && !reply.Done {
		err = over // nothing would ever happen
	}
	return reply, err
}

func (q runQueue) Log(ctx context.Context, c api.Caller, query api.LogQuery) (api.LogStream, error) {
	if over := q.over(); over != nil && query.Follow {
		j, err := q.d.find(ctx, c, query.ID)
		if err != nil {
			return api.LogStream{}, err
		}
		if !j.State.Terminal() {
			return api.LogStream{}, over // its end would not be noticed
		}
	}
	return q.d.Log(ctx, c, query)
}

func (q runQueue) Attach(ctx context.Context, c api.Caller, id string) (io.ReadWriteCloser, error) {
	if err := q.over(); err != nil {
		return nil, err
	}
	return q.d.Attach(ctx, c, id)
}

func (q runQueue) Events(ctx context.Context, c api.Caller, query api.EventQuery, send func(api.Event) error) error {
	if err := q.over(); err != nil {
		return err
	}
	return q.d.Events(ctx, c, query, send)
}

func (q runQueue) GPUs(ctx context.Context, c api.Caller) ([]api.GPU, error) {
	if err := q.over(); err != nil {
		return nil, err
	}
	return q.d.GPUs(ctx, c)
}

func (q runQueue) CardHistory(ctx context.Context, c api.Caller, query api.CardQuery) ([]api.CardEvent, error) {
	return q.d.CardHistory(ctx, c, query)
}

func (q runQueue) JobSamples(ctx context.Context, c api.Caller, id string, query api.SamplesQuery) (api.Samples, error) {
	return q.d.JobSamples(ctx, c, id, query)
}

func (q runQueue) GPUSamples(ctx context.Context, c api.Caller, index int, query api.SamplesQuery) (api.Samples, error) {
	if err := q.over(); err != nil {
		return api.Samples{}, err
	}
	return q.d.GPUSamples(ctx, c, index, query)
}

func (q runQueue) Stats(ctx context.Context, c api.Caller, query api.StatsQuery) (api.Stats, error) {
	return q.d.Stats(ctx, c, query)
}

func (runQueue) Replay(context.Context, api.Caller, api.ReplayQuery) (api.Replay, error) {
	return api.Replay{}, onlyDaemon("web")
}

func (q runQueue) Strays(ctx context.Context, c api.Caller) ([]api.Stray, error) {
	return q.d.Strays(ctx, c)
}

func (q runQueue) Snapshot(ctx context.Context, c api.Caller) (json.RawMessage, error) {
	return q.d.Snapshot(ctx, c)
}

func (q runQueue) Snapshots(ctx context.Context, c api.Caller) (api.SnapshotIDs, error) {
	return q.d.Snapshots(ctx, c)
}

func (runQueue) Submit(context.Context, api.Caller, api.SubmitRequest) (api.SubmitReply, error) {
	return api.SubmitReply{}, fileDecides("submit", "add a line to the jobs file")
}

func (runQueue) Edit(context.Context, api.Caller, string, api.EditRequest) (api.Detail, error) {
	return api.Detail{}, fileDecides("edit", "edit the job's line in the jobs file")
}

func (runQueue) Adopt(context.Context, api.Caller, api.AdoptRequest) (api.Detail, error) {
	return api.Detail{}, onlyDaemon("adopt")
}

func (runQueue) AdoptStrays(context.Context, api.Caller, api.AdoptStraysRequest) ([]api.AdoptedStray, error) {
	return nil, onlyDaemon("adopt")
}

func (runQueue) PauseGPU(context.Context, api.Caller, int, bool) (api.GPU, error) {
	return api.GPU{}, onlyDaemon("gpu pause")
}

func (runQueue) DrainGPU(context.Context, api.Caller, int, api.DrainRequest) (api.Drained, error) {
	return api.Drained{}, onlyDaemon("gpu drain")
}

func (runQueue) SetHealth(context.Context, api.Caller, int, api.HealthRequest) (api.GPU, error) {
	return api.GPU{}, onlyDaemon("gpu health")
}

func (runQueue) ReleaseGPUs(context.Context, api.Caller, api.ReleaseRequest) (api.Released, error) {
	return api.Released{}, onlyDaemon("gpu release")
}

func (runQueue) Notify(context.Context, api.Caller, bool) (api.Notify, error) {
	return api.Notify{}, onlyDaemon("notify")
}

func (runQueue) SetNotify(context.Context, api.Caller, api.NotifyRequest) (api.Notify, error) {
	return api.Notify{}, onlyDaemon("notify")
}

func (runQueue) SendNotify(context.Context, api.Caller, api.NotifyTest) ([]api.NotifyResult, error) {
	return nil, onlyDaemon("notify")
}

func (runQueue) Backup(context.Context, api.Caller, io.Writer) error { return onlyDaemon("backup") }

func (runQueue) Reload(context.Context, api.Caller, api.ReloadRequest) (api.Reloaded, error) {
	return api.Reloaded{}, onlyDaemon("config reload")
}

func (q runQueue) Groups(ctx context.Context, c api.Caller, query api.GroupQuery) ([]api.Group, error) {
	if err := q.over(); err != nil {
		return nil, err
	}
	return q.d.Groups(ctx, c, query)
}

func (q runQueue) SetGroup(ctx context.Context, c api.Caller, name string, r api.GroupRequest) (api.Group, error) {
	if err := q.over(); err != nil {
		return api.Group{}, err
	}
	return q.d.SetGroup(ctx, c, name, r)
}

func (q runQueue) RemoveGroup(ctx context.Context, c api.Caller, user, name string) error {
	if err := q.over(); err != nil {
		return err
	}
	return q.d.RemoveGroup(ctx, c, user, name)
}

func (runQueue) NewToken(context.Context, api.Caller, api.TokenRequest) (api.Token, error) {
	return api.Token{}, onlyDaemon("token")
}

func (runQueue) Tokens(context.Context, api.Caller) ([]api.Token, error) {
	return nil, onlyDaemon("token")
}

func (runQueue) NewLogin(context.Context, api.Caller, api.LoginRequest) (api.Login, error) {
	return api.Login{}, onlyDaemon("web")
}

func (runQueue) RevokeTokens(context.Context, api.Caller, string) ([]string, error) {
	return nil, onlyDaemon("token")
}

func (runQueue) OpenSession(context.Context, api.SessionRequest, api.Way) (api.Token, error) {
	return api.Token{}, onlyDaemon("web")
}

func (runQueue) EndSession(context.Context, api.Caller) error { return onlyDaemon("web") }

func (runQueue) RevokeToken(context.Context, api.Caller, string) error { return onlyDaemon("token") }
