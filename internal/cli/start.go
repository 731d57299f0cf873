package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"berth/internal/cli/render"
	"berth/internal/cli/session"
	"berth/internal/text"
	"berth/internal/text/problem"
)

func newStart() *cobra.Command {
	asJSON := false
	var sim simFlag
	var cmd *cobra.Command
	cmd = &cobra.Command{
		Use:   "start",
		Short: "Start your private daemon, if it is not running",
		Long: `Start your private daemon in the background, as the first submit does. Queued
jobs go on. It is seldom needed: every command that finds jobs in the state
directory starts the daemon itself.

If your systemd runs berth as a user service, it is that service that starts.`,
		Example: `  berth start
  berth start --sim 2            with two simulated GPUs

Exit status: 0 it runs; 1 it could not be started, it has other GPUs than --sim
asks for, or the machine's daemon is meant; 2 bad usage; 130 interrupted.`,
		Args: noJobs("release"),
		RunE: session.Look(func(ctx context.Context, s *session.Session, _ []string) error {
			if err := sim.check(cmd); err != nil {
				return err
			}
			was, err := privateDaemon(ctx, s, "start")
			if err != nil {
				return err
			}
			if !was.Running && s.Target.Explicit {
				return problem.Newf(problem.Refused, "berth serve --socket PATH starts one there", "no daemon answers at %s, and berth start knows only your own daemon", s.Target.Socket)
			}
			if s.SimGPUs = sim.cards; !was.Running {
				if err := session.Autostart(ctx, s); err != nil {
					return err
				}
			}
			if err := simulateGPUs(ctx, s, sim); err != nil {
				return err
			}
			now, err := stateOf(ctx, s)
			if err != nil || asJSON {
				return shown(s, now, err)
			}
			if was.Running {
				_, err = fmt.Fprintf(s.Out, "the daemon is already running (pid %d), since %s\n", *now.PID, now.Since.Local().Format("2006-01-02 15:04:05"))
				return err
			}
			_, err = fmt.Fprintln(s.Out, text.Line(fmt.Sprintf("state in %s; %s", *now.StateDir, render.CountLine(now.Jobs, 1))))
			return err
		}),
	}
	session.SocketFlag(cmd)
	jsonFlag(cmd, &asJSON)
	sim.register(cmd)
	return cmd
}

// shown prints the JSON of a state.
func shown(s *session.Session, d daemonState, err error) error {
	if err != nil {
		return err
	}
	return printJSON(s.Out, d)
}
