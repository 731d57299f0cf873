package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"berth/internal/batch"
	"berth/internal/daemon"
	"berth/internal/job"
	"berth/internal/jobfile"
	"berth/internal/problem"
	"berth/internal/site"
	"berth/internal/text"
)

// runFlags are the flags of `berth run` as they were typed.
type runFlags struct {
	ruleFlags
	noColour    bool
	detached    bool
	dryRun      bool
	retryFailed bool
	format      string
	opt         batch.Options
	groupLimits []string
	to          string
	alloc       allocFlags
}

func newRun() *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use:   "run JOBS_FILE",
		Short: "Run a file of commands, each on GPUs with room for it",
		Long: `Run each line of a file as a job, in the foreground, and exit when all of them
have ended.

The file has one shell command per line; blank lines and lines that begin with
# are skipped. A [key=value ...] block before the command says what it needs:

  python preprocess.py                       alone on an idle GPU
  [vram=18G] python train.py                 any GPU with room for 18 GiB
  [vram=30G gpus=2] torchrun train_big.py    two GPUs
  [gpus=0.5 name=eval after=train] ...       half a GPU, after the job train

A CSV file has priority,script_path,conda_env,arguments,allowed_gpus on each
line. It runs Python scripts, lowest priority number first, and passes each its
GPUs as --cuda.

You can edit the file while it runs: added lines run, deleted lines do not.
Running the same command again skips the jobs that finished. If berth is killed,
its jobs keep running and the next berth run takes them over. Processes that
a job leaves in the background have its grace period to end (10 s), then berth
ends them.

On a terminal, d detaches: the queue goes on in the background, berth list, logs
and cancel know its jobs, and the same command comes back. A terminal that
closes does the same. Ctrl-C stops the jobs, and asks first if one has run for
10 minutes. berth help jobsfile has the whole format.`,
		Example: `  berth run jobs.txt
  berth run jobs.txt --gpus 0,1 --watch
  berth run jobs.txt --dry-run
  berth run jobs.csv --llm-config sizes.json
  berth run jobs.txt --policy shortest --max-bypass 2h
  berth run jobs.txt --to slurm --slurm "--account=lab"
  berth run examples/jobs.txt --sim 2
  berth run jobs.txt --to slurm --allocations 4 --alloc "--gres=gpu:2 -t 8h"

Exit status: 0 every job succeeded or is marked cancel; otherwise the largest
exit code of a failed job (at least 1); 2 bad usage or an unreadable jobs file;
130 interrupted. 0 also if it was detached, and after --dry-run, unless a job
could never run here (1).`,
		Args: oneFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.opt.File = args[0]
			return f.run(cmd)
		},
	}
	f.register(cmd)
	return cmd
}

func oneFile(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	hint := "berth run jobs.txt"
	if len(args) > 1 && !exists(args[0]) {
		hint = "to run a command: berth submit -- " + job.QuoteArgv(args)
	}
	return problem.Newf(problem.Invalid, hint, "expected one jobs file, found %d", len(args))
}

