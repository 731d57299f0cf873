package batch

import (
	"context"
	"io"
	"os"
	"time"

	"berth/internal/cluster"
	"berth/internal/engine"
	"berth/internal/job"
	"berth/internal/machine"
	"berth/internal/sched"
	copies "berth/internal/snapshot"
)

// Options are the flags of `berth run`, checked and turned into values.
type Options struct {
	File        string
	Format      Format
	LLMConfig   string // the table of model sizes for a CSV file; empty: llm_config.json, if it exists
	LogDir      string
	StateHome   string         // where the state goes if the log directory is on a network; empty: the user's own
	LogFree     int64          // bytes that growing logs leave free on their disk; 0: none
	GPUs        []int          // nil: all, or those of an inherited CUDA_VISIBLE_DEVICES
	Jobs        int            // at a time; 0: as many as fit
	GroupLimits map[string]int // how many jobs of a group may run at a time
	Poll        time.Duration
	Rules       sched.Rules
	Preempt     string // one of machine.Preempts
	Parking     string // one of machine.Parkings
	Tolerance   float64
	OOMRetries  int
	Watch       bool
	Fresh       bool
	Retry       string // which jobs of earlier runs run again: RetryFailed, RetryAll or none
	Verbose     bool
	Quiet       bool // only jobs that failed, warnings and the summary
	JSON        bool
	LogLevel    string
	AsGpusched  bool // speak as gpusched does, and name logs as it does

	// Serve lets other processes ask about the queue while it runs: publish gets
	// every event, and done is called when the engine has ended. Nil: none can.
	Serve func(Door) (publish func([]job.Event), done func(), err error)

	// Detach starts a berth in the background for a jobs file, and returns once it
	// only waits for the queue. Nil: the run cannot be detached, nor relieve one
	// that was.
	Detach     func(ctx context.Context, file string) (Successor, error)
	Background *Background   // it is such a berth; nil: no
	Keys       <-chan byte   // what is typed at the terminal; nil: nobody is asked
	AskAfter   time.Duration // a job that has run this long is not stopped without asking

	// AcceptEmptyStore continues with an empty store although an earlier run left
	// jobs running.
	AcceptEmptyStore bool

	Snapshot  string       // of the code of lines that say nothing: job.SnapshotAuto, a directory, or none
	Snapshots copies.Place // where they are kept

	To           job.Place      // where jobs run that do not say so
	SlurmOptions string         // of those that run on Slurm and have none
	Slurm        cluster.Config // how they are handed over

	Sim        int   // simulated cards; 0: real ones
	SimVRAMMiB int64 // of each

	Out, Err io.Writer
	Terminal bool // Out is a terminal that can redraw
	Colour   bool
	Width    func() int // columns
	Height   func() int // rows
	Signals  <-chan os.Signal
	Env      []string
	Dir      string // the caller's working directory
}

// What Options.Retry can be.
const (
	RetryFailed = "failed" // and cancelled
	RetryAll    = "all"
)

// Door is what others may ask about a running queue.
type Door struct {
	Place
	Machine *machine.Machine
	Engine  *engine.Engine
}

// defaults are the settings of a line without a block.
func (o *Options) defaults() job.Spec {
	spec := job.Defaults()
	spec.Retries, spec.Snapshot.Tree = o.OOMRetries, o.Snapshot
	spec.To, spec.Slurm, spec.Batch = o.To, o.SlurmOptions, batchOf(o.File, o.LogDir)
	return spec
}
