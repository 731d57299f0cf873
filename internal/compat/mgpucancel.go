package compat

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"berth/internal/api"
)

var mgpuCancel = program{name: "mgpu_cancel", usage: mgpuCancelUsage, run: runMgpuCancel}

const mgpuCancelUsage = `usage: mgpu_cancel ID

End a job of yours, queued or running. Every process it has started is asked
to end, and ten seconds later made to. ID is what mgpu_srun printed and
mgpu_queue shows, in any case, or berth's own number.

  -h, --help  this text

Exit status: 0 cancelled; 1 not: no such job, another's, or no server; 2 bad
usage.

Example:
  mgpu_cancel K3ZX81QA
`

func runMgpuCancel(c *Call) int {
	flags := pflag.NewFlagSet(c.Name, pflag.ContinueOnError)
	if status, ok := c.mgpuParse(flags, c.Args, mgpuCancelUsage); !ok {
		return status
	}
	if flags.NArg() != 1 {
		c.complain(fmt.Sprintf("it takes one id, %d given", flags.NArg()), "mgpu_queue lists them")
		return exitUsage
	}
	ctx, stop := mgpuContext()
	defer stop()
	if err := c.mgpuEnd(ctx, flags.Arg(0)); err != nil {
		if errors.Is(err, context.Canceled) {
			return exitInterrupted
		}
		fmt.Fprintln(c.Out, "Cancel failed.")
		c.complain(mgpuProblem(err))
		return exitFailed
	}
	fmt.Fprintln(c.Out, "Job cancelled.")
	return 0
}

// mgpuEnd asks the server to end one job; it is the server that knows whose
// the job is.
func (c *Call) mgpuEnd(ctx context.Context, word string) error {
	id, err := mgpuID(word)
	if err != nil {
		return err
	}
	client, err := c.mgpuClient(ctx, false)
	if err != nil {
		return err
	}
	defer client.Close()
	reply, err := client.Act(ctx, api.ActRequest{Action: api.ActCancel, Select: api.Select{Words: []string{id}}})
	if err != nil {
		return err
	}
	for _, acted := range reply.Jobs {
		if !acted.Done {
			return api.Problemf(api.Refused, "", "job %s: %s", word, oneLine(acted.What))
		}
	}
	return nil
}
