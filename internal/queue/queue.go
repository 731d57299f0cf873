// Package queue opens a queue: its store, its own log, the cards, the supervisors,
// the ledger, the past and the engine. There is no other way to one. A daemon, the
// own queue of a `berth run` and the berth of one job on a cluster's node are doors
// to such a queue; their differences are in Setup. Read opens a queue that no process
// works on, and Rehearse one for a dry run.
//
// It decides nothing. What fails to open is returned as a problem, except for
// the store: the next step there depends on the caller.
package queue

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"berth/internal/machine/gpu"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
	"berth/internal/machine/site"
	"berth/internal/queue/engine"
	"berth/internal/queue/engine/launch"
	"berth/internal/queue/series"
	"berth/internal/queue/store"
	"berth/internal/sched"
	"berth/internal/text/problem"
)

// firstLook bounds the first reading of the cards.
const firstLook = 20 * time.Second

// Setup is what differs between queues.
type Setup struct {
	StateDir string // store, supervisors and simulation directory
	Hint     string // how to choose another directory
	Log      Log

	Sim        int   // simulated cards; 0: real ones
	SimVRAMMiB int64 // of each
	Getenv     func(name string) string

	KeepSamples time.Duration // how long; 0: keep none

	Within sched.Host // how much of the host it may use; 0: all

	CPUOnly bool   // its jobs need no card, so none is looked for
	Ledger  string // where bookings are shared with other berths; empty: the machine's own place

	// Launcher has the caller's part: whose jobs they are and where they run.
	Launcher launch.Launcher
	MPSDir   string // where jobs find the pipes of their MPS servers

	// Known are the cards of an earlier start; wait means that some were there
	// recently, so that a driver that does not answer is late, not missing. Nil:
	// none.
	Known func(q *Queue) (known []gpu.Device, wait bool)
	// Choose evaluates the first reading of the cards, which may have failed,
	// and returns those that the queue may use.
	Choose func(q *Queue, first gpu.Sample, unread error) ([]gpu.Device, error)
	// Cgroups are the cgroups of jobs and of their supervisors. Nil: the same as
	// berth's.
	Cgroups func(ctx context.Context, log *slog.Logger) (jobs, keepers string)
}

// Log is berth's own log.
type Log struct {
	Path     string
	MaxBytes int64
	Private  bool // it mentions several users, so none of them may read it
	Level    string
}

// Queue is everything opened.
type Queue struct {
	Engine   *engine.Engine // once it was started
	Store    *store.Store
	Log      *slog.Logger
	Source   gpu.Source
	Samples  *series.Book // the past of jobs and cards
	Devices  []gpu.Device // as Choose returned them
	NoGPUs   bool         // the machine has no GPU, and runs jobs that need none
	SimDir   string       // the simulation directory; empty: the cards are real
	Runner   *run.Runner
	Launcher *launch.Launcher

	CannotPark string // why jobs cannot be parked here; empty: they can

	setup  Setup
	read   bool      // the cards were
	heard  []gpu.Xid // errors reported while the cards were found
	ledger *gpu.Ledger
	opened []io.Closer
}

// StoreDir is where the store of a state directory is.
func StoreDir(stateDir string) string { return filepath.Join(stateDir, "store") }

// KeepDir is where the supervisors of a state directory are.
func KeepDir(stateDir string) string { return filepath.Join(stateDir, "keep") }

// samplesDir is where the past of a state directory is.
func samplesDir(stateDir string) string { return filepath.Join(stateDir, "samples") }

// spareThreads is more than a busy queue uses at a time.
const spareThreads = 24

// Open opens everything but the engine. The order matters: the store's lock
// makes this the only berth of the queue before anything else is written, and
// supervisors are looked for only once the cards are known.
func Open(ctx context.Context, setup Setup) (*Queue, error) {
	keep.ReserveThreads(spareThreads)
	q := &Queue{setup: setup}
	return q.open(ctx, q.openStore, q.openLog, q.openCards, q.openRunner, q.openLedger, q.openSamples)
}

