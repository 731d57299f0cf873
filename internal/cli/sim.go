package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/cli/session"
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

// simulateGPUs makes sure that the daemon has the simulated GPUs of --sim, and starts
// it with them if it can. A daemon with other GPUs refuses the verb. If only
// BERTH_SIM asks for them, the difference is mentioned.
func simulateGPUs(ctx context.Context, s *session.Session, flag simFlag) error {
	asked := flag.cards
	if asked == 0 && s.Target.Host == nil {
		asked, _ = gpu.SimFromEnv(os.Getenv)
	}
	if asked <= 0 {
		return nil
	}
	s.SimGPUs = flag.cards
	told, err := api.Call(ctx, s.Client, api.GetStatus, api.None{}) // starts a private one
	if err != nil {
		return err
	}
	gpus, err := api.Call(ctx, s.Client, api.ListGPUs, api.None{})
	if err != nil || told.SimDir != "" && len(gpus) == asked {
		return err
	}
	if s.Target.Private && told.Source == gpu.NoSource && told.Counts[string(job.Queued)]+told.Counts[string(job.Running)] == 0 {
		s.Say("the daemon has no GPU and no job; starting it again with %s", text.Count(asked, "simulated GPU"))
		s.SimGPUs = asked
		if err := stopDaemon(ctx, s); err != nil {
			return err
		}
		return session.Autostart(ctx, s)
	}
	hint := "leave --sim out"
	if s.Target.Private {
		hint = "--sim counts when the daemon starts: berth stop, then try again; or leave --sim out"
	}
	if flag.cards > 0 {
		return problem.Newf(problem.Refused, hint, "expected a daemon with %s, found one with %s", text.Count(asked, "simulated GPU"), cardCount(told, gpus))
	}
	note := fmt.Sprintf("note: BERTH_SIM=%d counts when a daemon starts; this one has %s", asked, cardCount(told, gpus))
	if s.Target.Private {
		note += "; berth restart starts it again"
	}
	s.Say("%s", note)
	return nil
}

// cardCount counts the GPUs of a daemon: "2 simulated GPUs".
func cardCount(told api.Status, gpus []api.GPU) string {
	switch {
	case told.SimDir == "" && len(gpus) == 0:
		return "no GPU"
	case told.SimDir != "":
		return text.Count(len(gpus), "simulated GPU")
	}
	return fmt.Sprintf("%s of this machine", text.Count(len(gpus), "GPU"))
}
