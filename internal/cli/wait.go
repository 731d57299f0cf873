package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/problem"
	"berth/internal/text"
)

// waitOptions are the flags of `berth wait`.
type waitOptions struct {
	selectors
	any     bool
	quiet   bool
	json    bool
	timeout string
}

func newWait() *cobra.Command {
	o := &waitOptions{}
	cmd := &cobra.Command{
		Use:   "wait JOB...",
		Short: "Wait for jobs to end, and return their status",
		Long: `Wait until the jobs are over. A daemon that is restarted meanwhile does not end
the wait. Which jobs are meant is settled at the beginning: @ stays the same
job, and what is submitted later is not waited for.

all and --user mean jobs that are not over. Ids and --name mean those that are
over as well, for as long as they are remembered, so that a part that failed
early counts: narrow with --state queued,running to leave them out.`,
		Example: `  berth wait 17
  berth wait @ && echo it went well
  berth wait --name sweep --timeout 2h
  berth wait 17 18 --any

Exit status: the job's own: its exit code, 128 + signal, 124 for its time
limit, else 1; of several the largest. Also 1 when --timeout passed or no
daemon answers; 2 bad usage; 130 interrupted.`,
		ValidArgsFunction: completeJobs,
		RunE: verb(func(ctx context.Context, s *session, args []string) error {
			return o.run(ctx, s, args)
		}),
	}
	daemonFlags(cmd)
	o.register(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&o.any, "any", false, "the first end is enough")
	flags.StringVar(&o.timeout, "timeout", "", "give up after this long: 90, 15m, 2h (the jobs go on)")
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "say nothing, only exit")
	flags.BoolVar(&o.json, "json", false, "the jobs as an array, when they are over")
	return cmd
}

func (o *waitOptions) run(ctx context.Context, s *session, args []string) error {
	if o.empty(args) {
		return needJobs("wait")
	}
	limit := time.Duration(0)
	if o.timeout != "" {
		var err error
		if limit, err = text.ParseDuration(o.timeout); err != nil {
			return problem.Newf(problem.Invalid, "see berth wait --help", "--timeout: %v", err)
		}
	}
	sel, err := o.own(args)
	if err != nil {
		return err
	}
	known, err := settle(ctx, s, sel)
	if err != nil {
		return err
	}
	ids := make([]string, len(known))
	for i, v := range known {
		ids[i] = v.ID
	}
	if len(ids) == 0 && o.name != "" && len(o.states) == 0 {
		return problem.Newf(problem.Unable, "berth list --all shows what there is", "no job is named %s", o.name)
	}
	if len(ids) == 0 {
		s.say("no job to wait for")
		return nil
	}
	w := waiter{s: s, any: o.any, quiet: o.quiet || o.json, limit: limit}
	w.tell(overOf(known)) // what is over already, before anything is waited for
	jobs, err := w.wait(ctx, ids)
	if err != nil {
		return err
	}
	if o.json {
		if err := printJSON(s.out, jobs); err != nil {
			return err
		}
	}
	return largestStatus(jobs)
}

// settle finds out which jobs are meant: a wait that answers at once. Without
// a daemon there is nothing to wait for; one that goes in the middle of its
// answer is coming back.
func settle(ctx context.Context, s *session, sel api.Select) ([]job.View, error) {
	patience := newPatience(s)
	for first := true; ; first = false {
		reply, err := s.client.Wait(ctx, api.WaitRequest{Select: sel, TimeoutS: time.Millisecond.Seconds()})
		var nobody *api.Unreachable
		if err != nil && !(first && errors.As(err, &nobody)) && patience.bear(ctx, err) == nil {
			continue
		}
		return reply.Jobs, err
	}
}

// waiter waits for jobs over a daemon that may come and go.
type waiter struct {
	s     *session
	any   bool
	quiet bool
	limit time.Duration // 0: none
	told  map[string]bool
}

// longestPoll is how long one request waits before it answers.
const longestPoll = 30 * time.Second

// wait returns the jobs that are over: all of them, or with any the first.
func (w *waiter) wait(ctx context.Context, ids []string) ([]job.View, error) {
	began := time.Now()
	patience := newPatience(w.s)
	for {
		r := api.WaitRequest{Select: api.Select{Words: idRuns(ids)}, Any: w.any, TimeoutS: longestPoll.Seconds()}
		if w.limit > 0 {
			left := w.limit - time.Since(began)
			if left <= 0 {
				return nil, problem.Newf(problem.Unable, "they go on; berth wait again", "%s not over after %s", text.CountGrouped(len(ids), "job"), text.Span(w.limit))
			}
			r.TimeoutS = min(r.TimeoutS, left.Seconds())
		}
		reply, err := w.s.client.Wait(ctx, r)
		if err != nil {
			if err := patience.bear(ctx, err); err != nil {
				return nil, err
			}
			continue
		}
		patience.answered()
		over := overOf(reply.Jobs)
		w.tell(over)
		if reply.Done {
			return over, nil
		}
	}
}

func overOf(jobs []job.View) []job.View {
	over := []job.View{}
	for _, v := range jobs {
		if v.State.Terminal() {
			over = append(over, v)
		}
	}
	return over
}

// tell says of each job once how it ended, and of many only how many.
func (w *waiter) tell(over []job.View) {
	if w.told == nil {
		w.told = map[string]bool{}
	}
	for _, v := range over {
		if w.told[v.ID] {
			continue
		}
		w.told[v.ID] = true
		switch {
		case w.quiet || len(w.told) > toldOneByOne+1:
		case len(w.told) == toldOneByOne+1:
			fmt.Fprintln(w.s.out, "… and more")
		default:
			fmt.Fprintln(w.s.out, text.Line(endText(v)))
		}
	}
}
