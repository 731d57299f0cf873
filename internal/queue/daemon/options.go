package daemon

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"berth/internal/api"
	"berth/internal/machine/site"
	"berth/internal/queue/config"
	"berth/internal/queue/store"
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

	portRetry time.Duration // 0 outside of tests: the usual
}

func (o *Options) loadConfig() (config.Config, error) {
	if o.Own != nil {
		return o.settled(ownConfig(), nil)
	}
	return o.settled(config.Load(o.Places.Config, o.Places.Shared, o.Explicit))
}

// settled is a config that was read, with what flags override.
func (o *Options) settled(cfg config.Config, err error) (config.Config, error) {
	if err != nil {
		p := problem.Newf(problem.Invalid, "berth help config lists the keys", "%v", err)
		p.Err = err
		return cfg, p
	}
	if o.Override != nil {
		o.Override(&cfg)
	}
	if o.IdleExit > 0 {
		cfg.IdleExit = o.IdleExit
	}
	return cfg, cfg.Check()
}

// mpsHome is the directory for jobs' MPS servers. Users' programs must be able
// to reach the sockets in it.
func (o *Options) mpsHome() string {
	if o.Places.Shared {
		return filepath.Dir(o.Places.Socket)
	}
	return o.Places.StateDir
}

// cgroups are a systemd scope for jobs, and a group in it for their supervisors.
func (o *Options) cgroups(ctx context.Context, log *slog.Logger) (jobs, keepers string) {
	bounded, cancel := context.WithTimeout(ctx, scopeTime)
	defer cancel()
	self := []string{"/proc/self/exe", site.HoldWord}
	if path, err := os.Executable(); err == nil {
		self[0] = path
	}
	jobs, why, err := site.JobScope(bounded, !o.Places.Shared, self)
	if err != nil {
		log.Warn("no systemd scope for jobs", "err", err)
		return jobs, ""
	}
	if jobs == "" {
		log.Info("no systemd scope for jobs", "why", why)
		return "", ""
	}
	// Not in the service's own cgroup: processes left there would block systemd
	// when the service restarts.
	keepers = filepath.Join(jobs, "keepers")
	if err := os.Mkdir(keepers, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		log.Warn("supervisors stay in the service's cgroup", "err", err)
		return jobs, ""
	}
	return jobs, keepers
}

// notOpened is the problem for a store that cannot be opened.
func (o *Options) notOpened(err error) error {
	if problem.KindOf(err) != "" || errors.Is(err, context.Canceled) {
		return err
	}
	if locked, ok := errors.AsType[*store.LockedError](err); ok {
		p := problem.Newf(problem.Refused, "berth list talks to it; for a second queue use another --state-dir and --socket", "another berth daemon is using %s (pid %d)", o.Places.StateDir, locked.PID)
		p.Err = ErrInUse
		return p
	}
	if _, ok := errors.AsType[*store.NewerSchemaError](err); ok {
		return problem.Newf(problem.Refused, "use the newer berth"+map[bool]string{true: ", or another --log-dir"}[o.Own != nil], "%v", err)
	}
	return problem.Newf(problem.Unable, "is the disk full or read-only? berth restore brings back a backup", "%v", err)
}

// requestLimits lets a run send the largest jobs file to its own queue.
func (o *Options) requestLimits() api.Limits {
	if o.Own == nil {
		return api.Limits{}
	}
	return api.Limits{SubmitBytes: 4 << 30, Specs: 1 << 20}
}

const (
	maxNumber = 1e15 // the largest job number a user can type
	logBytes  = 16 << 20
	scopeTime = 10 * time.Second
)

// StateDirHint is the next step where the state directory cannot be used.
const StateDirHint = "choose another directory with --state-dir"

// ErrInUse is the cause of the problem where another daemon uses the state
// directory.
var ErrInUse = errors.New("another daemon uses the state directory")

func stateProblem(err error) error {
	p := problem.Newf(problem.Refused, StateDirHint, "%v", err)
	p.Err = err
	return p
}
