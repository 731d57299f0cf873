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
	"berth/internal/problem"
	"berth/internal/site"
	"berth/internal/text"
)

// runFlags are the flags of `berth run` as they were typed.
type runFlags struct {
	ruleFlags
	noColour bool
	format   string
	opt      batch.Options
}

func newRun() *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use:   "run JOBS_FILE",
		Short: "Run a file of commands, each on GPUs with room for it",
		Long: `Run every line of a file as a job, in the foreground; exit when all are done.

One shell command per line; blank lines and # lines are skipped. A leading
[key=value ...] block says what the job needs:

  python preprocess.py                       alone on an idle GPU
  [vram=18G] python train.py                 may share a GPU that has room
  [vram=30G gpus=2] torchrun train_big.py    two GPUs
  [gpus=0.5 name=eval after=train] ...       half a GPU, after train

A CSV file has priority,script_path,conda_env,arguments,allowed_gpus on each
line: Python scripts, the lowest number first, told their cards by --cuda.

The file may be edited while it runs: new lines run, deleted ones do not.
Running the same command again skips what finished. If berth is killed, its
jobs go on, and the next berth run adopts them. Ctrl-C stops the jobs.`,
		Example: `  berth run jobs.txt
  berth run jobs.txt --gpus 0,1 --watch
  berth run jobs.csv --llm-config sizes.json
  berth run jobs.txt --policy shortest --max-bypass 2h
  berth run examples/jobs.txt --sim 2

Exit status: 0 every job finished well; otherwise the largest exit code of a
job that did not (at least 1); 2 bad usage or an unreadable jobs file;
130 interrupted.`,
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
	return problem.Newf(problem.Invalid, "berth run jobs.txt; see "+cmd.CommandPath()+" --help", "run takes one jobs file, %d given", len(args))
}

func (f *runFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&f.opt.Watch, "watch", false, "stay after the queue drains and wait for new lines")
	flags.BoolVar(&f.opt.Fresh, "fresh", false, "start over: run everything again")
	flags.BoolVar(&f.opt.RetryFailed, "retry-failed", false, "run again what failed in an earlier run")
	flags.StringVar(&f.format, "format", "", "what the file is: lines, or csv (default by its name: *.csv is csv)")
	flags.StringVar(&f.opt.LLMConfig, "llm-config", "", "how much of a GPU each --llm of a CSV file takes (default llm_config.json, if it is there)")
	flags.StringVar(&f.opt.LogDir, "log-dir", "berth_logs", "logs, journal, status board and state")
	flags.IntVar(&f.opt.OOMRetries, "oom-retries", 0, "retries after CUDA out of memory, with a larger declaration (a line's retries= overrides)")
	f.ruleFlags.register(cmd, " (default all, or those in an inherited CUDA_VISIBLE_DEVICES)")
	flags.BoolVar(&f.opt.JSON, "json", false, "one event per line on stdout, as JSON")
	flags.BoolVarP(&f.opt.Verbose, "verbose", "v", false, "also show memory use as it grows")
	flags.BoolVar(&f.noColour, "no-color", false, "no colours (also: NO_COLOR)")
	flags.StringVar(&f.opt.LogLevel, "log-level", "info", "what goes into <log-dir>/berth.log: debug, info, warn or error")
}

// check turns what was typed into options, or says what would be accepted.
func (f *runFlags) check(cmd *cobra.Command) error {
	if err := f.ruleFlags.check(cmd); err != nil {
		return err
	}
	if err := inRange(cmd, "oom-retries", float64(f.opt.OOMRetries), 0, 1000); err != nil {
		return err
	}
	if !slices.Contains(site.Levels, f.opt.LogLevel) {
		return badFlag(cmd, "log-level", text.Mismatch(f.opt.LogLevel, text.Or(site.Levels)))
	}
	var err error
	if f.opt.Format, err = batch.ParseFormat(f.format, f.opt.File); err != nil {
		return badFlag(cmd, "format", err)
	}
	if cmd.Flags().Changed("llm-config") && f.opt.Format != batch.CSV {
		return badFlag(cmd, "llm-config", fmt.Errorf("%s is no CSV jobs file: --format csv says that it is", f.opt.File))
	}
	f.opt.GPUs, f.opt.Poll, f.opt.Rules, f.opt.Tolerance = f.cards, f.interval, f.rules, f.tolerance
	f.opt.Sim, f.opt.SimVRAMMiB, f.opt.KeepAll = f.sim, f.simVRAMMiB, f.keepAll
	return nil
}

func (f *runFlags) run(cmd *cobra.Command) error {
	if err := f.check(cmd); err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return problem.Newf(problem.Unable, "", "working directory: %w", err)
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	// A terminal that goes away does not end the jobs, nor berth.
	// Caught and dropped rather than ignored: an ignored signal would be
	// inherited by everything berth starts.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGPIPE)
	out := cmd.OutOrStdout()
	f.opt.Out, f.opt.Err, f.opt.Signals = out, cmd.ErrOrStderr(), signals
	f.opt.Env, f.opt.Dir = os.Environ(), dir
	f.opt.Terminal = stdoutIsTerminal(out)
	f.opt.Colour = f.opt.Terminal && !f.noColour && os.Getenv("NO_COLOR") == ""
	f.opt.Width = func() int { columns, _ := terminalSize(out); return columns }
	f.opt.Height = func() int { _, rows := terminalSize(out); return rows }
	code, err := batch.Run(context.Background(), f.opt)
	if err != nil {
		return err
	}
	if code != 0 {
		return status(code)
	}
	return nil
}
