package cli

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"berth/internal/cli/session"
	"berth/internal/machine/gpu"
	"berth/internal/text"
	"berth/internal/text/problem"
)

type simjobFlags struct {
	vram     string
	ramp     float64
	hold     float64
	exitCode int
	oomOnce  string
	util     float64
	card     int
	graphics bool
}

func newSimjob() *cobra.Command {
	f := &simjobFlags{}
	cmd := &cobra.Command{
		Use:   "simjob",
		Short: "Act as a GPU program on simulated GPUs",
		Long: `Take memory on the simulated GPUs that were allocated to this job, hold it, and
exit. If a GPU is full, fail with CUDA's out-of-memory message like a real
program. Started by hand with --gpu and BERTH_SIM_DIR (berth run prints it), it
acts as an external process on that GPU.`,
		Example: `  berth simjob --vram 8000 --ramp 1 --hold 3
  BERTH_SIM_DIR=... berth simjob --gpu 0 --vram 4000 --hold 60

Exit status: --exit-code, or 1 if a GPU is full.`,
		Args: noWords,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.vram, "vram", "0", "memory to take on each GPU, in MiB or with a unit")
	flags.Float64Var(&f.ramp, "ramp", 0, "seconds over which to take it")
	flags.Float64Var(&f.hold, "hold", 0, "seconds to hold it")
	flags.IntVar(&f.exitCode, "exit-code", 0, "exit status")
	flags.StringVar(&f.oomOnce, "oom-once", "", "run out of memory once: if this file does not exist yet")
	flags.Float64Var(&f.util, "util", 90, "utilisation in percent")
	flags.IntVar(&f.card, "gpu", -1, "act as an external process on this GPU")
	flags.BoolVar(&f.graphics, "graphics", false, "act as a graphics process of a desktop")
	return cmd
}

func (f *simjobFlags) run(cmd *cobra.Command) error {
	var mib int64
	if f.vram != "0" {
		var err error
		if mib, err = text.ParseSize(f.vram); err != nil {
			return problem.Newf(problem.Invalid, "see berth simjob --help", "--vram: %v", err)
		}
	}
	if !(f.ramp >= 0 && f.hold >= 0 && f.util >= 0 && f.util <= 100) {
		return problem.Newf(problem.Invalid, "see berth simjob --help", "expected seconds for --ramp and --hold, and 0 to 100 for --util")
	}
	dir := os.Getenv("BERTH_SIM_DIR")
	if dir == "" {
		return problem.Newf(problem.Invalid, "use simjob in a job of berth run --sim N, or by hand with the BERTH_SIM_DIR that it prints", "expected BERTH_SIM_DIR in the environment, found nothing")
	}
	cards := []int{f.card}
	if f.card < 0 {
		var err error
		if cards, err = gpu.SimCards(os.LookupEnv, dir); err != nil {
			return problem.Wrap(problem.Invalid, "see berth simjob --help", err)
		}
	}
	code := gpu.SimJob(context.Background(), gpu.SimJobOptions{
		Dir: dir, Cards: cards, VRAMMiB: mib,
		Ramp: text.OfSeconds(f.ramp), Hold: text.OfSeconds(f.hold),
		ExitCode: f.exitCode, OOMOnce: f.oomOnce, UtilPct: f.util, Graphics: f.graphics,
		Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr(),
	})
	if code != 0 {
		return session.ExitStatus(code)
	}
	return nil
}