func (f *runFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&f.dryRun, "dry-run", false, "say what each job would do now, and what is wrong; start and write nothing")
	flags.BoolVar(&f.opt.Watch, "watch", false, "keep waiting for new lines after all jobs have ended")
	flags.BoolVar(&f.opt.Fresh, "fresh", false, "start over: run every job again")
	flags.StringVar(&f.opt.Retry, "retry", "", "`which` jobs of earlier runs to run again: failed (and cancelled), or all")
	flags.BoolVar(&f.retryFailed, "retry-failed", false, "the same as --retry failed")
	flags.BoolVar(&f.opt.AcceptEmptyStore, "accept-empty-store", false, "continue although the store is empty and jobs of an earlier run still run")
	flags.StringVar(&f.format, "format", "", "format of the jobs file: lines or csv (default by its name: *.csv is csv)")
	flags.StringVar(&f.opt.LLMConfig, "llm-config", "", "how much of a GPU each --llm in a CSV file takes (default llm_config.json, if it exists)")
	flags.IntVarP(&f.opt.Jobs, "jobs", "j", 0, "run at most this many jobs at a time (default as many as fit)")
	flags.StringArrayVar(&f.groupLimits, "group-limit", nil, "run at most N jobs of a group at a time, `NAME=N`; may be repeated")
	flags.StringVar(&f.opt.LogDir, "log-dir", batch.DefaultLogDir, "directory for logs, journal, status board and state")
	flags.IntVar(&f.opt.OOMRetries, "oom-retries", 0, "retries after CUDA out of memory, each declaring more VRAM (retries= of a line overrides it)")
	flags.StringVar(&f.opt.Snapshot, "snapshot", "", "run the code as it is now: a copy of the git tree with its uncommitted changes, or of this `dir`")
	flags.Lookup("snapshot").NoOptDefVal = job.SnapshotAuto
	flags.StringVar(&f.to, "to", "", "the `place` where jobs run that do not say so: local or slurm (default: engine in the config, or local)")
	flags.StringVar(&f.opt.SlurmOptions, "slurm", "", "further `options` for sbatch of the jobs that run on Slurm, such as \"--account=lab\"")
	f.alloc.register(cmd)
	flags.BoolVar(&f.opt.AsGpusched, "as-gpusched", false, "speak as gpusched does, and name logs as it does")
	_ = flags.MarkHidden("as-gpusched") // for the front end of that name
	flags.BoolVar(&f.detached, "detached", false, "continue a run that was detached")
	_ = flags.MarkHidden("detached") // for berth itself
	f.ruleFlags.register(cmd, " (default all, or those in an inherited CUDA_VISIBLE_DEVICES)", " and the jobs file")
	flags.BoolVar(&f.opt.JSON, "json", false, "print one event per line as JSON")
	flags.BoolVarP(&f.opt.Verbose, "verbose", "v", false, "also report memory use as it grows")
	flags.BoolVarP(&f.opt.Quiet, "quiet", "q", false, "report only failed jobs, warnings and the summary")
	flags.BoolVar(&f.noColour, "no-color", false, "no colours (also: NO_COLOR)")
	flags.StringVar(&f.opt.LogLevel, "log-level", "info", "level of <log-dir>/berth.log: debug, info, warn or error")
}

// check parses the flags into options, or says what was expected.
func (f *runFlags) check(cmd *cobra.Command) error {
	if err := f.ruleFlags.check(cmd); err != nil {
		return err
	}
	if err := inRange(cmd, "oom-retries", float64(f.opt.OOMRetries), 0, 1000); err != nil {
		return err
	}
	if cmd.Flags().Changed("jobs") {
		if err := inRange(cmd, "jobs", float64(f.opt.Jobs), 1, 100_000); err != nil {
			return err
		}
	}
	switch f.opt.Retry {
	case "":
		if f.retryFailed {
			f.opt.Retry = batch.RetryFailed
		}
	case batch.RetryFailed, batch.RetryAll:
	default:
		return badFlag(cmd, "retry", text.Mismatch(f.opt.Retry, "failed or all"))
	}
	var err error
	if f.opt.GroupLimits, err = groupLimits(f.groupLimits); err != nil {
		return badFlag(cmd, "group-limit", err)
	}
	for _, other := range []string{"watch", "json", "quiet"} {
		if f.dryRun && cmd.Flags().Changed(other) {
			return problem.Newf(problem.Invalid, "leave one of them out", "expected --dry-run or --%s, found both", other)
		}
	}
	for _, other := range []string{"verbose", "json"} {
		if f.opt.Quiet && cmd.Flags().Changed(other) {
			return problem.Newf(problem.Invalid, "leave one of them out", "expected --quiet or --%s, found both", other)
		}
	}
	if !slices.Contains(site.Levels, f.opt.LogLevel) {
		return badFlag(cmd, "log-level", text.Mismatch(f.opt.LogLevel, text.Or(site.Levels)))
	}
	if f.opt.Format, err = batch.ParseFormat(f.format, f.opt.File); err != nil {
		return badFlag(cmd, "format", err)
	}
	if cmd.Flags().Changed("llm-config") && f.opt.Format != batch.CSV {
		return badFlag(cmd, "llm-config", fmt.Errorf("expected a CSV jobs file, found %s (--format csv reads it as one)", f.opt.File))
	}
	f.opt.GPUs, f.opt.Poll, f.opt.Rules, f.opt.Tolerance = f.cards, f.interval, f.rules, f.tolerance
	f.opt.LogFree = f.logFreeMiB << 20
	f.opt.Snapshot = jobfile.SnapshotOf(f.opt.Snapshot)
	if f.opt.Snapshots, err = snapshotPlace(os.Getenv); err != nil && f.opt.Snapshot != "" {
		return err
	}
	if err := f.place(cmd); err != nil {
		return err
	}
	f.opt.Sim, f.opt.SimVRAMMiB, f.opt.Preempt, f.opt.Parking = f.sim, f.simVRAMMiB, f.preempt, f.parks
	return nil
}

