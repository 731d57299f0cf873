package cli

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"berth/internal/gpu"
	"berth/internal/problem"
	"berth/internal/text"
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
		Short: "Stand in for a GPU program on simulated GPUs",
		Long: `Take memory on the simulated GPUs this job was given, hold it, and exit.
When a card is full it fails with CUDA's out-of-memory text, as a real program
would. Started by hand with --gpu and BERTH_SIM_DIR (berth run prints it), it
is a foreign process on that card.`,
		Example: `  berth simjob --vram 8000 --ramp 1 --hold 3
  BERTH_SIM_DIR=... berth simjob --gpu 0 --vram 4000 --hold 60

Exit status: --exit-code, or 1 when the card is full.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.vram, "vram", "0", "memory to take on each card, MiB or with a unit")
	flags.Float64Var(&f.ramp, "ramp", 0, "seconds until all of it is taken")
	flags.Float64Var(&f.hold, "hold", 0, "seconds to hold it")
	flags.IntVar(&f.exitCode, "exit-code", 0, "how to exit")
	flags.StringVar(&f.oomOnce, "oom-once", "", "run out of memory the first time: when this file is not there yet")
	flags.Float64Var(&f.util, "util", 90, "utilisation in percent")
	flags.IntVar(&f.card, "gpu", -1, "use this card, whatever was granted: a foreign process")
	flags.BoolVar(&f.graphics, "graphics", false, "be a desktop's graphics-only process")
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
		return problem.Newf(problem.Invalid, "see berth simjob --help", "--ramp and --hold are seconds, --util is 0 to 100")
	}
	dir := os.Getenv("BERTH_SIM_DIR")
	if dir == "" {
		return problem.Newf(problem.Invalid, "simjob runs inside a `berth run --sim N` job, or by hand with the BERTH_SIM_DIR that prints", "no simulated box: BERTH_SIM_DIR is not set")
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
		return status(code)
	}
	return nil
}
