package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/cli/session"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// gpuReleaseOptions are the flags of `berth gpu release`.
type gpuReleaseOptions struct {
	length           string
	end, force, json bool
}

// longestRelease is the longest time a daemon releases the driver for.
const longestRelease = 24 * time.Hour

func newGPURelease() *cobra.Command {
	o := &gpuReleaseOptions{}
	cmd := &cobra.Command{
		Use:   "release",
		Short: "Release the driver, so that GPUs can be reset or partitioned",
		Long: `Release the driver for a limited time: a GPU that a process holds open can be
neither reset nor partitioned. During that time berth reads no GPUs and starts
no jobs on them. This is refused while jobs use GPUs; with --force those jobs
keep running without being measured.`,
		Example: `  berth gpu release
  sudo nvidia-smi -i 3 --gpu-reset
  berth gpu release --end

Exit status: 0 done; 1 refused, or no daemon; 2 bad usage; 130 interrupted.`,
		Args: noWords,
	}
	cmd.RunE = session.Verb(func(ctx context.Context, s *session.Session, _ []string) error {
		if o.end && (cmd.Flags().Changed("for") || o.force) {
			return problem.Newf(problem.Invalid, "berth gpu release --end", "--end cannot be combined with --for or --force")
		}
		return o.run(ctx, s)
	})
	flags := cmd.Flags()
	flags.StringVar(&o.length, "for", "10m", "how long, at most 24h")
	flags.BoolVar(&o.end, "end", false, "use the driver again now")
	flags.BoolVar(&o.force, "force", false, "even while jobs use GPUs")
	flags.BoolVar(&o.json, "json", false, "print a JSON object with until and note")
	return cmd
}

func (o *gpuReleaseOptions) run(ctx context.Context, s *session.Session) error {
	length, err := text.ParseDuration(o.length)
	if err != nil || length < time.Second || length > longestRelease {
		return problem.Newf(problem.Invalid, "berth gpu release --for 10m", "--for: expected 1s to 24h, found %q", o.length)
	}
	r := api.ReleaseRequest{End: o.end, Force: o.force}
	if !o.end {
		r.ForS = int64(length / time.Second)
	}
	reply, err := api.Call(ctx, s.Client, api.ReleaseGPUs, r)
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(s.Out, reply)
	}
	written := "the driver is in use again"
	switch {
	case reply.Note != "":
		written = text.Line(reply.Note)
	case reply.Until != nil:
		written = fmt.Sprintf("driver released until %s; no job starts on a GPU before then, or before berth gpu release --end", reply.Until.Local().Format("15:04:05"))
	}
	_, err = fmt.Fprintln(s.Out, written)
	return err
}
