package engine

import (
	"context"
	"log/slog"
	"time"

	"berth/internal/engine/cards"
	"berth/internal/engine/journal"
	"berth/internal/engine/launch"
	"berth/internal/engine/remote"
	"berth/internal/engine/running"
	"berth/internal/engine/settings"
	"berth/internal/engine/waiting"
	"berth/internal/gpu"
	"berth/internal/job"
	"berth/internal/keep"
	"berth/internal/series"
)

// Config is what an engine needs to know and to call.
type Config struct {
	settings.Settings
	// Order is how this job is started. ErrNotNow, or an error that wraps it,
	// sends the job back to the queue; any other ends it.
	Order   func(j *job.Job, card launch.CardOf) (keep.Order, error)
	LogPath func(j *job.Job) string
	Publish func(events []job.Event) // after they are durable
	// Away is told that a cluster's jobs have changed, and must not block. Nil: jobs
	// stay here.
	Away  func()
	Watch Watch // nil: nobody watches
	// Measured gets everything that a sample measured, and must not block. Nil:
	// the past is not kept.
	Measured func(all []series.Reading)
	After    func(*Turn) bool // after each round; true ends Run

	// Halted reports whether a job that ended at that time, well or not, was
	// stopped together with berth by somebody else; nil: no. Then it runs again.
	Halted func(at time.Time, well bool) bool

	// LostBefore means that a job which was killed or lost earlier ended with the
	// allocation of an earlier berth: it runs again if it would after a failure of
	// the machine. Zero: no job did.
	LostBefore time.Time

	Alive func(job.Process) bool // whether a process exists; nil: ask the kernel
}

// New makes an engine. lastSeq is the highest number any job ever had.
func New(cfg Config, s journal.Store, r running.Runner, src gpu.Source, l cards.Ledger, o cards.Owners, lastSeq int64) *Engine {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Watch == nil {
		cfg.Watch = unwatched{}
	}
	p := &parts{cfg: &cfg, changes: journal.New(watchedStore{s, cfg.Watch}, cfg.Log)}
	p.line = waiting.New(&cfg.Settings, p.changes)
	p.queue = &waiting.Queue{Line: p.line, Changes: p.changes, Cfg: &cfg.Settings, NextSeq: lastSeq + 1}
	p.remote = remote.New(p.queue, p.changes)
	p.line.Cluster = p.remote
	p.groups = waiting.NewGroups(p.line, p.changes)
	p.cards = cards.New(&cfg.Settings, src, l, o, p.changes)
	p.attempts = running.New(&cfg.Settings, r, p.cards, p.changes)
	p.line.Room, p.cards.Holders = &p.attempts.Holdings, &p.attempts.Holdings
	e := &Engine{turn: newTurn(p)}
	e.over, e.end = context.WithCancel(context.Background())
	return e
}
