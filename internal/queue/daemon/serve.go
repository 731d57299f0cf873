package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"berth/internal/api"
	"berth/internal/api/metrics"
	"berth/internal/api/web"
	"berth/internal/job"
	"berth/internal/machine/site"
	"berth/internal/queue"
	"berth/internal/queue/engine"
	"berth/internal/queue/fair"
	"berth/internal/queue/store"
	"berth/internal/text"
	"berth/internal/text/problem"
)

const (
	shutdownTime = 5 * time.Second
	retainEvery  = time.Hour
	retainFirst  = 5 * time.Minute
	retainLook   = time.Minute // how often it looks whether one user floods the store
	idleLook     = time.Second
	jumpAllowed  = 10 * time.Minute
)

// Serve runs a daemon until it is told to stop. Its errors are *problem.Problem
// where a person can act on them. Jobs keep running without it.
func Serve(ctx context.Context, opt Options) error {
	d := newDaemon(opt)
	d.metrics = metrics.New(opt.Version)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer d.close()
	d.heap.queue(0)
	if err := d.open(ctx); err != nil {
		return err
	}
	return d.serve(ctx, stop)
}

func newDaemon(opt Options) *Daemon {
	return &Daemon{
		opt: opt, runs: opt.RunDir, uid: os.Getuid(), started: time.Now(), hub: newHub(), happened: make(chan struct{}, 1), calm: make(chan struct{}, 1), wrote: make(chan struct{}, 1),
		ended: make(chan struct{}), wantUser: make(chan int, 64), gate: newGate(runtime.GOMAXPROCS(0)), tests: newTests(), replays: fair.NewGate(1, 1), slice: sliceJobs,
		reloaded: make(chan struct{}, 1),
	}
}

// served hears of every request and stream that has ended.
func (d *Daemon) served(operation string, status int, took time.Duration, stream bool) {
	d.metrics.Served(operation, status, took, stream)
	wake(d.calm)
}

// errStopped is the cause when a daemon was told to stop.
var errStopped = errors.New("told to stop")

func (d *Daemon) serve(ctx context.Context, stop context.CancelCauseFunc) error {
	every := cmp.Or(d.opt.portRetry, portRetry)
	d.portKeep = &portKeep{dir: d.opt.Places.StateDir, again: every, log: d.log}
	d.http, d.scrapes = d.httpPort(ctx, every), d.metricsPort(every)
	meter := meter{do: d.do, engine: d.engine, store: store.Path(queue.StoreDir(d.opt.Places.StateDir))}
	d.server = d.newServer(api.ServerOptions{
		Limits: d.requestLimits(), Log: d.log, NotHTTP: d.opt.NotHTTP, Served: d.served, Page: web.Handler(),
		Metrics: func(ctx context.Context) ([]byte, error) {
			state, err := meter.look(ctx, d.server.Active())
			if err != nil {
				return nil, err
			}
			return d.metrics.Text(state, d.config().MetricsUsers), nil
		},
	})
	d.startTelling(ctx)
	d.cluster.Store(d.newCluster())
	d.wait.Go(func() { d.cluster.Load().Run(ctx) })
	listeners, own, err := d.listen()
	if err != nil {
		return err
	}
	for _, l := range listeners {
		d.listenOn(ctx, stop, l)
	}
	if own {
		d.wait.Go(func() { d.keepSocket(ctx, stop) })
	}
	d.wait.Go(func() { d.hear(ctx, stop) })
	d.wait.Go(func() { d.attend(ctx, stop) })
	d.wait.Go(func() { d.keepUsersKnown(ctx) })
	d.wait.Go(func() { d.tidy(ctx) })
	if d.opt.Own != nil {
		d.wait.Go(func() { d.untilDrained(ctx, stop) })
	}
	if !d.opt.Places.Shared && d.http.wanted == "" {
		d.http.wanted = d.portKeep.address() // browsers that are logged in find the page again
	}
	if d.http.wanted == "" {
		d.portKeep.take(nil)
	}
	for _, p := range []*port{d.http, d.scrapes} {
		l := p.listen()
		d.wait.Go(func() { p.keep(ctx, d.server, l) })
	}
	d.greet(ctx, listeners)
	_ = site.Notify("READY=1") // there may be no service manager
	if d.opt.serving != nil {
		d.opt.serving(d)
	}
	if d.opt.Ready != nil {
		d.opt.Ready()
	}
	err = d.engine.Run(ctx, d.machine.Runner.Events(), d.parted)
	wasStopped := err == nil || errors.Is(context.Cause(ctx), errStopped)
	if d.opt.Own != nil {
		d.engine.Outside(time.Now(), d.opt.Own.Over)
		if err == nil {
			d.tellLast()
		}
	}
	// From here on no request is accepted; pending ones are answered.
	_ = site.Notify("STOPPING=1")
	close(d.ended)
	d.hub.close()
	stop(errStopped)
	bounded, cancel := context.WithTimeout(context.Background(), shutdownTime)
	defer cancel()
	if err := d.server.Shutdown(bounded); err != nil {
		d.log.Warn("shut down", "err", err)
	}
	// Nobody can tell whether a shared daemon is stopped or restarted.
	d.portKeep.end(wasStopped && !d.opt.Places.Shared)
	d.wait.Wait()
	d.log.Info("stopped", "err", context.Cause(ctx))
	if err == nil && d.gone != nil {
		return goneProblem(d.gone)
	}
	if err == nil {
		return nil // its jobs have ended
	}
	if cause := context.Cause(ctx); errors.Is(err, context.Canceled) && errors.Is(cause, errStopped) {
		return nil
	} else if errors.Is(err, context.Canceled) {
		return cause
	}
	p := problem.Newf(problem.Unable, "running jobs continue; fix this and start berth serve again", "%v", err)
	p.Err = err
	return p
}

