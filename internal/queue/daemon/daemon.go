package daemon

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"berth/internal/api"
	"berth/internal/api/metrics"
	"berth/internal/machine/gpu"
	"berth/internal/machine/run"
	"berth/internal/machine/site"
	"berth/internal/queue"
	"berth/internal/queue/access"
	"berth/internal/queue/config"
	"berth/internal/queue/engine"
	"berth/internal/queue/engine/fault"
	"berth/internal/queue/fair"
	"berth/internal/queue/store"
	"berth/internal/slurm/cluster"
	"berth/internal/text/problem"
)

// Options are the flags of `berth serve`, checked and turned into values.
type Options struct {
	Places   site.Places // Shared: serve all users of the machine
	Version  string
	Explicit bool // the config file was named, so it must exist

	// Override applies the command line on top of the config.
	Override func(*config.Config)

	TypedGPUs  bool  // --gpus was given
	Sim        int   // simulated cards; 0: real ones
	SimVRAMMiB int64 // of each
	NeedsGPUs  bool  // do not start on a machine without a GPU
	IdleExit   time.Duration

	Env     []string
	Out     io.Writer // for the person who started it by hand
	Signals <-chan os.Signal

	// EndJobs stops the running jobs when the daemon is told to stop; they run
	// again under the next one.
	EndJobs bool
	// LimitedLast sends a job that reached its time limit behind every priority.
	LimitedLast bool
	// Own makes it the queue of a berth run; nil: a daemon.
	Own Own
	// Left is closed when the run that started an own queue has left.
	Left <-chan struct{}
	// JobsDir has the directories of jobs; empty: jobs in the state directory.
	JobsDir string
	// RunDir is the directory that the names of an own queue's jobs files are from.
	RunDir string
	// NotHTTP is the reply, as JSON, to a caller that sends JSON instead of HTTP.
	NotHTTP string
	// AcceptEmptyStore starts with a new store although an earlier one had jobs.
	AcceptEmptyStore bool
	Ready            func() // called once the daemon can be reached; may be nil

	serving   func(*Daemon) // called once the daemon can be reached; nil outside of tests
	portRetry time.Duration // 0 outside of tests: the usual
}

// Daemon is a running daemon.
type Daemon struct {
	opt     Options
	cfg     atomic.Pointer[config.Config]
	begun   config.Config // the config at the start
	there   []gpu.Device  // the GPUs found at the start, and those known from before; nil: not read
	uid     int           // whose daemon it is
	started time.Time

	machine  *queue.Queue
	store    *store.Store // the machine's
	log      *slog.Logger // likewise
	found    []run.Found  // supervisors of an earlier daemon
	enforced enforced
	engine   *engine.Engine
	server   *api.Server
	http     *port
	portKeep *portKeep     // of http
	logins   access.Logins // one-time, of the page
	scrapes  *port
	metrics  *metrics.Set
	users    *site.Users
	audit    *access.Audit
	tokens   *access.Tokens
	hub      *hub
	people   people
	environs environs
	twins    twins
	dones    dones
	batches  sync.Map // from a uid to the mutex under which the lines of its files are compared
	deleted  deleted  // what is remembered of lines that were deleted
	wishes   wishes
	teller   *teller // nil: nobody is told
	news     news    // for it
	cluster  atomic.Pointer[cluster.Cluster]

	looks looks
	heap  heap

	ended     chan struct{} // closed when the engine's loop ends
	runs      string        // of a berth run: the directory that the paths of its jobs files are from
	still     *sync.Mutex   // held to use an engine without a loop; nil: the loop runs
	gone      error         // why its store is not its own any more; only for the engine's goroutine
	parting   bool          // its jobs are being stopped; only for the engine's goroutine
	gate      *fair.Gate    // where long work for requests takes turns
	tests     *fair.Gate    // where test messages do
	replays   *fair.Gate    // where replays of the history take turns
	slice     int           // how many jobs are copied or explained in one turn
	wantUser  chan int      // uids needed to start a job and not looked up recently
	lastTold  atomic.Int64  // time of the last event, in nanoseconds
	happened  chan struct{} // there are events to tell users about; nil: nobody is told
	calm      chan struct{} // an own queue has nothing to do, or one of its callers left
	untidied  atomic.Int64  // events since old data was last deleted
	pastText  atomic.Int64  // the text of ended jobs when too much of it was last deleted
	wrote     chan struct{} // jobs with much text ended
	reloaded  chan struct{} // the config was read again
	reloading sync.Mutex    // by one at a time
	wait      sync.WaitGroup
}

func (d *Daemon) config() *config.Config { return d.cfg.Load() }

// maxLong bounds the long work for all users at a time. It leaves some of the
// store's readers to short requests.
const maxLong = 2

// newGate leaves a core to the engine, and a place to other users, where there are
// several.
func newGate(cores int) *fair.Gate {
	most := min(cores-1, maxLong)
	return fair.NewGate(most, most-1)
}

// do runs f in the engine's goroutine and waits for it. If the caller goes away
// first, f does not run.
func (d *Daemon) do(ctx context.Context, f func(t *engine.Turn)) error {
	if d.still != nil {
		d.still.Lock()
		defer d.still.Unlock()
		d.engine.Outside(time.Now(), f)
		return nil
	}
	return unlessEnded(d.engine.Do(ctx, f))
}

// change is do for changes that must be on disk before the reply.
func (d *Daemon) change(ctx context.Context, f func(t *engine.Turn)) error {
	if d.still != nil {
		return d.do(ctx, f) // nothing of it lasts
	}
	ran := false
	err := d.engine.Change(ctx, func(t *engine.Turn) {
		f(t)
		ran = true
	})
	fault.Point("before answer")
	if !ran {
		return unlessEnded(err)
	}
	return notWritten(err)
}

func unlessEnded(err error) error {
	if errors.Is(err, engine.ErrEnded) {
		return stopping()
	}
	return err
}

func stopping() error {
	return problem.Newf(problem.Unable, "try again in a moment", "the daemon is stopping")
}

// goneProblem is the problem for a state directory that was removed.
func goneProblem(err error) error {
	p := problem.Newf(problem.Unable, "restart the daemon to begin a new queue; running jobs go on, and their GPUs stay allocated",
		"%v while the daemon ran: it starts nothing any more, and ends after its running jobs", err)
	p.Err = err
	return p
}

// notWritten is the problem for a failed commit.
func notWritten(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, store.ErrRemoved) {
		return goneProblem(err)
	}
	if errors.Is(err, engine.ErrEnded) {
		return stopping()
	}
	hint := "the log says more; berth help back-up restores the last backup"
	switch {
	case errors.Is(err, store.ErrFull):
		hint = "free some disk space; berth then continues by itself"
	case errors.Is(err, store.ErrUnwritable):
		hint = "dmesg says what happened to the disk of the state directory; once it can be written again, berth continues by itself (berth help service)"
	}
	p := problem.Newf(problem.Unable, hint, "the change could not be saved: %v", err)
	p.Err = err
	return p
}
