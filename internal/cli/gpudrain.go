package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/cli/session"
	"berth/internal/text"
	"berth/internal/text/problem"
)

func newGPUDrain() *cobra.Command {
	asJSON, park := false, false
	cmd := &cobra.Command{
		Use:   "drain N[,M]|all",
		Short: "Empty these GPUs",
		Long: `Empty these GPUs: no more jobs start there, and those that run there go on to
their end. With --park they are parked instead, as far as they can be, and come
back by themselves after berth gpu resume. berth gpus shows what is left.`,
		Example: `  berth gpu drain 0
  berth gpu drain 0-3,5 --park
  berth gpu resume 0-3,5

Exit status: 0 done; 1 refused, a job could not be parked, or no daemon;
2 bad usage; 130 interrupted.`,
		RunE: session.Verb(func(ctx context.Context, s *session.Session, args []string) error {
			return drainGPUs(ctx, s, args, park, asJSON)
		}),
	}
	cmd.Flags().BoolVar(&park, "park", false, "park the jobs that run there")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the GPUs and their jobs as a JSON array")
	return cmd
}

func drainGPUs(ctx context.Context, s *session.Session, args []string, park, asJSON bool) error {
	indices, err := whichGPUs(ctx, s.Client, args, "drain")
	if err != nil {
		return err
	}
	drained := []api.Drained{}
	left := map[string]bool{} // jobs that were to be parked and are not
	for _, index := range indices {
		one, err := api.Call(ctx, s.Client, api.DrainGPU, api.DrainRequest{GPUIndex: api.GPUIndex{Index: index}, Park: park})
		if err != nil {
			return err
		}
		drained = append(drained, one)
		if !asJSON {
			fmt.Fprintf(s.Out, "gpu%d: paused\n", one.GPU.Index)
		}
		for _, j := range one.Jobs {
			if park && !j.Done {
				left[j.ID] = true
			}
			if !asJSON {
				fmt.Fprintf(s.Out, "gpu%d: job %s %s\n", one.GPU.Index, j.ID, j.What)
			}
		}
	}
	if asJSON {
		if err := printJSON(s.Out, drained); err != nil {
			return err
		}
	}
	if len(left) > 0 {
		return problem.Newf(problem.Refused, "they keep running; berth cancel ends a job", "%s could not be parked", text.Count(len(left), "job"))
	}
	return nil
}
