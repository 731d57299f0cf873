package batch

import (
	"context"
	"io"
	"os"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/slurm/cluster"
	"berth/internal/text/problem"
)

// Options are the flags of `berth run`, checked and turned into values.
type Options struct {
	HostOptions
	File         string
	Format       Format
	LLMConfig    string // the table of model sizes for a CSV file; empty: llm_config.json, if it exists
	OOMRetries   int
	Watch        bool
	Retry        string // which jobs of earlier runs run again: api.RetryFailed, api.RetryAll or none
	Verbose      bool
	Quiet        bool // only jobs that failed, warnings and the summary
	JSON         bool
	Snapshot     string         // of the code of lines that say nothing: job.SnapshotAuto, a directory, or none
	To           job.Place      // where jobs run that do not say so
	SlurmOptions string         // of those that run on Slurm and have none
	Slurm        cluster.Config // how they are handed over

	// Open connects to the queue.
	Open func(ctx context.Context, o *Options, say func(string)) (*Link, error)

	Keyboard <-chan byte   // what is typed at the terminal; nil: nobody is asked
	AskAfter time.Duration // a job that has run this long is not stopped without asking
	Out      io.Writer
	Terminal bool // Out is a terminal that can redraw
	Colour   bool
	Width    func() int // columns
	Height   func() int // rows
	Signals  <-chan os.Signal
	Env      []string
	Dir      string // the caller's working directory
}

// Link is a connection to the queue that the jobs are in.
type Link struct {
	Client *api.Client
	Since  int64  // the event after which to follow; -1: from now on
	Name   string // a daemon's queue, as users know it
	Why    string // an own queue: what asked for one
	Own    *OwnQueue
	// Send makes the queue match the lines of the file. first means that it is the
	// first version of it in this run.
	Send func(ctx context.Context, lines []*jobfile.Line, first, dryRun bool) (api.SubmitReply, error)
}

// all reports whether all jobs of the queue are this run's: it has started it.
func (l *Link) all() bool { return l.Own != nil && !l.Own.Joined }

// OwnQueue is what an own queue has besides.
type OwnQueue struct {
	Place
	Joined bool                    // it ran before this berth did
	Empty  bool                    // it has no jobs of earlier runs
	NoGPU  string                  // why it has no GPU; empty: it has
	SimDir string                  // the simulation directory; empty: the GPUs are real
	Stop   func()                  // tells it to stop its jobs; again: sooner
	Leave  func()                  // tells it that this berth follows no more
	Ended  <-chan struct{}         // closed when its process has ended, if this berth started it
	Failed func() *problem.Problem // why it ended; nil: as it should
	Read   func() *api.Client      // reads its jobs once it has ended
}

// defaults are the settings of a line without a block. Slurm may start a whole run
// again on another node: what ran when the first one failed runs again, too.
func (o *Options) defaults() job.Spec {
	spec := job.Defaults()
	spec.Retries, spec.Snapshot.Tree = o.OOMRetries, o.Snapshot
	spec.To, spec.Slurm = o.To, o.SlurmOptions
	spec.Requeue = inAllocation(o.Env)
	return spec
}

// Batch is the jobs file as the queue knows it.
func (o *Options) Batch(own bool) string {
	dir := o.Dir
	if own {
		dir = o.LogDir
	}
	if info, err := os.Stat(o.File); err == nil && !info.Mode().IsRegular() {
		return FileName(dir, fromPipe)
	}
	return FileName(o.Dir, o.File)
}
