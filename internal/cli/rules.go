package cli

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"berth/internal/daemon"
	"berth/internal/gpu"
	"berth/internal/jobfile"
	"berth/internal/problem"
	"berth/internal/sched"
	"berth/internal/text"
)

// ruleFlags are the flags that say how jobs are placed, and on which cards.
type ruleFlags struct {
	gpus      string
	poll      string
	simVRAM   string
	policy    string
	maxBypass string
	preempt   string
	minRun    string
	placement string

	// What they come to, once checked.
	cards      []int
	interval   time.Duration
	rules      sched.Rules
	keepAll    bool
	tolerance  float64
	sim        int
	simVRAMMiB int64
}

func (f *ruleFlags) register(cmd *cobra.Command, allCards string) {
	defaults := sched.DefaultRules()
	f.rules = defaults
	flags := cmd.Flags()
	flags.StringVar(&f.gpus, "gpus", "", "use only these cards, e.g. 0,1,3 or 0-3"+allCards)
	flags.StringVar(&f.poll, "poll", "1", "seconds between looks at the GPUs (and the file)")
	flags.Var((*size)(&f.rules.MarginMiB), "margin", "memory to leave free beside every declaration, MiB or with a unit")
	flags.Var((*size)(&f.rules.IdleThresholdMiB), "idle-threshold", "memory in foreign use below which a GPU is idle, MiB or with a unit")
	flags.Float64Var(&f.rules.SpikeBuffer, "spike-buffer", defaults.SpikeBuffer, "held above the highest use seen, as a fraction")
	flags.Float64Var(&f.tolerance, "tolerance", 0.10, "how far use may be off a declaration before it is said")
	flags.BoolVar(&f.rules.Exclusive, "exclusive", false, "one berth job per GPU, even where declarations fit")
	flags.IntVar(&f.rules.JobsPerGPU, "jobs-per-gpu", 0, "jobs that declare nothing get 1/N of a GPU each (default: a whole idle one)")
	flags.Float64Var(&f.rules.MemThreshold, "mem-threshold", 0, "use no GPU with more than this share of its memory in use (0..1; default off)")
	flags.Float64Var(&f.rules.LoadThreshold, "load-threshold", 0, "use no GPU that others load more than this (0..1; default off)")
	flags.StringVar(&f.placement, "placement", string(defaults.Placement), "pack: fill the fullest GPU that fits; spread: the emptiest")
	flags.StringVar(&f.policy, "policy", string(defaults.Policy), "which job goes first: backfill, fifo, conservative, shortest, las or fair (docs/explanation/order.md)")
	flags.StringVar(&f.maxBypass, "max-bypass", "48h", "how long others may pass a user's oldest waiting job, e.g. 2h; never: there is no bound")
	flags.StringVar(&f.preempt, "preempt", daemon.PreemptRequeue, "what becomes of a preemptible job when a higher priority needs its GPUs: requeue, never, or park (the best this machine can)")
	flags.StringVar(&f.minRun, "min-run", "1m", "how long a preemptible job runs at least before it is set aside, e.g. 10m")
	flags.IntVar(&f.sim, "sim", 0, "use N simulated GPUs instead of real ones")
	flags.StringVar(&f.simVRAM, "sim-vram", "24576", "memory of each simulated GPU")
}

func badFlag(cmd *cobra.Command, flag string, err error) error {
	return problem.Newf(problem.Invalid, "see "+cmd.CommandPath()+" --help", "--%s: %v", flag, err)
}

// inRange refuses a number that means nothing.
func inRange(cmd *cobra.Command, flag string, value, low, top float64) error {
	if value >= low && value <= top {
		return nil
	}
	return problem.Newf(problem.Invalid, "see "+cmd.CommandPath()+" --help", "--%s: expected a number from %v to %v, found %s", flag, low, top, plainNumber(value))
}

// check turns what was typed into values, or says what would be accepted.
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

// checkOrder reads what decides who comes first.
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
	if known := daemon.Preempts(); !slices.Contains(known, f.preempt) {
		return badFlag(cmd, "preempt", text.Mismatch(f.preempt, text.Or(known)))
	}
	f.keepAll = f.preempt == daemon.PreemptNever
	return nil
}

// parsePolicy reads a policy's name. "fair" means backfill with fair share.
func parsePolicy(name string) (policy sched.Policy, fair bool, err error) {
	if name == string(daemon.PolicyFair) {
		return sched.Backfill, true, nil
	}
	if policy, err = sched.ParsePolicy(name); err != nil {
		err = text.Mismatch(name, text.Or(append(sched.Policies(), daemon.PolicyFair)))
	}
	return policy, false, err
}

// parseBypass reads how long a job may be passed; 0: for ever.
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
			return problem.Newf(problem.Invalid, "see "+cmd.CommandPath()+" --help", "--%s 0: leave the flag out to switch it off", flag)
		}
	}
	return nil
}

// checkSim lets BERTH_SIM stand in for --sim.
func (f *ruleFlags) checkSim(cmd *cobra.Command) error {
	n, _ := gpu.SimFromEnv(os.Getenv)
	if cmd.Flags().Changed("sim") {
		return nil
	}
	if n < 0 {
		return problem.Newf(problem.Invalid, "unset it to use real GPUs", "BERTH_SIM=%s: a number of simulated GPUs, 1 to 1024", os.Getenv("BERTH_SIM"))
	}
	f.sim = n
	return nil
}
