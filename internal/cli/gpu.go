package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/jobfile"
)

func newGPU() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gpu",
		Short: "Take cards out of service, and back",
		Example: `  berth gpu pause 0
  berth gpu resume all

Exit status: 0 done; 1 refused, or no daemon; 2 bad usage; 130 interrupted.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return unknownCommand(cmd, args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	daemonFlags(cmd)
	cmd.AddCommand(
		newGPUSwitch("pause", "Start nothing more on these cards", "Start nothing more on these cards. What runs there goes on.", true),
		newGPUSwitch("resume", "Use these cards again", "Use these cards again.", false),
	)
	return cmd
}

func newGPUSwitch(name, short, long string, paused bool) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   name + " N[,M]|all",
		Short: short,
		Long:  long,
		Example: fmt.Sprintf(`  berth gpu %s 0
  berth gpu %[1]s 0-3,5
  berth gpu %[1]s all

Exit status: 0 done; 1 refused, or no daemon; 2 bad usage; 130 interrupted.`, name),
		RunE: verb(func(ctx context.Context, s *session, args []string) error {
			return switchGPUs(ctx, s, args, name, paused, asJSON)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "an array of the cards as they are now")
	return cmd
}

func switchGPUs(ctx context.Context, s *session, args []string, name string, paused, asJSON bool) error {
	indices, err := whichGPUs(ctx, s.client, args, name)
	if err != nil {
		return err
	}
	changed := []api.GPU{}
	for _, index := range indices {
		card, err := s.client.PauseGPU(ctx, index, paused)
		if err != nil {
			return err
		}
		changed = append(changed, card)
		if !asJSON {
			fmt.Fprintf(s.out, "gpu%d: %sd\n", card.Index, name)
		}
	}
	if asJSON {
		return printJSON(s.out, changed)
	}
	return nil
}

func whichGPUs(ctx context.Context, client *api.Client, args []string, name string) ([]int, error) {
	if len(args) != 1 {
		return nil, &usageError{what: fmt.Sprintf("%s which cards?", name), hint: fmt.Sprintf("berth gpu %s 0, berth gpu %[1]s 0-3,5, or berth gpu %[1]s all", name)}
	}
	if args[0] != "all" {
		indices, err := jobfile.ParseIDs(args[0])
		if err != nil {
			return nil, &usageError{what: err.Error(), hint: "berth gpus shows the cards"}
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
