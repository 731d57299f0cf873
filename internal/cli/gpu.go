package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/jobfile"
	"berth/internal/problem"
)

func newGPU() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gpu",
		Short: "Take cards out of service, and back",
		Example: `  berth gpu pause 0
  berth gpu resume all
  berth gpu quarantine 3 --reason "fan is loud"
  berth gpu clear 3
  berth gpu history
  berth gpu release --for 10m

Exit status: 0 done; 1 refused, or no daemon; 2 bad usage; 130 interrupted.`,
	}
	withVerbs(cmd,
		newGPUChange(gpuChange{name: "pause", done: "paused", short: "Start nothing more on these cards",
			long: "Start nothing more on these cards. What runs there goes on.",
			to: func(ctx context.Context, c *api.Client, index int, _ string) (api.GPU, error) {
				return c.PauseGPU(ctx, index, true)
			}}),
		newGPUChange(gpuChange{name: "resume", done: "resumed", short: "Use these cards again", long: "Use these cards again.",
			to: func(ctx context.Context, c *api.Client, index int, _ string) (api.GPU, error) {
				return c.PauseGPU(ctx, index, false)
			}}),
		newGPUChange(gpuChange{name: "quarantine", done: "quarantined", reason: true, short: "Take cards out of service as not well",
			long: `Take cards out of service as not well. What runs there goes on; nothing new
starts until an administrator clears them, whatever the driver says.`,
			to: func(ctx context.Context, c *api.Client, index int, reason string) (api.GPU, error) {
				return c.SetHealth(ctx, index, api.HealthRequest{Health: api.HealthQuarantined, Reason: reason})
			}}),
		newGPUChange(gpuChange{name: "clear", done: "cleared", short: "Say that these cards are well again",
			long: `Say that these cards are well again, whatever was found wrong with them. What
happens anew condemns them anew.`,
			to: func(ctx context.Context, c *api.Client, index int, _ string) (api.GPU, error) {
				return c.SetHealth(ctx, index, api.HealthRequest{Health: api.HealthOK})
			}}),
		newGPUHistory(),
		newGPURelease(),
	)
	return cmd
}

// gpuChange is something that an administrator does to cards one by one.
type gpuChange struct {
	name, done, short, long string
	reason                  bool // it takes --reason
	to                      func(ctx context.Context, c *api.Client, index int, reason string) (api.GPU, error)
}

func newGPUChange(change gpuChange) *cobra.Command {
	asJSON, reason := false, ""
	cmd := &cobra.Command{
		Use:   change.name + " N[,M]|all",
		Short: change.short,
		Long:  change.long,
		Example: fmt.Sprintf(`  berth gpu %s 0
  berth gpu %[1]s 0-3,5
  berth gpu %[1]s all

Exit status: 0 done; 1 refused, or no daemon; 2 bad usage; 130 interrupted.`, change.name),
		RunE: verb(func(ctx context.Context, s *session, args []string) error {
			return changeGPUs(ctx, s, args, change, reason, asJSON)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "an array of the cards as they are now")
	if change.reason {
		cmd.Flags().StringVar(&reason, "reason", "", "why, for whoever looks at berth gpus")
	}
	return cmd
}

func changeGPUs(ctx context.Context, s *session, args []string, change gpuChange, reason string, asJSON bool) error {
	indices, err := whichGPUs(ctx, s.client, args, change.name)
	if err != nil {
		return err
	}
	changed := []api.GPU{}
	for _, index := range indices {
		card, err := change.to(ctx, s.client, index, reason)
		if err != nil {
			return err
		}
		changed = append(changed, card)
		if !asJSON {
			fmt.Fprintf(s.out, "gpu%d: %s\n", card.Index, change.done)
		}
	}
	if asJSON {
		return printJSON(s.out, changed)
	}
	return nil
}

func whichGPUs(ctx context.Context, client *api.Client, args []string, name string) ([]int, error) {
	if len(args) != 1 {
		return nil, problem.Newf(problem.Invalid, fmt.Sprintf("berth gpu %s 0, berth gpu %[1]s 0-3,5, or berth gpu %[1]s all", name), "%s which cards?", name)
	}
	if args[0] != "all" {
		indices, err := jobfile.ParseIDs(args[0])
		if err != nil {
			return nil, problem.Wrap(problem.Invalid, "berth gpus shows the cards", err)
		}
		return indices, nil
	}
	gpus, err := client.GPUs(ctx)
	indices := make([]int, len(gpus))
	for i, g := range gpus {
		indices[i] = g.Index
	}
	return indices, err
}