func (f *runFlags) run(cmd *cobra.Command) error {
	if err := f.check(cmd); err != nil {
		return err
	}
	if f.format == "" && !f.opt.AsGpusched && f.opt.Format != batch.CSV {
		if err := notAJobsFile(f.opt.File); err != nil {
			return err
		}
	}
	dir, err := os.Getwd()
	if err != nil {
		return problem.Newf(problem.Unable, "", "working directory: %w", err)
	}
	if allocated, err := f.alloc.wanted(cmd); err != nil {
		return err
	} else if allocated {
		return f.runInAllocations(cmd, dir)
	}
	if err := f.refuseAllocated(); err != nil {
		return err
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	// Neither the jobs nor berth end when the terminal closes.
	// The signals are caught and dropped, not ignored: child processes would
	// inherit an ignored signal.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGPIPE)
	out := cmd.OutOrStdout()
	f.opt.Out, f.opt.Err, f.opt.Signals = out, cmd.ErrOrStderr(), signals
	if f.opt.StateHome = f.alloc.inner; f.alloc.inner != "" {
		f.opt.Signals = inAllocation(signals)
	}
	f.opt.Env, f.opt.Dir = os.Environ(), dir
	f.opt.Terminal = stdoutIsTerminal(out)
	run := batch.Run
	if f.dryRun {
		run = batch.DryRun
	} else {
		done, err := f.attend(cmd, signals)
		if err != nil {
			return err
		}
		defer done()
	}
	f.opt.Colour = f.opt.Terminal && !f.noColour && os.Getenv("NO_COLOR") == ""
	f.opt.Width = func() int { columns, _ := terminalSize(out); return columns }
	f.opt.Height = func() int { _, rows := terminalSize(out); return rows }
	f.opt.Serve = f.serve
	code, err := run(context.Background(), f.opt)
	if err != nil {
		return err
	}
	if code != 0 {
		return status(code)
	}
	return nil
}

// attend lets the run leave its terminal, and be asked at it.
func (f *runFlags) attend(cmd *cobra.Command, signals chan<- os.Signal) (done func(), err error) {
	done = func() {}
	if f.opt.AsGpusched || f.opt.JSON {
		return done, nil
	}
	f.opt.AskAfter = batch.DefaultAskAfter
	if written := os.Getenv("BERTH_ASK_AFTER"); written == "0" {
		f.opt.AskAfter = 0
	} else if written != "" {
		if f.opt.AskAfter, err = text.ParseDuration(written); err != nil {
			return done, problem.Newf(problem.Invalid, "BERTH_ASK_AFTER=10m is the default", "BERTH_ASK_AFTER: %v", err)
		}
	}
	f.opt.Detach = func(ctx context.Context, file string) (batch.Successor, error) {
		b, err := f.startBackground(ctx, cmd, file)
		if err != nil {
			return nil, err // not an interface around nil
		}
		return b, nil
	}
	if f.detached {
		f.opt.Background = inBackground()
	}
	if f.detached || f.opt.Terminal {
		signal.Notify(signals, syscall.SIGHUP)
	}
	if f.opt.Terminal && isTerminal(os.Stdin) && !isStdin(f.opt.File) {
		k := openKeyboard(os.Stdin)
		f.opt.Keys = k.keys
		return k.Close, nil
	}
	return done, nil
}

// isStdin reports whether a jobs file is typed at the terminal itself.
func isStdin(file string) bool {
	jobs, err := os.Stat(file)
	if err != nil {
		return false
	}
	stdin, err := os.Stdin.Stat()
	return err == nil && os.SameFile(jobs, stdin)
}

// serve answers other berth commands about the run.
func (f *runFlags) serve(d batch.Door) (func([]job.Event), func(), error) {
	q := runQueue(d.Place)
	q.Machine, q.Engine = d.Machine, d.Engine
	q.Override = func(c *daemon.Config) { c.Rules, c.Poll, c.Tolerance = f.opt.Rules, f.opt.Poll, f.opt.Tolerance }
	return daemon.ServeRun(q)
}
