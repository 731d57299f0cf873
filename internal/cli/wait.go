package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/cli/render"
	"berth/internal/cli/session"
	"berth/internal/job"
	"berth/internal/queue/notify"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// waitOptions are the flags of `berth wait`.
type waitOptions struct {
	selectors
	any     bool
	quiet   bool
	json    bool
	timeout string
	notify  []string
}

func newWait() *cobra.Command {
	o := &waitOptions{}
	cmd := &cobra.Command{
		Use:   "wait JOB...",
		Short: "Wait for jobs to end, and exit with their status",
		Long: `Wait until the jobs have ended. The wait survives a restart of the daemon. The
jobs are chosen at the start: @ stays the same job, and jobs submitted later are
not included.

all, --user and --group select jobs that have not ended. Ids, --name and --batch
also select jobs that have ended and are still in the history, so that an early
failure counts; add --state queued,running to leave those out.

--notify also sends a message once the wait is over (berth help get-told). It is
about all jobs that were waited for, and needs this command to run until then:
to be told without waiting, use berth submit --notify.`,
		Example: `  berth wait 17
  berth wait @ && echo succeeded
  berth wait --name sweep --timeout 2h
  berth wait 17 18 --any
  berth wait --name sweep --notify ntfy:my-jobs

Exit status: the job's own: its exit code, 128 + signal, 124 for its time
limit, else 1; the largest if there are several. Also 1 if --timeout passed or
no daemon answers; 2 bad usage; 130 interrupted.`,
		ValidArgsFunction: completeEndedToo,
		RunE: session.Verb(func(ctx context.Context, s *session.Session, args []string) error {
			return o.run(ctx, s, args)
		}),
	}
	session.QueueFlags(cmd)
	o.register(cmd)
	o.registerGroup(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&o.any, "any", false, "return when the first job ends")
	flags.StringVar(&o.timeout, "timeout", "", "give up after this long: 90, 15m, 2h (the jobs keep running)")
	flags.StringArrayVar(&o.notify, "notify", nil, "send a message to this `target` when the wait is over; may be repeated")
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "print nothing")
	flags.BoolVar(&o.json, "json", false, "print the jobs as a JSON array when they have ended")
	return cmd
}

func (o *waitOptions) run(ctx context.Context, s *session.Session, args []string) error {
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
	for _, target := range o.notify {
		if _, err := notify.ParseTarget(target); err != nil {
			return problem.Newf(problem.Invalid, "see berth wait --help", "--notify: %v", err)
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
		return problem.Newf(problem.Unable, "berth list --all shows all jobs", "no job has the name %s", o.name)
	}
	if len(ids) == 0 {
		s.Say("no jobs to wait for")
		return nil
	}
	w := waiter{s: s, any: o.any, quiet: o.quiet || o.json, limit: limit}
	w.tell(endedOf(known)) // jobs that have already ended
	jobs, err := w.wait(ctx, ids)
	if err != nil {
		return err
	}
	if o.json {
		if err := printJSON(s.Out, jobs); err != nil {
			return err
		}
	}
	if err := o.tell(ctx, s, jobs); err != nil {
		return err
	}
	return largestStatus(jobs)
}

// tell has a message about the jobs sent to each target.
func (o *waitOptions) tell(ctx context.Context, s *session.Session, jobs []job.View) error {
	r := api.NotifyTest{}
	for _, v := range jobs {
		r.Jobs = append(r.Jobs, v.ID)
	}
	for _, target := range o.notify {
		r.Target = target
		if _, err := api.Call(ctx, s.Client, api.SendNotify, r); err != nil {
			return fmt.Errorf("the jobs have ended, but no message is sent: %w", err)
		}
	}
	return nil
}

// settle resolves the selection to jobs. Without a daemon it fails at once, but
// a daemon that stops in the middle of an answer will come back.
func settle(ctx context.Context, s *session.Session, sel api.Select) ([]job.View, error) {
	patience := session.NewPatience(s)
	for first := true; ; first = false {
		reply, err := api.Call(ctx, s.Client, api.WaitForJobs, api.WaitRequest{Select: sel, TimeoutS: time.Millisecond.Seconds()})
		var nobody *api.Unreachable
		if err != nil && !(first && errors.As(err, &nobody)) && patience.Bear(ctx, err) == nil {
			continue
		}
		if sel.All && s.NoJobsYet(err) {
			err = nil
		}
		return reply.Jobs, err
	}
}

// waiter waits for jobs across restarts of the daemon.
type waiter struct {
	s     *session.Session
	any   bool
	quiet bool
	limit time.Duration // 0: none
	told  map[string]bool
}

// longestPoll is how long one request waits before it answers.
const longestPoll = 30 * time.Second

// wait returns the jobs that have ended: all of them, or with any the first.
func (w *waiter) wait(ctx context.Context, ids []string) ([]job.View, error) {
	began := time.Now()
	patience := session.NewPatience(w.s)
	for {
		r := api.WaitRequest{Select: api.Select{Words: idRuns(ids)}, Any: w.any, TimeoutS: longestPoll.Seconds()}
		if w.limit > 0 {
			left := w.limit - time.Since(began)
			if left <= 0 {
				have := " have"
				if len(ids) == 1 {
					have = " has"
				}
				return nil, problem.Newf(problem.Unable, "the jobs keep running; run berth wait again", "%s not ended after %s", text.CountGrouped(len(ids), "job")+have, text.Span(w.limit))
			}
			r.TimeoutS = min(r.TimeoutS, left.Seconds())
		}
		reply, err := api.Call(ctx, w.s.Client, api.WaitForJobs, r)
		if err != nil {
			if err := patience.Bear(ctx, err); err != nil {
				return nil, err
			}
			continue
		}
		patience.Answered()
		over := endedOf(reply.Jobs)
		w.tell(over)
		if reply.Done {
			return over, nil
		}
	}
}

func endedOf(jobs []job.View) []job.View {
	over := []job.View{}
	for _, v := range jobs {
		if v.State.Terminal() {
			over = append(over, v)
		}
	}
	return over
}

// tell reports once how each job ended, up to a limit.
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
		case w.quiet || len(w.told) > listedOneByOne+1:
		case len(w.told) == listedOneByOne+1:
			fmt.Fprintln(w.s.Out, "… and more")
		default:
			fmt.Fprintln(w.s.Out, text.Line(render.EndText(v)))
		}
	}
}

// largestStatus is the exit status for several jobs.
func largestStatus(jobs []job.View) error {
	code := 0
	for _, v := range jobs {
		code = max(code, api.ExitStatus(v))
	}
	if code != 0 {
		return session.ExitStatus(code)
	}
	return nil
}
