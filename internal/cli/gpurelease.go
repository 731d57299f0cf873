package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/problem"
	"berth/internal/text"
)

// gpuReleaseOptions are the flags of `berth gpu release`.
type gpuReleaseOptions struct {
	length           string
	end, force, json bool
}

// longestRelease is how long a daemon lets go of the driver at most.
const longestRelease = 24 * time.Hour

func newGPURelease() *cobra.Command {
	o := &gpuReleaseOptions{}
	cmd := &cobra.Command{
		Use:   "release",
		Short: "Let go of the driver, so that cards can be reset or partitioned",
		Long: `Let go of the driver for a while: a card that is held open can be neither reset
nor partitioned. Meanwhile the cards are not read and nothing starts on them.
Refused while jobs are on cards; with --force their readings stop and they go
on.`,
		Example: `  berth gpu release
  sudo nvidia-smi -i 3 --gpu-reset
  berth gpu release --end

Exit status: 0 done; 1 refused, or no daemon; 2 bad usage; 130 interrupted.`,
		Args: noWords,
	}
	cmd.RunE = verb(func(ctx context.Context, s *session, _ []string) error {
		if o.end && (cmd.Flags().Changed("for") || o.force) {
			return problem.Newf(problem.Invalid, "berth gpu release --end", "--end takes neither --for nor --force")
		}
		return o.run(ctx, s)
	})
	flags := cmd.Flags()
	flags.StringVar(&o.length, "for", "10m", "how long, at most a day")
	flags.BoolVar(&o.end, "end", false, "take hold of the driver again")
	flags.BoolVar(&o.force, "force", false, "also while jobs are on the cards")
	flags.BoolVar(&o.json, "json", false, "an object with until and note")
	return cmd
}

func (o *gpuReleaseOptions) run(ctx context.Context, s *session) error {
	length, err := text.ParseDuration(o.length)
	if err != nil || length < time.Second || length > longestRelease {
		return problem.Newf(problem.Invalid, "berth gpu release --for 10m", "--for: expected 1s to 24h, found %q", o.length)
	}
	r := api.ReleaseRequest{End: o.end, Force: o.force}
	if !o.end {
		r.ForS = int64(length / time.Second)
	}
	reply, err := s.client.ReleaseGPUs(ctx, r)
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(s.out, reply)
	}
	written := "the cards are read again"
	switch {
	case reply.Note != "":
		written = text.Line(reply.Note)
	case reply.Until != nil:
		written = fmt.Sprintf("let go of until %s; nothing starts on the cards until then, or berth gpu release --end", reply.Until.Local().Format("15:04:05"))
	}
	_, err = fmt.Fprintln(s.out, written)
	return err
}