// open closes everything opened if a later step fails.
func (q *Queue) open(ctx context.Context, steps ...func(context.Context) error) (*Queue, error) {
	for _, step := range steps {
		err := step(ctx)
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			q.Close()
			return nil, err
		}
	}
	return q, nil
}

func (q *Queue) openStore(context.Context) (err error) {
	if q.Store, err = store.Open(StoreDir(q.setup.StateDir)); err == nil {
		q.opened = append(q.opened, q.Store)
	}
	return err
}

func (q *Queue) openLog(context.Context) (err error) {
	open := site.OpenLog
	if q.setup.Log.Private {
		open = site.OpenPrivateLog
	}
	file, err := open(q.setup.Log.Path, q.setup.Log.MaxBytes)
	if err := q.keep(q.setup.Hint, file, err); err != nil {
		return err
	}
	if q.Log, err = site.NewLogger(file, q.setup.Log.Level); err != nil {
		return problem.Wrap(problem.Invalid, "", err)
	}
	return nil
}

// NoCardsHint is the hint when no card can be read.
const NoCardsHint = "without a GPU, try --sim 2: simulated GPUs, real processes; with one, `berth doctor` says what is missing"

// NoGPUHint is the hint when a job needs a card on a machine without one.
const NoGPUHint = "-g 0 runs the job without one; --sim 2 tries it on simulated GPUs"

// openCards finds the cards and reads them once: nothing can be promised before
// that.
func (q *Queue) openCards(ctx context.Context) (err error) {
	if q.setup.Sim > 0 {
		if q.SimDir = q.setup.Getenv("BERTH_SIM_DIR"); q.SimDir == "" {
			q.SimDir = filepath.Join(q.setup.StateDir, "sim")
		}
	}
	q.Source, err = Await(ctx, q.openSource)
	if err := q.keep(NoCardsHint, q.Source, err); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, firstLook)
	defer cancel()
	first, err := Await(ctx, func() (gpu.Sample, error) { return gpu.FirstLook(bounded, q.Source) })
	q.read = err == nil
	q.heard, q.NoGPUs = first.Xids, err == nil && len(first.Devices) == 0 && len(first.Faults) == 0
	q.Devices, err = q.setup.Choose(q, first, err)
	return err
}

// openSource returns nil on failure, not an interface around nil.
func (q *Queue) openSource() (gpu.Source, error) {
	if q.setup.CPUOnly {
		return gpu.None(), nil
	}
	if q.setup.Sim > 0 {
		box, err := gpu.OpenSim(q.SimDir, q.setup.Sim, q.setup.SimVRAMMiB)
		if err != nil {
			return nil, err
		}
		return box, nil
	}
	options := gpu.OpenOptions{Log: q.Log, Env: q.setup.Getenv}
	if q.setup.Known != nil {
		options.Known, options.Wait = q.setup.Known(q)
	}
	return gpu.Open(options)
}

func (q *Queue) openRunner(ctx context.Context) (err error) {
	options := run.Options{KeepDir: KeepDir(q.setup.StateDir), Log: q.Log}
	if q.setup.Cgroups != nil {
		options.CgroupParent, options.KeepCgroup = q.setup.Cgroups(ctx, q.Log)
	}
	q.Runner, err = run.Open(options)
	if err := q.keep(q.setup.Hint, q.Runner, err); err != nil {
		return err
	}
	l := q.setup.Launcher
	l.SelfDir, l.SimDir = site.SelfDir(), q.SimDir
	l.Host, _ = os.Hostname() // an empty name is all that is lost
	l.SlurmBin, l.HasSlurm = q.linkSlurm(), hasSlurm(q.setup.Getenv)
	l.Filter = q.SimDir == "" && q.Runner.Cgroups.Filters() == nil
	l.UseMPS(q.setup.MPSDir)
	l.Driver, q.CannotPark = gpu.Driver(q.SimDir, q.setup.Getenv)
	if q.CannotPark == "" && q.SimDir == "" && q.read && !q.NoGPUs {
		if err := site.CheckPark(ctx, l.Driver[0]); err != nil {
			q.CannotPark = err.Error()
		}
	}
	if q.CannotPark != "" && !q.NoGPUs {
		q.Log.Info("jobs cannot be parked", "why", q.CannotPark)
	}
	q.Launcher = &l
	return nil
}