// listening is one address of the daemon.
type listening struct {
	name  string
	serve func() error
}

// listen opens the socket, or takes the one that a service manager opened. own
// means that the socket is the daemon's.
func (d *Daemon) listen() (all []listening, own bool, err error) {
	given, page, err := site.ActivationListeners()
	if err != nil {
		return nil, false, problem.Newf(problem.Refused, "", "sockets passed by the service manager: %v", err)
	}
	d.portKeep.find(page)
	for _, l := range given {
		all = append(all, listening{l.Addr().String(), func() error { return d.server.ServeUnix(l) }})
	}
	if len(all) > 0 {
		return all, false, nil
	}
	socket := d.opt.Places.Socket
	l, err := d.listenAt(socket)
	if err != nil {
		return nil, false, problem.Newf(problem.Refused, "choose another with --socket", "listen on %s: %v", socket, err)
	}
	return []listening{l}, true, nil
}

// greet tells a person who started the daemon by hand where it is.
func (d *Daemon) greet(ctx context.Context, listeners []listening) {
	names := make([]string, len(listeners))
	for i, l := range listeners {
		names[i] = l.name
	}
	address, warnings := d.http.state()
	if address != "" {
		names = append(names, address)
	}
	scraped, more := d.scrapes.state()
	warnings = append(warnings, more...)
	kind := "private to " + d.userName(d.uid)
	if d.opt.Places.Shared {
		kind = "shared by all users"
	}
	d.log.Info("serving", "on", names, "state", d.opt.Places.StateDir, "shared", d.opt.Places.Shared, "gpus", len(d.machine.Devices), "version", d.opt.Version)
	doubtful := append(d.begun.Warnings(d.opt.Places.Shared), d.config().UnknownUsers(ctx, d.users)...)
	for _, warning := range doubtful {
		d.log.Warn(warning)
	}
	if d.opt.Out == nil {
		return
	}
	cards := text.Count(len(d.machine.Devices), "GPU")
	if d.machine.NoGPUs {
		cards = "no GPU"
	}
	fmt.Fprintf(d.opt.Out, "berth %s: serving %s on %s, %s\n", d.opt.Version, cards, strings.Join(names, " and "), kind)
	fmt.Fprintf(d.opt.Out, "state %s, log %s\n", d.opt.Places.StateDir, filepath.Join(d.opt.Places.StateDir, "berth.log"))
	if scraped != "" {
		fmt.Fprintf(d.opt.Out, "metrics http://%s/metrics\n", scraped)
	}
	for _, warning := range warnings {
		fmt.Fprintf(d.opt.Out, "berth: %s\n", warning)
	}
	for _, warning := range append(missingGPUs(d.config().GPUs, d.there), doubtful...) {
		fmt.Fprintf(d.opt.Out, "warning: %s\n", warning)
	}
	if d.machine.SimDir != "" {
		fmt.Fprintf(d.opt.Out, "simulated GPUs: BERTH_SIM_DIR=%s\n", d.machine.SimDir)
	}
}

// hear handles signals. It does nothing else, so that a daemon whose loop hangs
// can still be stopped.
func (d *Daemon) hear(ctx context.Context, stop context.CancelCauseFunc) {
	for told := 0; ; {
		select {
		case <-ctx.Done():
			return
		case sig := <-d.opt.Signals:
			if sig == syscall.SIGHUP {
				d.wait.Go(func() { _, _ = d.reload(ctx) }) // the log says what came of it
				continue
			}
			d.log.Info("stopping", "signal", sig)
			if told++; d.opt.EndJobs && told <= 2 {
				again := told > 1
				d.wait.Go(func() { d.endJobs(ctx, again) })
				continue
			}
			stop(errStopped)
			return
		}
	}
}

// endJobs stops the running jobs, and then the daemon. A second signal shortens
// the wait; after a third, jobs that have not ended are left to their
// supervisors.
func (d *Daemon) endJobs(ctx context.Context, immediately bool) {
	d.engine.Do(ctx, func(t *engine.Turn) {
		d.parting = true
		t.Requests().Interrupt(immediately)
	})
}

// parted reports that there is nothing left to wait for.
func (d *Daemon) parted(t *engine.Turn) bool {
	if d.opt.Own != nil {
		if d.opt.Own.After(t); t.Jobs().Size() == 0 && t.Written() {
			wake(d.calm)
		}
	}
	if err := t.Lost(); err != nil {
		d.gone = err
		return t.Supervised() == 0 || errors.Is(err, store.ErrTaken)
	}
	if !d.parting || !t.Written() {
		return false
	}
	return t.Supervised() == 0
}

