package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"berth/internal/api"
)

func newWhy() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "why JOB",
		Short: "Say what a job waits for, or why it ended so",
		Example: `  berth why 17
  berth why @
  berth why 17 --json

Exit status: 0 said; 1 no such job, or no daemon; 2 bad usage; 130 interrupted.`,
		Args:              exactlyOne,
		ValidArgsFunction: completeJobs,
		RunE: verb(func(ctx context.Context, s *session, args []string) error {
			why, err := s.client.Why(ctx, args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(s.out, why)
			}
			return explain(s, why)
		}),
	}
	daemonFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "an object with text, position and state")
	return cmd
}

func explain(s *session, why api.Why) error {
	fmt.Fprintln(s.out, printable(fmt.Sprintf("job %s: %s", why.ID, why.Text)))
	if why.Position > 0 {
		fmt.Fprintf(s.out, "it is number %s of %s in the queue\n", grouped(why.Position), grouped(why.Queued))
	}
	for _, note := range why.Notes {
		fmt.Fprintln(s.out, printable(note))
	}
	return nil
}
