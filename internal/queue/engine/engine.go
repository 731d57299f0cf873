package engine

import (
	"context"
	"log/slog"

	"berth/internal/machine/gpu"
	"berth/internal/queue/engine/cards"
	"berth/internal/queue/engine/journal"
	"berth/internal/queue/engine/remote"
	"berth/internal/queue/engine/running"
	"berth/internal/queue/engine/waiting"
)

// New makes an engine. lastSeq is the highest number any job ever had.
func New(cfg Config, s journal.Store, r running.Runner, src gpu.Source, l cards.Ledger, o cards.Owners, lastSeq int64) *Engine {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Watch == nil {
		cfg.Watch = unwatched{}
	}
	p := &parts{cfg: &cfg, changes: journal.New(watchedStore{s, cfg.Watch}, cfg.Log), stopping: cfg.Closed, closed: cfg.Closed}
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
