package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/cli/session"
	"berth/internal/job/jobfile"
	"berth/internal/text/problem"
)

func newGPU() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gpu",
		Short: "Take GPUs out of service and put them back",
		Example: `  berth gpu pause 0
  berth gpu resume all
  berth gpu drain 0 --park
  berth gpu quarantine 3 --reason "fan is loud"
  berth gpu clear 3
  berth gpu history
  berth gpu release --for 10m

Exit status: 0 done; 1 refused, or no daemon; 2 bad usage; 130 interrupted.`,
	}
	withVerbs(cmd,
		newGPUChange(gpuChange{name: "pause", done: "paused", short: "Start no more jobs on these GPUs",
			long: "Start no more jobs on these GPUs. Jobs that run there keep running.",
			to: func(ctx context.Context, c *api.Client, index int, _ string) (api.GPU, error) {
				return api.Call(ctx, c, api.PauseGPU, api.GPUIndex{Index: index})
			}}),
		newGPUChange(gpuChange{name: "resume", done: "resumed", short: "Start jobs on these GPUs again", long: "Start jobs on these GPUs again.",
			to: func(ctx context.Context, c *api.Client, index int, _ string) (api.GPU, error) {
				return api.Call(ctx, c, api.ResumeGPU, api.GPUIndex{Index: index})
			}}),
		newGPUChange(gpuChange{name: "quarantine", done: "quarantined", reason: true, short: "Take faulty GPUs out of service",
			long: `Take faulty GPUs out of service. Jobs that run there keep running, and no new
one starts until an administrator clears them, whatever the driver reports.`,
			to: func(ctx context.Context, c *api.Client, index int, reason string) (api.GPU, error) {
				return api.Call(ctx, c, api.SetHealth, api.HealthRequest{GPUIndex: api.GPUIndex{Index: index}, Health: api.HealthQuarantined, Reason: reason})
			}}),
		newGPUChange(gpuChange{name: "clear", done: "cleared", short: "Put quarantined GPUs back into service",
			long: `Put quarantined or suspect GPUs back into service. A new fault takes them out
again.`,
			to: func(ctx context.Context, c *api.Client, index int, _ string) (api.GPU, error) {
				return api.Call(ctx, c, api.SetHealth, api.HealthRequest{GPUIndex: api.GPUIndex{Index: index}, Health: api.HealthOK})
			}}),
		newGPUDrain(),
		newGPUHistory(),
		newGPURelease(),
	)
	return cmd
}

// gpuChange is an administrator's action on one GPU at a time.
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
		RunE: session.Verb(func(ctx context.Context, s *session.Session, args []string) error {
			return changeGPUs(ctx, s, args, change, reason, asJSON)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the changed GPUs as a JSON array")
	if change.reason {
		cmd.Flags().StringVar(&reason, "reason", "", "why; berth gpus shows it")
	}
	return cmd
}

func changeGPUs(ctx context.Context, s *session.Session, args []string, change gpuChange, reason string, asJSON bool) error {
	indices, err := whichGPUs(ctx, s.Client, args, change.name)
	if err != nil {
		return err
	}
	changed := []api.GPU{}
	for _, index := range indices {
		card, err := change.to(ctx, s.Client, index, reason)
		if err != nil {
			return err
		}
		changed = append(changed, card)
		if !asJSON {
			fmt.Fprintf(s.Out, "gpu%d: %s\n", card.Index, change.done)
		}
	}
	if asJSON {
		return printJSON(s.Out, changed)
	}
	return nil
}

func whichGPUs(ctx context.Context, client *api.Client, args []string, name string) ([]int, error) {
	if len(args) != 1 {
		return nil, problem.Newf(problem.Invalid, fmt.Sprintf("berth gpu %s 0, berth gpu %[1]s 0-3,5, or berth gpu %[1]s all", name), "expected GPUs to %s, found none", name)
	}
	if args[0] != "all" {
		indices, err := jobfile.ParseIDs(args[0])
		if err != nil {
			return nil, problem.Wrap(problem.Invalid, "berth gpus lists the GPUs", err)
		}
		return indices, nil
	}
	gpus, err := api.Call(ctx, client, api.ListGPUs, api.None{})
	indices := make([]int, len(gpus))
	for i, g := range gpus {
		indices[i] = g.Index
	}
	return indices, err
}
