package engine

import (
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/queue/engine/cards"
	"berth/internal/queue/engine/journal"
	"berth/internal/queue/engine/launch"
	"berth/internal/queue/engine/remote"
	"berth/internal/queue/engine/running"
	"berth/internal/queue/engine/settings"
	"berth/internal/queue/engine/waiting"
	"berth/internal/queue/series"
)

// parts is the state of one queue. It has no methods: each of the types that work
// on several parts has its own.
type parts struct {
	cfg      *Config
	changes  *journal.Journal // not on disk yet
	line     *waiting.Line    // waiting jobs
	queue    *waiting.Queue   // requests about them
	groups   *waiting.Groups
	cards    *cards.Cards // what jobs run on
	attempts *running.Set // running jobs
	remote   *remote.Jobs // those that a cluster runs

	moved    bool      // something happened since the last decision that could change it
	again    time.Time // when time alone changes the decision
	removed  error     // why nothing starts here any more: the store is gone
	unleased error     // why no supervisor could be had for the last job that was placed
	admitted bool      // this round let jobs in
	stopping bool
	closed   bool // it has not been opened yet, which is why it is stopping
	ending   bool // the loop is about to end: postpone nothing
}

func present(p *parts) error {
	was := p.removed
	p.removed = p.changes.Store.Present()
	switch {
	case p.removed != nil && was == nil:
		p.changes.Show(p.changes.Now, job.EventWarning, nil, p.removed.Error()+"; no job starts any more, and running jobs are seen to their end")
		p.cfg.Log.Error("the store is gone", "err", p.removed)
	case p.removed == nil && was != nil:
		p.moved = true
		p.changes.Show(p.changes.Now, job.EventNotice, nil, "the store is back; jobs start again")
	}
	return p.removed
}

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

	// Halted reports whether a job that ended at that time after running so long,
	// well or not, was stopped together with berth by somebody else; nil: no. Then it
	// runs again.
	Halted func(at time.Time, ran time.Duration, well bool) bool

	// LostBefore means that a job which was killed or lost earlier ended with the
	// allocation of an earlier berth: it runs again if it would after a failure of
	// the machine. Zero: no job did.
	LostBefore time.Time

	Closed bool // nothing starts until it is opened

	Alive func(job.Process) bool // whether a process exists; nil: ask the kernel
}
