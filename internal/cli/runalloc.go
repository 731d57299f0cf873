package cli

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"berth/internal/api"
	"berth/internal/cli/session"
	"berth/internal/job"
	"berth/internal/queue/batch"
	"berth/internal/slurm/allocation"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// allocFlags are the flags of `berth run` for allocations of Slurm.
type allocFlags struct {
	count int
	slurm string
	inner string // of the berth run in an allocation: where its state belongs
}

func (f *allocFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntVar(&f.count, "allocations", 0, "with --to slurm: ask Slurm for this many allocations, and run the jobs inside them")
	flags.StringVar(&f.slurm, "alloc", "", "with --allocations: sbatch `options` of each, such as \"--gres=gpu:2 -t 8h\"")
	flags.StringVar(&f.inner, "in-allocation", "", "run inside an allocation, with the state in this directory")
	_ = flags.MarkHidden("in-allocation") // for berth itself
}

// wanted reports whether the jobs run in allocations, or says what was expected.
func (f *allocFlags) wanted(cmd *cobra.Command) (bool, error) {
	flags := cmd.Flags()
	asked := flags.Changed("allocations")
	switch {
	case flags.Changed("alloc") && !asked:
		return false, problem.Newf(problem.Invalid, "add --allocations 2", "--alloc: expected --allocations with it, found none")
	case !asked:
		return false, nil
	case cmd.Flag("to").Value.String() != string(job.ToSlurm):
		return false, problem.Newf(problem.Invalid, "add --to slurm", "--allocations: expected --to slurm with it, found none")
	}
	return true, inRange(cmd, "allocations", float64(f.count), 1, 1000)
}

// passedOn are the flags that the berth run of each allocation gets.
var passedOn = []string{"poll", "margin", "idle-threshold", "spike-buffer", "tolerance", "exclusive", "jobs-per-gpu", "mem-threshold", "load-threshold",
	"placement", "policy", "max-bypass", "preempt", "parking", "min-run", "log-free", "sim", "sim-vram", "oom-retries", "log-level"}

// fronts are the flags that the front itself understands.
var fronts = []string{"to", "allocations", "alloc", "dry-run", "fresh", "retry", "retry-failed", "log-dir", "json", "quiet", "no-color", "format"}

// runInAllocations is `berth run --to slurm --allocations`.
func (f *runFlags) runInAllocations(cmd *cobra.Command) error {
	o, err := f.allocationOptions(cmd)
	if err != nil {
		return err
	}
	run := func() (int, error) { return allocation.Run(context.Background(), o) }
	if f.dryRun {
		run = func() (int, error) { return 0, allocation.DryRun(context.Background(), o) }
	} else if _, err := batch.Find(f.opt.LogDir); err == nil {
		return problem.Newf(problem.Refused, "choose another --log-dir", "%s has the jobs of a berth run without --allocations", f.opt.LogDir)
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // it goes on without its terminal
	o.Signals = signals
	code, err := run()
	if err != nil {
		return err
	}
	if code != 0 {
		return session.ExitStatus(code)
	}
	return nil
}

// allocationOptions turns the flags into options. Flags that mean nothing across
// several allocations are refused.
func (f *runFlags) allocationOptions(cmd *cobra.Command) (o allocation.Options, err error) {
	words, err := allocation.ParseSlurm(f.alloc.slurm)
	if err != nil {
		return o, err
	}
	if f.opt.Format == batch.CSV {
		return o, problem.Newf(problem.Invalid, "write one shell command per line", "--allocations: expected a jobs file with commands, found CSV")
	}
	if f.opt.Retry == api.RetryAll {
		return o, problem.Newf(problem.Invalid, "--fresh runs every job again", "--allocations: expected --retry failed, found --retry all")
	}
	var inner []string
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		switch {
		case slices.Contains(passedOn, flag.Name):
			inner = append(inner, "--"+flag.Name+"="+flag.Value.String())
		case !slices.Contains(fronts, flag.Name):
			err = problem.Newf(problem.Invalid, "leave one of them out", "--allocations: expected no --%s with it, found both", flag.Name)
		}
	})
	if err != nil {
		return o, err
	}
	program, err := os.Executable()
	if err == nil {
		program, err = filepath.EvalSymlinks(program)
	}
	if err != nil {
		return o, problem.Newf(problem.Unable, "", "find berth itself: %w", err)
	}
	o = allocation.Options{
		Options: f.opt, Count: f.alloc.count, Alloc: slices.Concat(f.opt.Slurm.Slurm.Options, words), Asked: f.alloc.slurm, Inner: inner,
		Program: program, Installed: f.opt.Slurm.Program,
		Idle: allocationTime("BERTH_ALLOCATION_IDLE", allocation.DefaultIdle), Silent: allocationTime("BERTH_ALLOCATION_SILENT", allocation.DefaultSilent),
	}
	o.To = "" // of its lines: they run in an allocation
	return o, nil
}

// allocationTime is a time that tests shorten.
func allocationTime(name string, usual time.Duration) time.Duration {
	if d, err := text.ParseDuration(os.Getenv(name)); err == nil {
		return d
	}
	return usual
}

// lookAtParent is how often the berth run of an allocation checks that the script
// that started it lives.
const lookAtParent = time.Second

// inAllocation passes the first signal on and drops the others: Slurm signals all
// processes of an allocation, and the script that started berth passes its own on.
// The end of that script counts as a signal: nothing else would stop the jobs.
func inAllocation(signals <-chan os.Signal) <-chan os.Signal {
	first := make(chan os.Signal, 1)
	parent, ticker := os.Getppid(), time.NewTicker(lookAtParent)
	go func() {
		defer ticker.Stop()
		for {
			select {
			case s := <-signals:
				first <- s
				return
			case <-ticker.C:
				if os.Getppid() != parent {
					first <- syscall.SIGTERM
					return
				}
			}
		}
	}()
	return first
}

// refuseAllocated refuses a plain berth run where the jobs run in allocations.
func (f *runFlags) refuseAllocated() error {
	if f.alloc.inner != "" || !allocation.Present(f.opt.LogDir) {
		return nil
	}
	return problem.Newf(problem.Refused, "add --to slurm --allocations "+strconv.Itoa(max(f.alloc.count, 1))+", or choose another --log-dir",
		"the jobs of %s run in allocations of Slurm", f.opt.LogDir)
}
