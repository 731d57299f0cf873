// Package queue assembles what one queue runs on: its store, its own log, the
// cards, the supervisors, the ledger and the engine. A daemon and the own queue
// of a `berth run` both use it; their differences are in Setup.
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

// Setup is what differs between machines.
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
	Known func(m *Machine) (known []gpu.Device, wait bool)
	// Choose evaluates the first reading of the cards, which may have failed,
	// and returns those that the queue may use.
	Choose func(m *Machine, first gpu.Sample, unread error) ([]gpu.Device, error)
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

// Machine is everything opened.
type Machine struct {
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
// supervisors are looked for only once the cards are known. If a later step
// fails, everything opened is closed.
func Open(ctx context.Context, setup Setup) (*Machine, error) {
	m := &Machine{setup: setup}
	keep.ReserveThreads(spareThreads)
	for _, step := range []func(context.Context) error{m.openStore, m.openLog, m.openCards, m.openRunner, m.openLedger, m.openSamples} {
		err := step(ctx)
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			m.Close()
			return nil, err
		}
	}
	return m, nil
}

func (m *Machine) openStore(context.Context) (err error) {
	if m.Store, err = store.Open(StoreDir(m.setup.StateDir)); err == nil {
		m.opened = append(m.opened, m.Store)
	}
	return err
}

func (m *Machine) openLog(context.Context) (err error) {
	open := site.OpenLog
	if m.setup.Log.Private {
		open = site.OpenPrivateLog
	}
	file, err := open(m.setup.Log.Path, m.setup.Log.MaxBytes)
	if err := m.keep(m.setup.Hint, file, err); err != nil {
		return err
	}
	if m.Log, err = site.NewLogger(file, m.setup.Log.Level); err != nil {
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
func (m *Machine) openCards(ctx context.Context) (err error) {
	if m.setup.Sim > 0 {
		if m.SimDir = m.setup.Getenv("BERTH_SIM_DIR"); m.SimDir == "" {
			m.SimDir = filepath.Join(m.setup.StateDir, "sim")
		}
	}
	m.Source, err = Await(ctx, m.openSource)
	if err := m.keep(NoCardsHint, m.Source, err); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, firstLook)
	defer cancel()
	first, err := Await(ctx, func() (gpu.Sample, error) { return gpu.FirstLook(bounded, m.Source) })
	m.read = err == nil
	m.heard, m.NoGPUs = first.Xids, err == nil && len(first.Devices) == 0 && len(first.Faults) == 0
	m.Devices, err = m.setup.Choose(m, first, err)
	return err
}

// openSource returns nil on failure, not an interface around nil.
func (m *Machine) openSource() (gpu.Source, error) {
	if m.setup.CPUOnly {
		return gpu.None(), nil
	}
	if m.setup.Sim > 0 {
		box, err := gpu.OpenSim(m.SimDir, m.setup.Sim, m.setup.SimVRAMMiB)
		if err != nil {
			return nil, err
		}
		return box, nil
	}
	options := gpu.OpenOptions{Log: m.Log, Env: m.setup.Getenv}
	if m.setup.Known != nil {
		options.Known, options.Wait = m.setup.Known(m)
	}
	return gpu.Open(options)
}

func (m *Machine) openRunner(ctx context.Context) (err error) {
	options := run.Options{KeepDir: KeepDir(m.setup.StateDir), Log: m.Log}
	if m.setup.Cgroups != nil {
		options.CgroupParent, options.KeepCgroup = m.setup.Cgroups(ctx, m.Log)
	}
	m.Runner, err = run.Open(options)
	if err := m.keep(m.setup.Hint, m.Runner, err); err != nil {
		return err
	}
	l := m.setup.Launcher
	l.SelfDir, l.SimDir = site.SelfDir(), m.SimDir
	l.Host, _ = os.Hostname() // an empty name is all that is lost
	l.SlurmBin, l.HasSlurm = m.linkSlurm(), hasSlurm(m.setup.Getenv)
	l.Filter = m.SimDir == "" && m.Runner.Filters() == nil
	l.UseMPS(m.setup.MPSDir)
	l.Driver, m.CannotPark = gpu.Driver(m.SimDir, m.setup.Getenv)
	if m.CannotPark == "" && m.SimDir == "" && m.read && !m.NoGPUs {
		m.CannotPark = site.CannotPark(ctx, l.Driver[0])
	}
	if m.CannotPark != "" && !m.NoGPUs {
		m.Log.Info("jobs cannot be parked", "why", m.CannotPark)
	}
	m.Launcher = &l
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
func (m *Machine) linkSlurm() string {
	berth, err := os.Executable()
	if err != nil {
		return ""
	}
	dir := filepath.Join(m.setup.StateDir, "slurm")
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
		m.Log.Warn("scripts for Slurm will find no srun", "err", err)
		return ""
	}
	return dir
}

// Name is the name of the queue: the same after a restart, and different for every
// queue, also for one that was made where another berth's directory was removed.
func (m *Machine) Name() string {
	sum := sha256.Sum256([]byte(m.Store.Identity()))
	return hex.EncodeToString(sum[:8])
}

func (m *Machine) openLedger(context.Context) (err error) {
	m.ledger, err = gpu.OpenLedger(m.setup.Ledger, m.Name())
	return m.keep("", m.ledger, err)
}

func (m *Machine) openSamples(context.Context) error {
	m.Samples = series.Open(samplesDir(m.setup.StateDir), m.setup.KeepSamples, m.Log)
	m.opened = append(m.opened, m.Samples)
	return nil
}

// Engine makes the engine for this machine. cfg has the caller's part; last is
// the highest number any job ever had.
func (m *Machine) Engine(cfg engine.Config, last int64) *engine.Engine {
	cfg.Host = m.Host()
	cfg.Devices, cfg.NoGPUs, cfg.Xids, cfg.Log = m.Devices, m.NoGPUs, m.heard, m.Log
	cfg.Parking, cfg.Measured, cfg.CPUTimes = m.Parking(cfg.Parking), m.Samples.Record, run.CPUTimes
	return engine.New(cfg, m.Store, m.Runner, m.Source, m.ledger, run.NewAttribution(), last)
}

// Host is what jobs may use of this machine besides its GPUs.
func (m *Machine) Host() sched.Host {
	cpus, memMiB := site.Host()
	if within := m.setup.Within.CPUs; within > 0 {
		cpus = min(cpus, within)
	}
	if within := m.setup.Within.MemMiB; within > 0 {
		memMiB = min(memMiB, within)
	}
	return sched.Host{CPUs: cpus, MemMiB: memMiB}
}

// Close closes everything; running jobs continue.
func (m *Machine) Close() {
	for _, c := range slices.Backward(m.opened) {
		if err := c.Close(); err != nil && m.Log != nil {
			m.Log.Warn("close", "err", err)
		}
	}
}

// keep registers what Close closes, last opened first.
func (m *Machine) keep(hint string, c io.Closer, err error) error {
	if err != nil {
		return problem.Wrap(problem.Unable, hint, err)
	}
	m.opened = append(m.opened, c)
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
