package engine

import (
	"context"
	"log/slog"
	"time"

	"berth/internal/gpu"
	"berth/internal/job"
	"berth/internal/keep"
	"berth/internal/run"
	"berth/internal/sched"
	"berth/internal/store"
)

// Store is where facts become durable.
type Store interface {
	Commit(tx store.Tx) error
	Job(id string) (*job.Job, error)
	PeakFor(command string) (mib int64, ok bool, err error)
}

// Runner holds the supervisors. A lease runs nothing until Go.
type Runner interface {
	Lease() (token string, err error)
	Release(token string)
	Go(token string, order keep.Order) error
	Stop(token string, why job.Stop, grace time.Duration) error
	Warn(token, stamp string) error
	Ack(token string)
	Identity(token string) (run.Identity, bool)
}

// Ledger is what several berths on one machine tell one another.
type Ledger interface {
	Lock(ctx context.Context) error
	Unlock()
	Others() ([]gpu.Entry, error)
	Publish(own []gpu.Entry) error
	Notes() []string // what it had to pass over since it was last asked
}

// Owners says whose a process on a card is.
type Owners interface {
	Set(holders []run.Holder)
	Owner(pid int) (key string, ok bool, known bool)
	// Local is the same for a process that berth itself knows, not the driver.
	Local(pid int) (key string, ok bool)
}

// CardOf is a card as a job is told of it: where the driver's number of it is in
// doubt, that is -1.
type CardOf func(uuid string) (gpu.Device, bool)

// Config is what does not change while an engine lives.
type Config struct {
	Rules     sched.Rules
	Host      sched.Host
	Cards     []int        // only these; nil: all the source shows
	Devices   []gpu.Device // the cards as they were found; what is free on them the engine looks up itself
	Xids      []gpu.Xid    // what was said of them meanwhile
	Poll      time.Duration
	Rest      bool // leave the cards alone when nobody has had use for them for long
	Tolerance float64
	User      string
	Limits    Limits
	HalfLife  time.Duration // of what a user had, under Rules.Fair
	KeepAll   bool          // no running job is set aside, also none that allows it
	Outer     string        // the booking of the job this berth itself runs in
	// IdleAfter is after how long a job that holds memory and does not use its
	// cards is told of, IdleCancel after how long it is cancelled; 0: never.
	IdleAfter, IdleCancel time.Duration
	// Order is how this job is started. ErrNotNow, or an error that wraps it,
	// sends the job back to the queue; any other ends it.
	Order   func(j *job.Job, card CardOf) (keep.Order, error)
	LogPath func(j *job.Job) string
	Publish func(events []job.Event) // after they are durable

	Submissions bool                 // jobs come one by one, so that the end of the queue is the next number
	TellQueued  bool                 // publish an event for each new job too
	Wanted      func(id string) bool // asked when a job comes back to the queue; nil: always
	After       func(*Turn) bool     // after each round; true ends Run
	Log         *slog.Logger

	Alive func(job.Process) bool // whether a process is there; nil: the kernel is asked
}

// core is the state of one queue, in four parts. Each knows only those above it;
// what takes several is done by a Turn.
type core struct {
	cfg       *Config
	changes   *changes // facts that are not on disk yet
	*line              // who waits for what
	*cards             // what there is to run on
	*attempts          // what runs

	nextSeq  int64
	moved    bool      // something happened since the last decision that could change it
	again    time.Time // when time alone changes what would be decided
	admitted bool      // this round let jobs in
	stopping bool
	ending   bool // the loop is about to end: nothing is put off any more
	door     door
}

// New builds an engine. lastSeq is the highest number any job ever had.
func New(cfg Config, s Store, r Runner, src gpu.Source, l Ledger, o Owners, lastSeq int64) *Engine {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c := &core{cfg: &cfg, changes: newChanges(s, cfg.Log), nextSeq: lastSeq + 1, door: make(door, 16)}
	c.line = newLine(cfg.Rules, c.changes, cfg.Log)
	c.cards = newCards(&cfg, src, l, o, c.changes)
	c.attempts = newAttempts(&cfg, r, c.cards, c.changes)
	// What a part needs of those below it, it is given.
	c.line.capMiB = func(now time.Time, r sched.Request) int64 { return (&Turn{now, c}).capMiB(r) }
	c.cards.quarantined = c.attempts.tellJobsOn
	return &Engine{core: c}
}
