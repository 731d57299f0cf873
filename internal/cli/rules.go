package cli

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"berth/internal/job/jobfile"
	"berth/internal/machine/gpu"
	"berth/internal/queue"
	"berth/internal/queue/config"
	"berth/internal/sched"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// ruleFlags are the flags about placement and order, shared by run and serve.
type ruleFlags struct {
	gpus      string
	poll      string
	simVRAM   string
	policy    string
	maxBypass string
	preempt   string
	parks     string
	minRun    string
	placement string

	// Their values, set by check.
	cards      []int
	interval   time.Duration
	rules      sched.Rules
	tolerance  float64
	sim        int
	simVRAMMiB int64
	logFreeMiB int64
}

func (f *ruleFlags) register(cmd *cobra.Command, allCards, alsoPolled string) {
	defaults := sched.DefaultRules()
	f.rules = defaults
	flags := cmd.Flags()
	flags.StringVar(&f.gpus, "gpus", "", "use only these GPUs, e.g. 0,1,3 or 0-3"+allCards)
	flags.StringVar(&f.poll, "poll", "1", "how often to read the GPUs"+alsoPolled)
	flags.Var((*size)(&f.rules.MarginMiB), "margin", "memory to leave free on each GPU besides the declared VRAM, in MiB or with a unit")
	flags.Var((*size)(&f.rules.IdleThresholdMiB), "idle-threshold", "a GPU is idle if external processes use less than this, in MiB or with a unit")
	flags.Float64Var(&f.rules.SpikeBuffer, "spike-buffer", defaults.SpikeBuffer, "memory to hold above the measured peak, as a fraction of it")
	flags.Float64Var(&f.tolerance, "tolerance", 0.10, "how far measured VRAM may differ from the declared before berth warns, as a fraction")
	flags.BoolVar(&f.rules.Exclusive, "exclusive", false, "one job per GPU, even if more would fit")
	flags.IntVar(&f.rules.JobsPerGPU, "jobs-per-gpu", 0, "jobs that declare nothing get 1/N of a GPU each (default: a whole idle GPU)")
	flags.Float64Var(&f.rules.MemThreshold, "mem-threshold", 0, "skip GPUs with more than this share of their memory in use (0 to 1; default off)")
	flags.Float64Var(&f.rules.LoadThreshold, "load-threshold", 0, "skip GPUs whose utilisation by external processes is above this (0 to 1; default off)")
	flags.StringVar(&f.placement, "placement", string(defaults.Placement), "pack: prefer the fullest GPU that fits; spread: the emptiest")
	flags.StringVar(&f.policy, "policy", string(defaults.Policy), "which job goes first: backfill, fifo, conservative, shortest, las or fair; see berth help order")
	flags.StringVar(&f.maxBypass, "max-bypass", text.Hours(sched.DefaultMaxBypass), "how long other jobs may overtake a user's oldest waiting job, e.g. 2h; 0 or never: no limit")
	flags.StringVar(&f.preempt, "preempt", queue.PreemptRequeue, "what happens to a job with preemptible=requeue when another needs its GPUs: requeue, never, or park (requeue if it cannot be parked)")
	flags.StringVar(&f.parks, "parking", queue.ParkPreemptible, "which jobs are parked when others need their GPUs: preemptible, all (except with --no-park), or off")
	flags.StringVar(&f.minRun, "min-run", "1m", "minimum time a job runs before it can be preempted, e.g. 10m")
	f.logFreeMiB = config.Default(false).LogFree >> 20
	flags.Var((*size)(&f.logFreeMiB), "log-free", "while less is free on the disk of a job's log, or a twentieth of a small disk, drop the middle of the log if it grows; in MiB or with a unit, 0: never")
	flags.IntVar(&f.sim, "sim", 0, "use this many simulated GPUs instead of real ones")
	flags.StringVar(&f.simVRAM, "sim-vram", "24576", "memory of each simulated GPU")
}

func badFlag(cmd *cobra.Command, flag string, err error) error {
	return problem.Newf(problem.Invalid, "see "+cmd.CommandPath()+" --help", "--%s: %v", flag, err)
}

// inRange refuses a number outside its range.
func inRange(cmd *cobra.Command, flag string, value, low, top float64) error {
	if value >= low && value <= top {
		return nil
	}
	return problem.Newf(problem.Invalid, "see "+cmd.CommandPath()+" --help", "--%s: expected a number from %v to %v, found %s", flag, low, top, plainNumber(value))
}

// atLeast refuses a number that was given and is too low.
func atLeast(cmd *cobra.Command, flag string, value, low int) error {
	if value >= low || !cmd.Flags().Changed(flag) {
		return nil
	}
	return badFlag(cmd, flag, fmt.Errorf("expected %d or more, found %d", low, value))
}

