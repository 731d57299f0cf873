package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"berth/internal/api"
	"berth/internal/api/metrics"
	"berth/internal/api/web"
	"berth/internal/job"
	"berth/internal/machine/site"
	"berth/internal/queue"
	"berth/internal/queue/ports"
	"berth/internal/queue/store"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// Serve runs a daemon until it is told to stop. Its errors are *problem.Problem
// where a person can act on them. Jobs keep running without it.
func Serve(ctx context.Context, opt Options) error {
	return serve(ctx, opt, func(*Daemon) {})
}

// serve calls serving once the daemon can be reached.
func serve(ctx context.Context, opt Options, serving func(*Daemon)) error {
	d := newDaemon(opt)
	d.metrics = metrics.New(opt.Version)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer d.close()
	keepHeap()
	if err := d.open(ctx); err != nil {
		return err
	}
	return d.serve(ctx, stop, serving)
}

// served hears of every request and stream that has ended.
func (d *Daemon) served(operation string, status int, took time.Duration, stream bool) {
	d.metrics.Served(operation, status, took, stream)
	wake(d.life.calm)
}

func (d *Daemon) serve(ctx context.Context, stop context.CancelCauseFunc, serving func(*Daemon)) error {
	meter := meter{do: d.svc.Do, engine: d.svc.queue.Engine, store: store.Path(queue.StoreDir(d.svc.places.StateDir))}
	d.life.server = d.newServer(api.ServerOptions{
		Limits: d.opt.requestLimits(), Log: d.svc.queue.Log, NotHTTP: d.opt.NotHTTP, Served: d.served, Page: web.Handler(),
		Metrics: func(ctx context.Context) ([]byte, error) {
			state, err := meter.look(ctx, d.life.server.Active())
			if err != nil {
				return nil, err
			}
			return d.metrics.Text(state, d.svc.Config().MetricsUsers), nil
		},
	})
	d.messages.Start(ctx)
	d.svc.cluster.Store(d.newCluster())
	d.wait.Go(func() { d.svc.cluster.Load().Run(ctx) })
	names, err := d.ports.Serve(ctx, stop, &d.wait, ports.Setup{
		Server: d.life.server, Config: d.svc.Config(), Places: d.opt.Places, People: d.people, Door: d.door,
		Store: d.svc.queue.Store, Log: d.svc.queue.Log, Retry: d.opt.portRetry,
	})
	if err != nil {
		return err
	}
	d.wait.Go(func() { d.life.hear(ctx, stop) })
	d.wait.Go(func() { d.life.attend(ctx, stop) })
	d.wait.Go(func() { d.people.KeepKnown(ctx, d.svc.Do) })
	d.wait.Go(func() { d.tidier.tidy(ctx) })
	if d.svc.own != nil {
		d.wait.Go(func() { d.life.untilDrained(ctx, stop) })
	}
	d.greet(ctx, names)
	_ = site.Notify("READY=1") // there may be no service manager
	serving(d)
	if d.opt.Ready != nil {
		d.opt.Ready()
	}
	err = d.svc.queue.Engine.Run(ctx, d.svc.queue.Runner.Events(), d.life.parted)
	wasStopped := err == nil || errors.Is(context.Cause(ctx), errStopped)
	if d.svc.own != nil {
		d.svc.queue.Engine.Outside(time.Now(), d.svc.own.Over)
		if err == nil {
			d.life.tellLast()
		}
	}
	// From here on no request is accepted; pending ones are answered.
	_ = site.Notify("STOPPING=1")
	close(d.svc.ended)
	d.svc.hub.close()
	stop(errStopped)
	bounded, cancel := context.WithTimeout(context.Background(), shutdownTime)
	defer cancel()
	if err := d.life.server.Shutdown(bounded); err != nil {
		d.svc.queue.Log.Warn("shut down", "err", err)
	}
	// Nobody can tell whether a shared daemon is stopped or restarted.
	d.ports.End(wasStopped && !d.svc.places.Shared)
	d.wait.Wait()
	d.svc.queue.Log.Info("stopped", "err", context.Cause(ctx))
	if err == nil && d.life.gone != nil {
		return goneProblem(d.life.gone)
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

// greet tells a person who started the daemon by hand where it is.
func (d *Daemon) greet(ctx context.Context, names []string) {
	address, warnings := d.ports.HTTP()
	if address != "" {
		names = append(names, address)
	}
	scraped, more := d.ports.Metrics()
	warnings = append(warnings, more...)
	kind := "private to " + d.people.Name(d.people.UID)
	if d.svc.places.Shared {
		kind = "shared by all users"
	}
	d.svc.queue.Log.Info("serving", "on", names, "state", d.svc.places.StateDir, "shared", d.svc.places.Shared, "gpus", len(d.svc.queue.Devices), "version", d.svc.version)
	doubtful := append(d.admin.begun.Warnings(d.svc.places.Shared), d.svc.Config().UnknownUsers(ctx, d.people.Users)...)
	for _, warning := range doubtful {
		d.svc.queue.Log.Warn(warning)
	}
	if d.opt.Out == nil {
		return
	}
	cards := text.Count(len(d.svc.queue.Devices), "GPU")
	if d.svc.queue.NoGPUs {
		cards = "no GPU"
	}
	fmt.Fprintf(d.opt.Out, "berth %s: serving %s on %s, %s\n", d.svc.version, cards, strings.Join(names, " and "), kind)
	fmt.Fprintf(d.opt.Out, "state %s, log %s\n", d.svc.places.StateDir, filepath.Join(d.svc.places.StateDir, "berth.log"))
	if scraped != "" {
		fmt.Fprintf(d.opt.Out, "metrics http://%s/metrics\n", scraped)
	}
	for _, warning := range warnings {
		fmt.Fprintf(d.opt.Out, "berth: %s\n", warning)
	}
	for _, warning := range append(missingGPUs(d.svc.Config().GPUs, d.record.there), doubtful...) {
		fmt.Fprintf(d.opt.Out, "warning: %s\n", warning)
	}
	if d.svc.queue.SimDir != "" {
		fmt.Fprintf(d.opt.Out, "simulated GPUs: BERTH_SIM_DIR=%s\n", d.svc.queue.SimDir)
	}
}

// publish passes on events that are on disk.
func (d *Daemon) publish(events []job.Event) {
	d.life.lastTold.Store(time.Now().UnixNano())
	d.tidier.untidied.Add(int64(len(events)))
	if d.tidier.wordy() {
		wake(d.tidier.wrote)
	}
	for _, ev := range events {
		level := slog.LevelInfo
		if ev.Kind == job.EventQueued || ev.Kind == job.EventUsage || d.svc.own != nil { // an own queue has a journal
			level = slog.LevelDebug
		}
		if !d.svc.queue.Log.Enabled(context.Background(), level) {
			continue
		}
		id := ""
		if ev.Job != nil {
			id = ev.Job.ID
		}
		d.svc.queue.Log.Log(context.Background(), level, "event", "kind", ev.Kind, "job", id, "text", ev.Text)
	}
	d.metrics.Events(events)
	if d.svc.own != nil {
		d.svc.own.Publish(events)
	}
	d.messages.Publish(events) // first: whoever sees the event and then sets rules does not set them for it
	d.svc.hub.publish(events)
}
