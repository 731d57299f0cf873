package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// simFlag is --sim of the verbs that may start a private daemon.
type simFlag struct{ cards int }

func (f *simFlag) register(cmd *cobra.Command) {
	cmd.Flags().IntVar(&f.cards, "sim", 0, "start the private daemon with this many simulated GPUs (also: BERTH_SIM)")
}

func (f *simFlag) check(cmd *cobra.Command) error {
	if !cmd.Flags().Changed("sim") {
		return nil
	}
	return inRange(cmd, "sim", float64(f.cards), 1, 1024)
}

// simulate makes sure that the daemon has the simulated GPUs of --sim, and starts
// it with them if it can. A daemon with other GPUs refuses the verb. If only
// BERTH_SIM asks for them, the difference is mentioned.
func (s *session) simulate(ctx context.Context, flag simFlag) error {
	asked := flag.cards
	if asked == 0 && s.target.host == nil {
		asked, _ = gpu.SimFromEnv(os.Getenv)
	}
	if asked <= 0 {
		return nil
	}
	s.sim = flag.cards
	told, err := s.client.Status(ctx) // starts a private one
	if err != nil {
		return err
	}
	gpus, err := s.client.GPUs(ctx)
	if err != nil || told.SimDir != "" && len(gpus) == asked {
		return err
	}
	if s.target.private && told.Source == gpu.NoSource && told.Counts[string(job.Queued)]+told.Counts[string(job.Running)] == 0 {
		s.say("the daemon has no GPU and no job; starting it again with %s", text.Count(asked, "simulated GPU"))
		s.sim = asked
		if err := s.stop(ctx); err != nil {
			return err
		}
		return autostart(ctx, s)
	}
	hint := "leave --sim out"
	if s.target.private {
		hint = "--sim counts when the daemon starts: berth stop, then try again; or leave --sim out"
	}
	if flag.cards > 0 {
		return problem.Newf(problem.Refused, hint, "expected a daemon with %s, found one with %s", text.Count(asked, "simulated GPU"), cardCount(told, gpus))
	}
	note := fmt.Sprintf("note: BERTH_SIM=%d counts when a daemon starts; this one has %s", asked, cardCount(told, gpus))
	if s.target.private {
		note += "; berth restart starts it again"
	}
	s.say("%s", note)
	return nil
}

// cardCount is what GPUs a daemon has: "2 simulated GPUs".
func cardCount(told api.Status, gpus []api.GPU) string {
	switch {
	case told.SimDir == "" && len(gpus) == 0:
		return "no GPU"
	case told.SimDir != "":
		return text.Count(len(gpus), "simulated GPU")
	}
	return fmt.Sprintf("%s of this machine", text.Count(len(gpus), "GPU"))
}
