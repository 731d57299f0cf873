package cli

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strconv"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/cli/session"
	"berth/internal/job/jobfile"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// adoptOptions are the flags of `berth adopt`.
type adoptOptions struct {
	gpus string
	vram string
	name string
	json bool

	strays bool
	stray  []string
}

const adoptHint = "berth adopt 4242; ps and berth gpus -v show processes"

func newAdopt() *cobra.Command {
	o := &adoptOptions{}
	cmd := &cobra.Command{
		Use:   "adopt PID | --strays",
		Short: "Track a process that berth did not start",
		Long: `Track a process that was started by hand. It becomes a job on the GPUs that it
and its children use: berth measures its memory, counts that memory to the job,
no longer as external, and places other jobs around it.

On a shared daemon it holds only GPUs and memory that it already uses, and your
limits apply. Administrators may reserve more.

berth never limits or stops the process, and cancelling the job only ends the
tracking. When the process ends, the job ends as lost: only the process's parent
can learn its exit status.

With --strays, take jobs back into the queue that run under a supervisor the
daemon's store does not know, because the store was emptied or restored from an
older backup. They keep their ids and continue as if nothing had happened. berth
list --strays shows them.`,
		Example: `  berth adopt 4242
  berth adopt 4242 --gpus 0,1 --vram 20G -n by-hand
  berth cancel @                 stop tracking it; the process keeps running
  berth adopt --strays           all of yours; for administrators, everybody's
  berth adopt --stray 5f0c2a91d3e84b67

Exit status: 0 adopted; 1 refused, or no daemon; 2 bad usage; 130 interrupted.`,
		Args: func(_ *cobra.Command, args []string) error {
			if o.strays || len(o.stray) > 0 {
				return o.checkStrays(args)
			}
			if len(args) != 1 {
				return problem.Newf(problem.Invalid, adoptHint, "expected one process id, found %d", len(args))
			}
			return nil
		},
		RunE: session.Verb(func(ctx context.Context, s *session.Session, args []string) error {
			if o.strays || len(o.stray) > 0 {
				return o.runStrays(ctx, s)
			}
			s.StartsAnew = true
			return o.run(ctx, s, args[0])
		}),
	}
	session.DaemonFlags(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&o.gpus, "gpus", "g", "", "GPUs to reserve for it besides those it uses now: 0,1 or 0-3; on a shared daemon only for administrators")
	flags.StringVar(&o.vram, "vram", "", "memory to reserve on each GPU (default: what it uses, growing with it); more than it uses only for administrators")
	flags.StringVarP(&o.name, "name", "n", "", "name of the job (default adopted-PID)")
	flags.BoolVar(&o.strays, "strays", false, "take back all jobs whose supervisor the store does not know")
	flags.StringArrayVar(&o.stray, "stray", nil, "take back the job of the supervisor with this `token`; repeatable")
	flags.BoolVar(&o.json, "json", false, "print the job as a JSON object, or an array of results with --strays")
	return cmd
}

func (o *adoptOptions) run(ctx context.Context, s *session.Session, word string) error {
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
	detail, err := api.Call(ctx, s.Client, api.Adopt, r)
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(s.Out, detail)
	}
	_, err = fmt.Fprintln(s.Out, text.Line(fmt.Sprintf("job %s: tracking process %d on GPU %s", detail.ID, pid, text.Numbers(detail.GPUIDs))))
	return err
}

func (o *adoptOptions) checkStrays(args []string) error {
	switch {
	case len(args) > 0 || o.gpus != "" || o.vram != "" || o.name != "":
		return problem.Newf(problem.Invalid, "berth adopt --strays, or berth adopt PID", "--strays takes no process id and none of --gpus, --vram and --name")
	case o.strays && len(o.stray) > 0:
		return problem.Newf(problem.Invalid, "", "expected --strays or --stray, found both")
	}
	return nil
}

func (o *adoptOptions) runStrays(ctx context.Context, s *session.Session) error {
	adopted, err := api.Call(ctx, s.Client, api.AdoptStrays, api.AdoptStraysRequest{Tokens: o.stray})
	if err != nil {
		return err
	}
	var result error
	for _, a := range adopted {
		if a.Problem != "" {
			result = session.ExitFailed
		}
	}
	if o.json {
		return cmp.Or(printJSON(s.Out, adopted), result)
	}
	for _, a := range adopted {
		if a.Problem != "" {
			s.Say("%s", a.Problem)
			continue
		}
		fmt.Fprintln(s.Out, text.Line("job "+a.Job+": taken back"))
	}
	if len(adopted) == 0 {
		fmt.Fprintln(s.Out, "no strays")
	}
	return result
}
