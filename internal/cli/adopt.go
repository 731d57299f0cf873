package cli

import (
	"context"
	"fmt"
	"math"
	"strconv"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/jobfile"
	"berth/internal/problem"
	"berth/internal/text"
)

// adoptOptions are the flags of `berth adopt`.
type adoptOptions struct {
	gpus string
	vram string
	name string
	json bool
}

const adoptHint = "berth adopt 4242; ps and berth gpus -v show processes"

func newAdopt() *cobra.Command {
	o := &adoptOptions{}
	cmd := &cobra.Command{
		Use:   "adopt PID",
		Short: "Track a process that berth did not start",
		Long: `Track a process that was started by hand. It becomes a job on the GPUs that it
and its children use: berth measures its memory, counts that memory to the job,
no longer as external, and places other jobs around it.

berth never limits or stops the process, and cancelling the job only ends the
tracking. When the process ends, the job ends as lost: only the process's parent
can learn its exit status.`,
		Example: `  berth adopt 4242
  berth adopt 4242 --gpus 0,1 --vram 20G -n by-hand
  berth cancel @                 stop tracking it; the process keeps running

Exit status: 0 adopted; 1 refused, or no daemon; 2 bad usage; 130 interrupted.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return problem.Newf(problem.Invalid, adoptHint, "expected one process id, found %d", len(args))
			}
			return nil
		},
		RunE: verb(func(ctx context.Context, s *session, args []string) error {
			return o.run(ctx, s, args[0])
		}),
	}
	daemonFlags(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&o.gpus, "gpus", "g", "", "GPUs to hold for it besides those it uses now: 0,1 or 0-3")
	flags.StringVar(&o.vram, "vram", "", "memory to hold for it on each GPU (default: what it uses, growing with it)")
	flags.StringVarP(&o.name, "name", "n", "", "name of the job (default adopted-PID)")
	flags.BoolVar(&o.json, "json", false, "print the job as a JSON object")
	return cmd
}

func (o *adoptOptions) run(ctx context.Context, s *session, word string) error {
	pid, err := strconv.ParseInt(word, 10, 64)
	if err != nil || pid < 1 || pid > math.MaxInt32 {
		return problem.Newf(problem.Invalid, adoptHint, "expected a process id, found %q", word)
	}
	r := api.AdoptRequest{PID: int(pid), VRAM: o.vram, Name: o.name}
	if o.gpus != "" {
		if r.GPUs, err = jobfile.ParseIDs(o.gpus); err != nil {
			return problem.Newf(problem.Invalid, "berth gpus lists the GPUs", "--gpus: %v", err)
		}
	}
	detail, err := s.client.Adopt(ctx, r)
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(s.out, detail)
	}
	_, err = fmt.Fprintln(s.out, text.Line(fmt.Sprintf("job %s: tracking process %d on GPU %s", detail.ID, pid, text.Numbers(detail.GPUIDs))))
	return err
}
