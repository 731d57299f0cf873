package queue

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"berth/internal/machine/gpu"
	"berth/internal/machine/run"
	"berth/internal/queue/engine"
	"berth/internal/queue/engine/launch"
	"berth/internal/queue/series"
	"berth/internal/queue/store"
)

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