// attend notifies the watchdog, and ends a daemon that has been idle for long
// enough.
func (d *Daemon) attend(ctx context.Context, stop context.CancelCauseFunc) {
	look := time.NewTicker(idleLook)
	defer look.Stop()
	var dog <-chan time.Time
	if interval := site.WatchdogInterval(); interval > 0 {
		ticker := time.NewTicker(interval / 2)
		defer ticker.Stop()
		dog = ticker.C
	}
	var lost error // why the store was gone at the last look
	for {
		select {
		case <-ctx.Done():
			return
		case <-dog:
			// Notify only if the loop still turns.
			if d.do(ctx, func(t *engine.Turn) {}) == nil {
				_ = site.Notify("WATCHDOG=1")
			}
		case <-look.C:
			lost = d.look(ctx, lost)
			if d.idleFor(ctx) {
				d.log.Info("stopping after being idle")
				stop(errStopped)
				return
			}
		}
	}
}

// look looks whether the store is still there. It tells the one who started the
// daemon by hand, because the log is gone with the store.
func (d *Daemon) look(ctx context.Context, was error) (lost error) {
	err := d.do(ctx, func(t *engine.Turn) { lost = t.Present() })
	if err == nil && lost != nil && was == nil && d.opt.Out != nil {
		fmt.Fprintf(d.opt.Out, "berth: %v\n", goneProblem(lost))
	}
	return lost
}

// idleFor reports whether the daemon has been idle for as long as configured.
// From then on it accepts no jobs: they would wait for the next daemon.
func (d *Daemon) idleFor(ctx context.Context) bool {
	limit := d.config().IdleExit
	if limit <= 0 || d.server.Active() > 0 {
		return false
	}
	for _, last := range []time.Time{d.started, d.server.LastActivity(), time.Unix(0, d.lastTold.Load())} {
		if time.Since(last) < limit {
			return false
		}
	}
	retired := false
	err := d.do(ctx, func(t *engine.Turn) { retired = t.Retire() })
	return err == nil && retired
}

// tellLastTime is how long an own queue stays for its messages. The next run of the
// queue sends what is left.
const tellLastTime = 15 * time.Second

// tellLast sends what there is to tell when an own queue ends.
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

// publish passes on events that are on disk.
func (d *Daemon) publish(events []job.Event) {
	d.lastTold.Store(time.Now().UnixNano())
	d.untidied.Add(int64(len(events)))
	if d.wordy() {
		wake(d.wrote)
	}
	for _, ev := range events {
		level := slog.LevelInfo
		if ev.Kind == job.EventQueued || ev.Kind == job.EventUsage || d.opt.Own != nil { // an own queue has a journal
			level = slog.LevelDebug
		}
		id := ""
		if ev.Job != nil {
			id = ev.Job.ID
		}
		d.log.Log(context.Background(), level, "event", "kind", ev.Kind, "job", id, "text", ev.Text)
	}
	d.metrics.Events(events)
	if d.opt.Own != nil {
		d.opt.Own.Publish(events)
	}
	d.hub.publish(events)
	d.news.add(events)
	wake(d.happened)
}

// wordy reports whether jobs with so much text ended that one user may have too
// much of it.
func (d *Daemon) wordy() bool {
	return d.store.PastText()-d.pastText.Load() > d.config().HistoryText/4
}

// wake wakes the receiver, if there is one and it was not woken already.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// tidy deletes what is older or more than the config allows: regularly, after
// the config was read again, and if there is suddenly much more of it.
func (d *Daemon) tidy(ctx context.Context) {
	look := time.NewTicker(retainLook)
	defer look.Stop()
	last := time.Now()
	due := last.Add(retainFirst)
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.reloaded:
			due = time.Time{}
		case <-d.wrote:
		case <-look.C:
		}
		if d.wordy() {
			d.pastText.Store(d.store.PastText())
			if err := dropText(*d.config(), d.store, d.log); err != nil {
				d.log.Error("tidy", "err", err)
			}
		}
		now := time.Now()
		regular := !now.Before(due)
		cfg, ok := retainNow(*d.config(), regular, d.untidied.Load())
		if !ok {
			continue
		}
		if regular {
			jumped := now.Round(0).Sub(last.Round(0)) - now.Sub(last)
			last, due = now, now.Add(retainEvery)
			if jumped.Abs() > jumpAllowed {
				// Right after the clock was set, everything may look old.
				d.log.Warn("the clock was changed; old data is not deleted this time", "by", jumped)
				continue
			}
			d.noteCards(ctx)
		}
		d.untidied.Store(0)
		forgotten, err := retain(now, cfg, d.store, d.jobsDir(), d.log)
		if err != nil {
			d.log.Error("tidy", "err", err)
		} else if forgotten > 0 {
			d.log.Info("tidied", "jobs", forgotten)
		}
		if forgotten > 0 {
			d.forgetSamples()
		}
	}
}
