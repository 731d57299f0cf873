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
		Short: "Account for a process that berth did not start",
		Long: `Account for a process that was started by hand. It becomes a job on the cards
that it uses, with its children: its memory counts as that job's and not as a
stranger's, its use is measured, and other jobs are placed beside it.

The process is left alone: it gets no limits, is never stopped, and cancelling
the job ends the accounting only. When it ends, the job is lost: how a process
ended is told only to the one that started it.`,
		Example: `  berth adopt 4242
  berth adopt 4242 --gpus 0,1 --vram 20G -n by-hand
  berth cancel @                 stop accounting for it; it goes on

Exit status: 0 adopted; 1 refused, or no daemon; 2 bad usage; 130 interrupted.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return problem.Newf(problem.Invalid, adoptHint, "adopt takes the number of one process, %d given", len(args))
			}
			return nil
		},
		RunE: verb(func(ctx context.Context, s *session, args []string) error {
			return o.run(ctx, s, args[0])
		}),
	}
	daemonFlags(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&o.gpus, "gpus", "g", "", "cards that are its own though it does not use them yet: 0,1 or 0-3")
	flags.StringVar(&o.vram, "vram", "", "what to hold for it on each card (what it uses now, and more as it grows)")
	flags.StringVarP(&o.name, "name", "n", "", "for people (adopted-PID)")
	flags.BoolVar(&o.json, "json", false, "the job as an object")
	return cmd
}

func (o *adoptOptions) run(ctx context.Context, s *session, word string) error {
	pid, err := strconv.ParseInt(word, 10, 64)
	if err != nil || pid < 1 || pid > math.MaxInt32 {
		return problem.Newf(problem.Invalid, adoptHint, "%q is no number of a process", word)
	}
	r := api.AdoptRequest{PID: int(pid), VRAM: o.vram, Name: o.name}
	if o.gpus != "" {
		if r.GPUs, err = jobfile.ParseIDs(o.gpus); err != nil {
			return problem.Newf(problem.Invalid, "berth gpus lists the cards", "--gpus: %v", err)
		}
	}
	detail, err := s.client.Adopt(ctx, r)
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(s.out, detail)
	}
	_, err = fmt.Fprintln(s.out, text.Line(fmt.Sprintf("job %s: process %d is accounted for on GPU %s; it is left alone", detail.ID, pid, text.Numbers(detail.GPUIDs))))
	return err
}
