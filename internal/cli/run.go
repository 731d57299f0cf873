package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"berth/internal/batch"
	"berth/internal/gpu"
	"berth/internal/jobfile"
	"berth/internal/sched"
	"berth/internal/site"
)

// runFlags are the flags of `berth run` as they were typed.
type runFlags struct {
	gpus         string
	poll         string
	simVRAM      string
	policy       string
	placement    string
	noColour     bool
	memThreshold float64
	loadThresh   float64
	opt          batch.Options
}

func newRun() *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use:   "run JOBS_FILE",
		Short: "Run a file of commands, each on GPUs with room for it",
		Long: `Run every line of a file as a job, in the foreground, and exit when all are done.

One shell command per line; blank lines and # lines are skipped. A leading
[key=value ...] block says what the job needs:

  python preprocess.py                       alone on an idle GPU
  [vram=18G] python train.py                 may share a GPU that has room
  [vram=30G gpus=2] torchrun train_big.py    two GPUs
  [gpus=0.5 name=eval after=train] ...       half a GPU, after the job named train

The file may be edited while it runs: new lines run, deleted ones do not.
Running the same command again skips what finished. If berth is killed, its
jobs go on, and the next berth run adopts them. Ctrl-C stops the jobs.`,
		Example: `  berth run jobs.txt
  berth run jobs.txt --gpus 0,1 --watch
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
	return &usageError{
		what: fmt.Sprintf("run takes one jobs file, %d given", len(args)),
		hint: "berth run jobs.txt; see " + cmd.CommandPath() + " --help",
	}
}

func (f *runFlags) register(cmd *cobra.Command) {
	rules := sched.DefaultRules()
	f.opt.Rules = rules
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.gpus, "gpus", "", "use only these cards, e.g. 0,1,3 or 0-3 (default all, or those in an inherited CUDA_VISIBLE_DEVICES)")
	flags.BoolVar(&f.opt.Watch, "watch", false, "stay after the queue drains and wait for new lines")
	flags.BoolVar(&f.opt.Fresh, "fresh", false, "start over: run everything again")
	flags.BoolVar(&f.opt.RetryFailed, "retry-failed", false, "run again what failed in an earlier run")
	flags.StringVar(&f.opt.LogDir, "log-dir", "berth_logs", "logs, journal, status board and state")
	flags.StringVar(&f.poll, "poll", "1", "seconds between looks at the file and the GPUs")
	flags.Var((*size)(&f.opt.Rules.MarginMiB), "margin", "memory to leave free beside every declaration, MiB or with a unit")
	flags.Var((*size)(&f.opt.Rules.IdleThresholdMiB), "idle-threshold", "memory in foreign use below which a GPU is idle, MiB or with a unit")
	flags.Float64Var(&f.opt.Rules.SpikeBuffer, "spike-buffer", rules.SpikeBuffer, "held above the highest use seen, as a fraction")
	flags.Float64Var(&f.opt.Tolerance, "tolerance", 0.10, "how far use may be off a declaration before it is said")
	flags.IntVar(&f.opt.OOMRetries, "oom-retries", 0, "retries after CUDA out of memory, with a larger declaration (a line's retries= overrides)")
	flags.BoolVar(&f.opt.Rules.Exclusive, "exclusive", false, "one berth job per GPU, even where declarations fit")
	flags.IntVar(&f.opt.Rules.JobsPerGPU, "jobs-per-gpu", 0, "jobs that declare nothing get 1/N of a GPU each (default: a whole idle one)")
	flags.Float64Var(&f.memThreshold, "mem-threshold", 0, "use no GPU with more than this share of its memory in use (0..1; default off)")
	flags.Float64Var(&f.loadThresh, "load-threshold", 0, "use no GPU that others load more than this (0..1; default off)")
	flags.StringVar(&f.placement, "placement", string(rules.Placement), "pack: fill the fullest GPU that fits; spread: the emptiest")
	flags.StringVar(&f.policy, "policy", string(rules.Policy), "backfill: smaller jobs may pass one that does not fit; fifo: strictly in order")
	flags.IntVar(&f.opt.Sim, "sim", 0, "use N simulated GPUs instead of real ones")
	flags.StringVar(&f.simVRAM, "sim-vram", "24576", "memory of each simulated GPU")
	flags.BoolVar(&f.opt.JSON, "json", false, "one event per line on stdout, as JSON")
	flags.BoolVarP(&f.opt.Verbose, "verbose", "v", false, "also show memory use as it grows")
	flags.BoolVar(&f.noColour, "no-color", false, "no colours (also: NO_COLOR)")
	flags.StringVar(&f.opt.LogLevel, "log-level", "info", "what goes into <log-dir>/berth.log: debug, info, warn or error")
}

// check turns what was typed into options, or says what would be accepted.
func (f *runFlags) check(cmd *cobra.Command) error {
	var err error
	bad := func(flag string, err error) error {
		return &usageError{what: fmt.Sprintf("--%s: %v", flag, err), hint: "see berth run --help"}
	}
	if cmd.Flags().Changed("gpus") {
		if f.opt.GPUs, err = jobfile.ParseIDs(f.gpus); err != nil {
			return bad("gpus", err)
		}
	}
	if f.opt.Poll, err = jobfile.ParseDuration(f.poll); err != nil {
		return bad("poll", err)
	}
	f.opt.Poll = max(f.opt.Poll, 10*time.Millisecond)
	if f.opt.SimVRAMMiB, err = jobfile.ParseSize(f.simVRAM); err != nil {
		return bad("sim-vram", err)
	}
	if f.opt.Rules.Policy, err = sched.ParsePolicy(f.policy); err != nil {
		return bad("policy", err)
	}
	if f.opt.Rules.Placement, err = sched.ParsePlacement(f.placement); err != nil {
		return bad("placement", err)
	}
	if !slices.Contains(site.Levels, f.opt.LogLevel) {
		return bad("log-level", fmt.Errorf("%q is not one of %v", f.opt.LogLevel, site.Levels))
	}
	if err := f.checkNumbers(cmd); err != nil {
		return err
	}
	return f.checkSim(cmd)
}

func (f *runFlags) checkNumbers(cmd *cobra.Command) error {
	f.opt.Rules.MemThreshold, f.opt.Rules.LoadThreshold = f.memThreshold, f.loadThresh
	for _, n := range []struct {
		flag     string
		value    float64
		low, top float64
	}{
		{"spike-buffer", f.opt.Rules.SpikeBuffer, 0, 10},
		{"tolerance", f.opt.Tolerance, 0, 10},
		{"oom-retries", float64(f.opt.OOMRetries), 0, 1000},
		{"jobs-per-gpu", float64(f.opt.Rules.JobsPerGPU), 0, 1000},
		{"mem-threshold", f.memThreshold, 0, 1},
		{"load-threshold", f.loadThresh, 0, 1},
		{"sim", float64(f.opt.Sim), 0, 1024},
	} {
		if !(n.value >= n.low && n.value <= n.top) {
			return &usageError{what: fmt.Sprintf("--%s %s: allowed are %v to %v", n.flag, plainNumber(n.value), n.low, n.top), hint: "see berth run --help"}
		}
	}
	for flag, value := range map[string]float64{"jobs-per-gpu": float64(f.opt.Rules.JobsPerGPU), "sim": float64(f.opt.Sim), "mem-threshold": f.memThreshold, "load-threshold": f.loadThresh} {
		if cmd.Flags().Changed(flag) && value == 0 {
			return &usageError{what: fmt.Sprintf("--%s 0: leave the flag out to switch it off", flag), hint: "see berth run --help"}
		}
	}
	return nil
}

// checkSim lets BERTH_SIM stand in for --sim.
func (f *runFlags) checkSim(cmd *cobra.Command) error {
	n, _ := gpu.SimFromEnv(os.Getenv)
	if cmd.Flags().Changed("sim") {
		return nil
	}
	if n < 0 {
		return &usageError{what: fmt.Sprintf("BERTH_SIM=%s: a number of simulated GPUs, 1 to 1024", os.Getenv("BERTH_SIM")), hint: "unset it to use real GPUs"}
	}
	f.opt.Sim = n
	return nil
}

func (f *runFlags) run(cmd *cobra.Command) error {
	if err := f.check(cmd); err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return &batch.Problem{Code: exitFailed, What: fmt.Sprintf("working directory: %v", err)}
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
