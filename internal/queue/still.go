package queue

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
	"berth/internal/queue/engine"
	"berth/internal/queue/engine/launch"
	"berth/internal/queue/series"
	"berth/internal/queue/store"
)

// OpenToRead opens a queue that no berth works on, for reading: its store, and
// an engine that knows the unfinished jobs as the store has them. That engine
// has no cards and no supervisors, and its loop must not run.
func OpenToRead(stateDir string, cfg engine.Config, l launch.Launcher) (*Machine, *engine.Engine, error) {
	s, err := store.OpenToRead(StoreDir(stateDir))
	if err != nil {
		return nil, nil, err
	}
	m := &Machine{Store: s, Log: slog.New(slog.DiscardHandler), Source: nothing{}, Launcher: &l}
	m.Samples = series.New(samplesDir(stateDir), series.Keep, m.Log)
	m.opened = append(m.opened, s)
	e, err := m.still(cfg, stateDir)
	if err != nil {
		m.Close()
		return nil, nil, err
	}
	return m, e, nil
}

// Rehearse opens what a dry run needs: the cards as they are, the store of an
// earlier run for reading, if earlier has one, and an engine that can start nothing.
// Everything else is made in setup.StateDir.
func Rehearse(ctx context.Context, setup Setup, config func() engine.Config, earlier string) (*Machine, *engine.Engine, error) {
	l := setup.Launcher
	m := &Machine{setup: setup, Log: slog.New(slog.DiscardHandler), Launcher: &l}
	open, dir := store.OpenToRead, StoreDir(earlier)
	if earlier == "" {
		open, dir = store.Open, StoreDir(setup.StateDir)
	}
	s, err := open(dir)
	if err != nil {
		return nil, nil, err
	}
	m.Store, m.opened = s, append(m.opened, s)
	if err := m.openCards(ctx); err != nil {
		m.Close()
		return nil, nil, err
	}
	m.Samples = series.New(samplesDir(setup.StateDir), 0, m.Log)
	l.SimDir = m.SimDir
	l.UseMPS(setup.MPSDir)
	cfg := config() // it may depend on the cards
	cfg.Host, cfg.Devices, cfg.NoGPUs, cfg.Xids = m.Host(), m.Devices, m.NoGPUs, m.heard
	e, err := m.still(cfg, cmp.Or(earlier, setup.StateDir))
	if err != nil {
		m.Close()
		return nil, nil, err
	}
	sample, err := m.Source.Sample(ctx)
	if err == nil {
		e.Outside(time.Now(), func(t *engine.Turn) { t.See(sample) })
	}
	return m, e, nil
}

func (m *Machine) still(cfg engine.Config, stateDir string) (*engine.Engine, error) {
	last, err := m.Store.LastSeq()
	if err != nil {
		return nil, err
	}
	found, err := run.Living(KeepDir(stateDir))
	if err != nil {
		return nil, err
	}
	var live []*job.Job
	if err := m.Store.EachLive(func(j *job.Job) error { live = append(live, j); return nil }); err != nil {
		return nil, err
	}
	cfg.Order, cfg.LogPath, cfg.Log = m.Launcher.Order, m.Launcher.LogPath, m.Log
	e := engine.New(cfg, m.Store, nothing{}, nothing{}, nothing{}, nothing{}, last)
	e.Outside(time.Now(), func(t *engine.Turn) { t.Recovery().Restore(live, found) })
	return e, nil
}

// nothing replaces store, cards, supervisors and ledger where nothing runs.
type nothing struct{}

var errStill = errors.New("no berth works on this queue")

func (nothing) Commit(store.Tx) error                       { return errStill }
func (nothing) Job(string) (*job.Job, error)                { return nil, store.ErrNotFound }
func (nothing) PeakFor(string, string) (int64, int, error)  { return 0, 0, nil }
func (nothing) Present() error                              { return nil }
func (nothing) Name() string                                { return "none" }
func (nothing) Sample(context.Context) (gpu.Sample, error)  { return gpu.Sample{}, errStill }
func (nothing) Cheap() bool                                 { return false }
func (nothing) Close() error                                { return nil }
func (nothing) Lease() (string, error)                      { return "", errStill }
func (nothing) Release(string)                              {}
func (nothing) Go(string, keep.Order) error                 { return errStill }
func (nothing) Stop(string, job.Stop, time.Duration) error  { return errStill }
func (nothing) Warn(string, string) error                   { return errStill }
func (nothing) Park(string, time.Duration, int64) error     { return errStill }
func (nothing) Resume(string, []keep.Room) error            { return errStill }
func (nothing) Ack(string)                                  {}
func (nothing) Lose(string, string, int)                    {}
func (nothing) Identity(string) (run.Identity, bool)        { return run.Identity{}, false }
func (nothing) Lock(context.Context) error                  { return errStill }
func (nothing) Unlock()                                     {}
func (nothing) Others() ([]gpu.Entry, error)                { return nil, nil }
func (nothing) Publish([]gpu.Entry) error                   { return errStill }
func (nothing) Notes() []string                             { return nil }
func (nothing) Set([]run.Holder)                            {}
func (nothing) Owner(int) (key string, ok bool, known bool) { return "", false, false }
func (nothing) Local(int) (key string, ok bool)             { return "", false }
