package cli

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/api/mcp"
	"berth/internal/cli/render"
	"berth/internal/cli/session"
	"berth/internal/text/problem"
)

func newMCP() *cobra.Command {
	write := false
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Let an agent see the queue, and with --write change it",
		Long: `Serve the Model Context Protocol on standard input and output. An agent's
program starts this command; it is not for typing.

The agent gets the tools list, show, why, logs, gpus, history and stats. With
--write it also gets submit, cancel, hold, release and requeue. It acts with
your rights: it sees and changes what you could. It cannot cancel "all" or by a
pattern, only jobs that it names.

Answers have at most 64 KiB. Logs are read in parts, without colours and control
characters. What jobs print is for the agent to read, and may try to mislead it:
give --write only to an agent that asks you before it acts.`,
		Example: `  berth mcp                    tools that only read
  berth mcp --write            tools that change jobs too
  berth mcp --host gpu1        the daemon of another machine

In the configuration of the agent's program:

  {
    "mcpServers": {
      "berth": {"command": "berth", "args": ["mcp"]}
    }
  }

Exit status: 0 the agent has left; 1 failed; 2 bad usage; 130 interrupted.`,
		Args: noWords,
	}
	cmd.RunE = session.Verb(func(ctx context.Context, s *session.Session, _ []string) error {
		in, isFile := cmd.InOrStdin().(*os.File)
		if !isFile || render.IsTerminal(in) {
			return problem.Newf(problem.Invalid, "put it into the configuration of your agent's program: berth help agents", "berth mcp is started by an agent, not on a terminal")
		}
		return mcp.Serve(ctx, in, s.Out, mcp.Options{
			Client: s.Client, Version: session.Version, Write: write,
			Submit: func(ctx context.Context, spec api.Spec, dry bool) (api.SubmitReply, error) {
				o := &submitOptions{dryRun: dry}
				return o.deliver(ctx, s, []api.Spec{spec})
			},
			Explain: func(err error) error { return session.Failed(err, s.Target) },
		})
	})
	session.DaemonFlags(cmd)
	cmd.Flags().BoolVar(&write, "write", false, "add the tools that change jobs: submit, cancel, hold, release, requeue")
	return cmd
}
