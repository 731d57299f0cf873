package engine

import (
	"context"
	"log/slog"
	"time"

	"berth/internal/engine/launch"
	"berth/internal/fair"
	"berth/internal/gpu"
	"berth/internal/job"
	"berth/internal/keep"
	"berth/internal/run"
	"berth/internal/sched"
	"berth/internal/series"
	"berth/internal/store"
)

// Store makes facts durable.
type Store interface {
	Commit(tx store.Tx) error
	Job(id string) (*job.Job, error)
	PeakFor(user, command string) (mib int64, runs int, err error)
	Present() error // an error if the store was removed, or taken over
}

// Runner holds the supervisors. A lease runs nothing until Go.
type Runner interface {
	Lease() (token string, err error)
	Release(token string)
	Go(token string, order keep.Order) error
	Stop(token string, why job.Stop, grace time.Duration) error
	Warn(token, stamp string) error
	// Park and Resume ask a supervisor; an event says what came of it.
	Park(token string, patience time.Duration, hostMiB int64) error
	Resume(token string, hold []keep.Room) error
	Ack(token string)
	// Lose ends what is left of a job whose supervisor's directory is gone. The
	// event follows when the last process is gone.
	Lose(token, id string, attempt int)
	Identity(token string) (run.Identity, bool)
}

// Ledger is what several berths on one machine tell each other.
type Ledger interface {
	Lock(ctx context.Context) error
	Unlock()
	Others() ([]gpu.Entry, error)
	Publish(own []gpu.Entry) error
	Notes() []string // entries it had to skip since the last call
}

// Owners says which job a process on a card belongs to.
type Owners interface {
	Set(holders []run.Holder)
	Owner(pid int) (key string, ok bool, known bool)
	// Local is the same for a process number of berth's own PID namespace, not
	// the driver's.
	Local(pid int) (key string, ok bool)
}

// Config does not change while an engine lives.
type Config struct {
	Rules     sched.Rules
	Host      sched.Host
	Cards     []int        // only these; nil: all
	Devices   []gpu.Device // the cards found; the engine reads their free memory itself
	NoGPUs    bool         // there are none, so what needs one can be refused
	Xids      []gpu.Xid    // errors reported for them meanwhile
	Poll      time.Duration
	Rest      bool // stop polling the cards after they have been idle for long
	Tolerance float64
	User      string
	Limits    Limits
	HalfLife  time.Duration // of usage, under Rules.Fair
	KeepAll   bool          // preempt no job, not even a preemptible one
	Outer     string        // the booking of the job this berth itself runs in
	// IdleAfter is how long a job may hold its cards, or CPUs, without using them
	// before that is reported, IdleCancel before the job is cancelled; 0: never.
	IdleAfter, IdleCancel time.Duration
	// CPUTimes is the CPU time that jobs have used, by token. It runs beside the
	// loop. Nil: no job is idle for using no CPU time.
	CPUTimes func(jobs []run.Identity) map[string]time.Duration
	Overuse  Overuse
	// MaxGrace bounds the time between TERM and KILL, and how long a warning signal
	// may delay a preemption; 0: the job decides.
	MaxGrace time.Duration
	Parking  Parking
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

	// LimitedLast sends a job that reached its time limit behind every priority;
	// otherwise it stays before lower ones.
	LimitedLast bool
	Submissions bool                 // jobs arrive one by one, so the end of the queue is the next number
	TellQueued  bool                 // publish an event for each new job too
	Wanted      func(id string) bool // asked when a job comes back to the queue; nil: always
	After       func(*Turn) bool     // after each round; true ends Run
	Log         *slog.Logger

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
func New(cfg Config, s Store, r Runner, src gpu.Source, l Ledger, o Owners, lastSeq int64) *Engine {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Watch == nil {
		cfg.Watch = unwatched{}
	}
	t := &Turn{cfg: &cfg, changes: newChanges(watchedStore{s, cfg.Watch}, cfg.Log), door: fair.NewDoor[func(*Turn)]()}
	t.line = newLine(&cfg, t.changes)
	t.queue = &Queue{line: t.line, changes: t.changes, cfg: &cfg, nextSeq: lastSeq + 1}
	t.line.away.queue = t.queue
	t.groups = newGroups(t.line, t.changes)
	t.cards = newCards(&cfg, src, l, o, t.changes)
	t.attempts = newAttempts(&cfg, r, t.cards, t.changes)
	// Each part gets what it needs from those below it as functions.
	t.line.capMiB = func(_ time.Time, r sched.Request) int64 { return t.capMiB(r) }
	t.line.parking = t.attempts.parking.pace.preempt
	t.cards.quarantined = t.attempts.tellJobsOn
	t.cards.bookings.strays = t.attempts.holdings.strayBookings
	e := &Engine{turn: t}
	e.over, e.end = context.WithCancel(context.Background())
	return e
}