// slurmNames are the programs of Slurm that berth is in jobs whose scripts were
// written for it.
var slurmNames = []string{"srun", "scontrol", "scancel", "squeue"}

// hasSlurm reports whether this machine belongs to a Slurm cluster, as far as can be
// seen: a job may find its commands although berth does not.
func hasSlurm(getenv func(string) string) bool {
	path, err := exec.LookPath("scontrol")
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err == nil {
		return filepath.Base(path) != "berth" // otherwise Slurm's names are berth's here
	}
	for _, dir := range []string{"/etc/slurm", "/etc/slurm-llnl", "/run/slurm", "/run/munge"} {
		if _, err := os.Stat(dir); err == nil {
			return true
		}
	}
	return getenv != nil && getenv("SLURM_CONF") != ""
}

// linkSlurm makes the directory with these programs. It returns "" if there is
// none.
func (q *Queue) linkSlurm() string {
	berth, err := os.Executable()
	if err != nil {
		return ""
	}
	dir := filepath.Join(q.setup.StateDir, "slurm")
	err = errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o755)) // whatever the umask
	for _, name := range slurmNames {
		link := filepath.Join(dir, name)
		if to, _ := os.Readlink(link); to == berth || err != nil {
			continue
		}
		fresh := link + ".new"
		_ = os.Remove(fresh) // of a start that was killed
		err = errors.Join(os.Symlink(berth, fresh), os.Rename(fresh, link))
	}
	if err != nil {
		q.Log.Warn("scripts for Slurm will find no srun", "err", err)
		return ""
	}
	return dir
}

// Name is the name of the queue: the same after a restart, and different for every
// queue, also for one that was made where another berth's directory was removed.
func (q *Queue) Name() string {
	sum := sha256.Sum256([]byte(q.Store.Identity()))
	return hex.EncodeToString(sum[:8])
}

func (q *Queue) openLedger(context.Context) (err error) {
	q.ledger, err = gpu.OpenLedger(q.setup.Ledger, q.Name())
	return q.keep("", q.ledger, err)
}

func (q *Queue) openSamples(context.Context) error {
	q.Samples = series.Open(samplesDir(q.setup.StateDir), q.setup.KeepSamples, q.Log)
	q.opened = append(q.opened, q.Samples)
	return nil
}

// Host is what jobs may use of this machine besides its GPUs.
func (q *Queue) Host() sched.Host {
	cpus, memMiB := site.Host()
	if within := q.setup.Within.CPUs; within > 0 {
		cpus = min(cpus, within)
	}
	if within := q.setup.Within.MemMiB; within > 0 {
		memMiB = min(memMiB, within)
	}
	return sched.Host{CPUs: cpus, MemMiB: memMiB}
}

// Close closes everything; running jobs continue.
func (q *Queue) Close() {
	for _, c := range slices.Backward(q.opened) {
		if err := c.Close(); err != nil && q.Log != nil {
			q.Log.Warn("close", "err", err)
		}
	}
}

// keep registers what Close closes, last opened first.
func (q *Queue) keep(hint string, c io.Closer, err error) error {
	if err != nil {
		return problem.Wrap(problem.Unable, hint, err)
	}
	q.opened = append(q.opened, c)
	return nil
}

// Await calls f, but returns when ctx ends; f then continues alone, and its
// result is lost. A driver may hang where nothing can interrupt it.
func Await[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := f()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}
