package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/cli/render"
	"berth/internal/cli/session"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/machine/site"
	"berth/internal/queue/batch"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// runFlags are the flags of `berth run` as they were typed.
type runFlags struct {
	ruleFlags
	noColour    bool
	own         bool
	asksOwn     bool           // --own
	why         string         // what asked for an own queue
	target      session.Target // the daemon, otherwise
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
		Long: `Put each line of a file into a queue as a job, show what becomes of them, and
exit when all have ended.

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
Running the same command again skips the jobs that finished. berth help jobsfile
has the whole format.

The jobs go into the daemon's queue if a daemon is running. Otherwise they get a
queue of their own, which has its files in --log-dir and ends after its last
job. The first line says which. --own asks for a queue of their own, and so do
the flags that only such a queue has, such as --sim, --gpus, -j and --log-dir.

On a terminal, d leaves: the jobs go on without this berth run. They also go on
if the terminal closes or this berth run is killed. The same command comes back
to them, and berth cancel --batch JOBS_FILE cancels them.

Ctrl-C stops the jobs of their own queue, and the next berth run starts them
again. On a terminal, berth asks first if one has run for 10 minutes. For jobs
in the daemon's queue, Ctrl-C asks whether to cancel them; without a terminal it
leaves them there.`,
		Example: `  berth run jobs.txt
  berth run jobs.txt --gpus 0,1 --watch
  berth run jobs.txt --dry-run
  berth run jobs.csv --llm-config sizes.json
  berth run jobs.txt --policy shortest --max-bypass 2h
  berth run jobs.txt --to slurm --slurm "--account=lab"
  berth run examples/jobs.txt --sim 2
  berth run jobs.txt --to slurm --allocations 4 --alloc "--gres=gpu:2 -t 8h"

Exit status: 0 every job succeeded or was cancelled; otherwise the largest exit
code of a failed job (at least 1); 2 bad usage or an unreadable jobs file;
130 interrupted, whether the jobs were stopped or left in the daemon's queue. 0
also if you left with d, and after --dry-run, unless a job could never run here
(1).`,
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
	if len(args) > 1 && !session.Exists(args[0]) {
		hint = "to run a command: berth submit -- " + job.QuoteArgv(args)
	}
	return problem.Newf(problem.Invalid, hint, "expected one jobs file, found %d", len(args))
}

func (f *runFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&f.asksOwn, "own", false, "run the jobs in a queue of their own, even if a daemon is running")
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
	flags.StringVar(&f.opt.LogDir, "log-dir", batch.DefaultLogDir, "directory of an own queue: logs, journal, status board and state")
	flags.IntVar(&f.opt.OOMRetries, "oom-retries", 0, "retries after CUDA out of memory, each declaring more VRAM (retries= of a line overrides it)")
	flags.StringVar(&f.opt.Snapshot, "snapshot", "", "run the code as it is now: a copy of the git tree with its uncommitted changes, or of this `dir`")
	flags.Lookup("snapshot").NoOptDefVal = job.SnapshotAuto
	flags.StringVar(&f.to, "to", "", "the `place` where jobs run that do not say so: local or slurm (default: engine in the config, or local)")
	flags.StringVar(&f.opt.SlurmOptions, "slurm", "", "further `options` for sbatch of the jobs that run on Slurm, such as \"--account=lab\"")
	f.alloc.register(cmd)
	flags.BoolVar(&f.opt.AsGpusched, "as-gpusched", false, "speak as gpusched does, and name logs as it does")
	_ = flags.MarkHidden("as-gpusched") // for the front end of that name
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
			f.opt.Retry = api.RetryFailed
		}
	case api.RetryFailed, api.RetryAll:
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
	if _, err = snapshotPlace(os.Getenv); err != nil && f.opt.Snapshot != "" {
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
	out := cmd.OutOrStdout()
	f.opt.Out, f.opt.Env, f.opt.Dir, f.opt.Terminal = out, os.Environ(), dir, render.StdoutIsTerminal(out)
	if allocated, err := f.alloc.wanted(cmd); err != nil {
		return err
	} else if allocated {
		return f.runInAllocations(cmd)
	}
	if err := f.refuseAllocated(); err != nil {
		return err
	}
	if err := f.chooseQueue(cmd); err != nil {
		return err
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	// Neither the jobs nor berth end when the terminal closes.
	// The signals are caught and dropped, not ignored: child processes would
	// inherit an ignored signal.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGPIPE)
	f.opt.Signals, f.opt.Open = signals, f.open
	if f.opt.StateHome = f.alloc.inner; f.alloc.inner != "" {
		f.opt.Inner, f.opt.Signals = true, inAllocation(signals)
	}
	run := batch.Run
	if f.dryRun {
		run = batch.DryRun
	} else {
		done, err := f.attend(signals)
		if err != nil {
			return err
		}
		defer done()
	}
	f.opt.Colour = f.opt.Terminal && !f.noColour && os.Getenv("NO_COLOR") == ""
	f.opt.Width = func() int { columns, _ := render.TerminalSize(out); return columns }
	f.opt.Height = func() int { _, rows := render.TerminalSize(out); return rows }
	code, err := run(context.Background(), f.opt)
	if err != nil {
		return err
	}
	if code != 0 {
		return session.ExitStatus(code)
	}
	return nil
}

// attend lets the run be asked at its terminal, and leave it.
func (f *runFlags) attend(signals chan<- os.Signal) (done func(), err error) {
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
	if f.opt.Terminal {
		signal.Notify(signals, syscall.SIGHUP)
	}
	if f.opt.Terminal && render.IsTerminal(os.Stdin) && !isStdin(f.opt.File) {
		k := &keyboard{in: os.Stdin, keys: make(chan byte, 16), stops: make(chan os.Signal, 1), done: make(chan struct{})}
		signal.Notify(k.stops, syscall.SIGTSTP)
		k.over.Go(k.serve)
		f.opt.Keyboard = k.keys
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
