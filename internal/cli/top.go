package cli

import (
	"cmp"
	"context"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/cli/render"
	"berth/internal/cli/session"
	"berth/internal/cli/top"
	"berth/internal/text/problem"
)

func newTop() *cobra.Command {
	once := false
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch GPUs and jobs, and act on them",
		Long: `Watch GPUs and jobs in the terminal: who uses each GPU, the queue with its
reasons and expected starts, and the selected job's story, memory and log. Keys
cancel, hold, release, requeue and park jobs and pause GPUs; ? lists them.`,
		Example: `  berth top
  berth top --once               print one frame, also without a terminal
  berth top --log-dir berth_logs the jobs of a berth run

Exit status: 0 left; 1 refused, or no daemon; 2 bad usage; 130 interrupted.`,
		Args:              noWords,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: session.Verb(func(ctx context.Context, s *session.Session, _ []string) error {
			return runTop(ctx, s, once)
		}),
	}
	session.QueueFlags(cmd)
	cmd.Flags().BoolVar(&once, "once", false, "print one frame and exit")
	cmd.Flags().Bool("no-color", false, "no colours (also: NO_COLOR)")
	return cmd
}

// The size of a frame where there is no terminal.
const (
	frameColumns = 80
	frameRows    = 24
)

func runTop(ctx context.Context, s *session.Session, once bool) error {
	frame := top.Screen{Width: s.Width, Height: s.Height, Colour: s.Colour, ASCII: !render.SpeaksUTF8(os.Getenv)}
	frame.Width = cmp.Or(frame.Width, frameColumns)
	frame.Height = cmp.Or(frame.Height, frameRows)
	if once {
		drawn, err := top.Once(ctx, s.Client, frame, time.Now())
		if err != nil {
			return err
		}
		_, err = io.WriteString(s.Out, drawn)
		return err
	}
	if !s.Terminal || !render.IsTerminal(os.Stdin) {
		return problem.Newf(problem.Invalid, "berth top --once prints one frame", "berth top needs a terminal")
	}
	if _, err := api.Call(ctx, s.Client, api.ListJobs, api.Query{Queue: true, Limit: 1}); err != nil {
		return err // before the screen is taken
	}
	s.Client.OnSilence, s.Client.OnRetry = nil, nil // the frame says so
	s.Client.OnMissing = nil                        // a daemon that is stopped later stays stopped
	return top.Run(ctx, s.Client, os.Stdin, s.Out, frame)
}
