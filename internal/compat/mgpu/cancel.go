package mgpu

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"berth/internal/api"
	"berth/internal/compat/frontend"
	"berth/internal/text/problem"
)

// Cancel cancels a job.
var Cancel = frontend.Program{Name: "mgpu_cancel", Usage: cancelUsage, Run: runCancel}

const cancelUsage = `usage: mgpu_cancel ID

Cancel one of your jobs, queued or running. All its processes get SIGTERM, and
SIGKILL ten seconds later. ID is the one that mgpu_srun printed and mgpu_queue
shows, in any case, or berth's own number.

  -h, --help  print this

Exit status: 0 cancelled; 1 failed: no id, no such job, another user's job, or
no server; 2 an unknown flag.

Example:
  mgpu_cancel K3ZX81QA
`

func runCancel(plain *frontend.Call) int {
	c := call{plain}
	flags := pflag.NewFlagSet(c.Name, pflag.ContinueOnError)
	if status, ok := c.Parse(flags, c.Args, cancelUsage); !ok {
		return status
	}
	if flags.NArg() != 1 {
		c.Complain(fmt.Sprintf("expected one id, found %d", flags.NArg()), "mgpu_queue lists them")
		return frontend.Failed
	}
	ctx, stop := untilInterrupted()
	defer stop()
	if err := c.end(ctx, flags.Arg(0)); err != nil {
		if errors.Is(err, context.Canceled) {
			return frontend.Interrupted
		}
		fmt.Fprintln(c.Out, "Cancel failed.")
		c.Complain(problemOf(err))
		return frontend.Failed
	}
	fmt.Fprintln(c.Out, "Job cancelled.")
	return 0
}

// end asks the server to cancel one job. The server checks whose it is.
func (c call) end(ctx context.Context, word string) error {
	id, err := idOf(word)
	if err != nil {
		return err
	}
	client, err := c.dial(ctx, false)
	if err != nil {
		return err
	}
	defer client.Close()
	reply, err := api.Call(ctx, client, api.Act, api.ActRequest{Action: api.ActCancel, Select: api.Select{Words: []string{id}}})
	if err != nil {
		return err
	}
	for _, acted := range reply.Jobs {
		if !acted.Done {
			return problem.Newf(problem.Refused, "", "job %s: %s", word, frontend.OneLine(acted.What))
		}
	}
	return nil
}
