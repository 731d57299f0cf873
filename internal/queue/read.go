package queue

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/machine/run"
	"berth/internal/queue/engine"
	"berth/internal/queue/engine/launch"
	"berth/internal/queue/series"
	"berth/internal/queue/store"
)

// Start makes the engine. cfg has the caller's part; last is the highest number
// any job ever had.
func (q *Queue) Start(cfg engine.Config, last int64) {
	cfg.Host = q.Host()
	cfg.Devices = q.Devices
	cfg.NoGPUs = q.NoGPUs
	cfg.Xids = q.heard
	cfg.Log = q.Log
	cfg.Parking = q.Parking(cfg.Parking)
	cfg.Measured = q.Samples.Record
	cfg.CPUTimes = run.CPUTimes
	q.Engine = engine.New(cfg, q.Store, q.Runner, q.Source, q.ledger, run.NewAttribution(), last)
}

// TakeOver gives the engine the jobs that an earlier process left, some of them with
// the supervisors that were found, and what that one knew.
func (q *Queue) TakeOver(found []run.Found) (err error) {
	q.Engine.Outside(time.Now(), func(t *engine.Turn) {
		r, one, all := t.Recovery(), q.Store.Meta, q.Store.Metas
		for _, restore := range []func() error{
			func() error { return r.Pauses(one) },
			func() error { return r.Usage(one) },
			func() error { return r.Health(one) },
			func() error { return t.Parking().RestorePace(one) },
			func() error { return t.Groups().Restore(all) },
		} {
			if err == nil {
				err = restore()
			}
		}
		r.Recall(q.Store.Past)
	})
	if err != nil {
		return err
	}
	return q.takeJobs(found)
}

// pageOfJobs is how many queued jobs are in memory as they are in the store. In the
// queue they take much less.
const pageOfJobs = 500

// takeJobs restores the queued jobs, and then the others with their supervisors.
func (q *Queue) takeJobs(found []run.Found) error {
	restore := func(jobs []*job.Job, found []run.Found) {
		q.Engine.Outside(time.Now(), func(t *engine.Turn) { t.Recovery().Restore(jobs, found) })
	}
	var queued, begun []*job.Job
	err := q.Store.EachLive(func(j *job.Job) error {
		if j.State != job.Queued {
			begun = append(begun, j)
			return nil
		}
		if queued = append(queued, j); len(queued) == pageOfJobs {
			restore(queued, nil)
			queued = queued[:0]
		}
		return nil
	})
	if err == nil {
		restore(queued, nil)
		restore(begun, found)
	}
	return err
}

// Read opens a queue that no process works on, for reading: its store, and an engine
// that knows the unfinished jobs as the store has them. It has no cards and no
// supervisors, and its loop must not run. config may depend on what was opened.
func Read(stateDir string, l launch.Launcher, config func(*Queue) engine.Config) (*Queue, error) {
	q := &Queue{Log: slog.New(slog.DiscardHandler), Source: gpu.None(), Runner: run.Closed(), Launcher: &l}
	return q.open(context.Background(), q.readStore(stateDir), func(context.Context) error {
		q.Samples = series.New(samplesDir(stateDir), series.Keep, q.Log)
		found, err := q.still(config, stateDir)
		if err == nil {
			err = q.takeJobs(found)
		}
		return err
	})
}

// Rehearse opens what a dry run needs: the cards as they are, the store of an
// earlier run for reading, if earlier has one, and an engine that can start nothing.
// Everything else is made in setup.StateDir. config may depend on what was opened.
func Rehearse(ctx context.Context, setup Setup, earlier string, config func(*Queue) engine.Config) (*Queue, error) {
	l := setup.Launcher
	q := &Queue{setup: setup, Log: slog.New(slog.DiscardHandler), Runner: run.Closed(), Launcher: &l}
	open := q.openStore
	if earlier != "" {
		open = q.readStore(earlier)
	}
	return q.open(ctx, open, q.openCards, q.openLedger, func(ctx context.Context) error {
		q.Samples = series.New(samplesDir(setup.StateDir), 0, q.Log)
		l.SimDir = q.SimDir
		l.UseMPS(setup.MPSDir)
		found, err := q.still(config, cmp.Or(earlier, setup.StateDir))
		if err == nil {
			err = q.TakeOver(found)
		}
		if err != nil {
			return err
		}
		if sample, err := q.Source.Sample(ctx); err == nil {
			q.Engine.Outside(time.Now(), func(t *engine.Turn) { t.See(sample) })
		}
		return nil
	})
}

func (q *Queue) readStore(stateDir string) func(context.Context) error {
	return func(context.Context) (err error) {
		if q.Store, err = store.OpenToRead(StoreDir(stateDir)); err == nil {
			q.opened = append(q.opened, q.Store)
		}
		return err
	}
}

// still makes an engine whose loop does not run, and finds the supervisors of the queue.
func (q *Queue) still(config func(*Queue) engine.Config, stateDir string) ([]run.Found, error) {
	last, err := q.Store.LastSeq()
	if err != nil {
		return nil, err
	}
	q.Start(config(q), last)
	return run.Living(KeepDir(stateDir))
}