// check parses the flags into values, or says what was expected.
func (f *ruleFlags) check(cmd *cobra.Command) error {
	var err error
	if cmd.Flags().Changed("gpus") {
		if f.cards, err = jobfile.ParseIDs(f.gpus); err != nil {
			return badFlag(cmd, "gpus", err)
		}
	}
	if f.interval, err = text.ParseDuration(f.poll); err != nil {
		return badFlag(cmd, "poll", err)
	}
	f.interval = max(f.interval, 10*time.Millisecond)
	if f.simVRAMMiB, err = text.ParseSize(f.simVRAM); err != nil {
		return badFlag(cmd, "sim-vram", err)
	}
	if err := f.checkOrder(cmd); err != nil {
		return err
	}
	if f.rules.Placement, err = sched.ParsePlacement(f.placement); err != nil {
		return badFlag(cmd, "placement", err)
	}
	if err := f.checkNumbers(cmd); err != nil {
		return err
	}
	return f.checkSim(cmd)
}

// checkOrder parses the flags about the order of jobs and preemption.
func (f *ruleFlags) checkOrder(cmd *cobra.Command) error {
	var err error
	if f.rules.Policy, f.rules.Fair, err = parsePolicy(f.policy); err != nil {
		return badFlag(cmd, "policy", err)
	}
	if f.rules.MaxBypass, err = parseBypass(f.maxBypass); err != nil {
		return badFlag(cmd, "max-bypass", err)
	}
	if f.rules.MinRun, err = text.ParseDuration(f.minRun); err != nil {
		return badFlag(cmd, "min-run", err)
	}
	if known := queue.Preempts(); !slices.Contains(known, f.preempt) {
		return badFlag(cmd, "preempt", text.Mismatch(f.preempt, text.Or(known)))
	}
	if known := queue.Parkings(); !slices.Contains(known, f.parks) {
		return badFlag(cmd, "parking", text.Mismatch(f.parks, text.Or(known)))
	}
	return nil
}

// parsePolicy parses a policy; "fair" is backfill with fair share.
func parsePolicy(name string) (policy sched.Policy, fair bool, err error) {
	if name == string(config.PolicyFair) {
		return sched.Backfill, true, nil
	}
	if policy, err = sched.ParsePolicy(name); err != nil {
		err = text.Mismatch(name, text.Or(append(sched.Policies(), config.PolicyFair)))
	}
	return policy, false, err
}

// parseBypass parses the overtake limit; 0 means none.
func parseBypass(written string) (time.Duration, error) {
	if written == "never" || written == "0" {
		return 0, nil
	}
	bound, err := text.ParseDuration(written)
	if err == nil && bound < time.Second {
		err = fmt.Errorf("expected at least 1s, or never, found %q", written)
	}
	return bound, err
}

func (f *ruleFlags) checkNumbers(cmd *cobra.Command) error {
	for _, n := range []struct {
		flag     string
		value    float64
		low, top float64
	}{
		{"spike-buffer", f.rules.SpikeBuffer, 0, 10},
		{"tolerance", f.tolerance, 0, 10},
		{"jobs-per-gpu", float64(f.rules.JobsPerGPU), 0, 1000},
		{"mem-threshold", f.rules.MemThreshold, 0, 1},
		{"load-threshold", f.rules.LoadThreshold, 0, 1},
		{"sim", float64(f.sim), 0, 1024},
	} {
		if err := inRange(cmd, n.flag, n.value, n.low, n.top); err != nil {
			return err
		}
	}
	for flag, value := range map[string]float64{"jobs-per-gpu": float64(f.rules.JobsPerGPU), "sim": float64(f.sim), "mem-threshold": f.rules.MemThreshold, "load-threshold": f.rules.LoadThreshold} {
		if cmd.Flags().Changed(flag) && value == 0 {
			return problem.Newf(problem.Invalid, fmt.Sprintf("leave --%s out to switch it off", flag), "--%s: expected a number above 0, found 0", flag)
		}
	}
	return nil
}

// checkSim takes BERTH_SIM where --sim was not given.
func (f *ruleFlags) checkSim(cmd *cobra.Command) error {
	n, _ := gpu.SimFromEnv(os.Getenv)
	if cmd.Flags().Changed("sim") {
		return nil
	}
	if n < 0 {
		return problem.Newf(problem.Invalid, "unset it to use real GPUs", "BERTH_SIM: expected a number of simulated GPUs from 1 to 1024, found %q", os.Getenv("BERTH_SIM"))
	}
	f.sim = n
	return nil
}
