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
	"berth/internal/fair"
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
	t := &Turn{cfg: &cfg, changes: journal.New(watchedStore{s, cfg.Watch}, cfg.Log), door: fair.NewDoor[func(*Turn)]()}
	t.line = waiting.New(&cfg.Settings, t.changes)
	t.queue = &waiting.Queue{Line: t.line, Changes: t.changes, Cfg: &cfg.Settings, NextSeq: lastSeq + 1}
	t.remote = remote.New(t.queue, t.changes)
	t.line.Cluster = t.remote
	t.groups = waiting.NewGroups(t.line, t.changes)
	t.cards = cards.New(&cfg.Settings, src, l, o, t.changes)
	t.attempts = running.New(&cfg.Settings, r, t.cards, t.changes)
	t.line.Room, t.cards.Holders = &t.attempts.Holdings, &t.attempts.Holdings
	e := &Engine{turn: t}
	e.over, e.end = context.WithCancel(context.Background())
	return e
}
