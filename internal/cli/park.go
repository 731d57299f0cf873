package cli

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/cli/session"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/machine/keep"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// parkOptions are the flags of park and unpark.
type parkOptions struct {
	spare, until string // how long they stay parked
	noWait       bool
	timeout      string

	limit time.Duration // timeout, parsed; 0: another verb
}

const parkStatuses = `

Exit status: 0 done; 1 at least one job was not parked, is still being parked
after --timeout, or was refused, or no daemon; 2 bad usage; 130 interrupted.`

const unparkStatuses = `

Exit status: 0 they are back, or come back when their GPUs have room; 1 at least
one job was refused, has ended, or is still coming back after --timeout, or no
daemon; 2 bad usage; 130 interrupted.`

func newPark() *cobra.Command {
	a := &action{name: api.ActPark}
	cmd := a.command("Take running jobs off their GPUs without losing work", `Park running jobs: their GPU memory moves to the host's memory, their processes
are frozen, and their GPUs are free for others. berth unpark brings them back,
on the same GPUs, where they were. The driver has to support it (570 or newer),
and the host needs as much free memory as the jobs use on their GPUs.

The command waits until each job is parked, or until the driver has refused; a
job that is refused goes on running. Ctrl-C only ends the wait.
`+actionHelp, `  berth park 17
  berth park 17 --for 2h
  berth park 'sweep-*' --until 18:00
  berth park 17 --no-wait`+parkStatuses)
	cmd.Flags().StringVar(&a.parking.spare, "for", "", "let them come back by themselves after this time")
	cmd.Flags().StringVar(&a.parking.until, "until", "", "let them come back by themselves at this time (18:00, 2026-03-01T16:00)")
	a.parking.register(cmd, "do not wait until they are parked")
	return cmd
}

func newUnpark() *cobra.Command {
	a := &action{name: api.ActUnpark}
	cmd := a.command("Bring parked jobs back to their GPUs", `Bring parked jobs back as soon as the GPUs that they left have room. They go on
where they were. The command waits until they are back, unless they have to wait
for their GPUs: then it says why.
`+actionHelp, `  berth unpark 17
  berth unpark --state parked`+unparkStatuses)
	a.parking.register(cmd, "do not wait until they are back")
	return cmd
}

func newSaved() *cobra.Command {
	cmd := (&action{name: api.ActSaved}).command("Report that a job has saved its work", `Tell berth that a job with --checkpoint has just saved its work, from inside
the job after each save. Then berth knows what ending it would lose, and show
says it. Without this, berth believes what --checkpoint says, but each attempt
runs at least as long as all earlier ones together. With --checkpoint term,
ending with status 0 (or 143) after TERM reports a save too; with
--checkpoint-file, a file that is newer than the attempt's start does.
`+actionHelp, `  berth saved
  berth saved 17`+actionStatuses)
	cmd.Use = api.ActSaved + " [JOB...]"
	act := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		// BERTH_JOB_ID is another number where there is a Slurm too.
		if parts := strings.Split(os.Getenv(keep.TokenVariable), ":"); len(args) == 0 && len(parts) == 3 {
			args = []string{parts[1]}
		}
		return act(cmd, args)
	}
	return cmd
}

func (o *parkOptions) register(cmd *cobra.Command, noWait string) {
	cmd.Flags().BoolVar(&o.noWait, "no-wait", false, noWait)
	cmd.Flags().StringVar(&o.timeout, "timeout", "10m", "wait at most this long: 90, 15m, 2h")
}

// waits reports whether the outcome is waited for.
func (o *parkOptions) waits() bool { return o.limit > 0 && !o.noWait }

// check parses the flags. It returns when parked jobs come back by themselves;
// nil: not.
func (o *parkOptions) check(now time.Time) (*time.Time, error) {
	if o.timeout != "" {
		var err error
		if o.limit, err = text.ParseDuration(o.timeout); err != nil {
			return nil, problem.Newf(problem.Invalid, "for example: --timeout 15m", "--timeout: %v", err)
		}
	}
	switch {
	case o.spare != "" && o.until != "":
		return nil, problem.Newf(problem.Invalid, "", "expected --for or --until, found both")
	case o.spare != "":
		span, err := text.ParseDuration(o.spare)
		if err != nil {
			return nil, problem.Newf(problem.Invalid, "for example: --for 2h", "--for: %v", err)
		}
		at := now.Add(span)
		return &at, nil
	case o.until != "":
		at, err := jobfile.ParseBegin(o.until, now)
		if err != nil {
			return nil, problem.Newf(problem.Invalid, "for example: --until 18:00", "--until: %v", err)
		}
		return &at, nil
	}
	return nil, nil
}

// unparkPatience is how long a job may take to get its GPUs before it counts as
// waiting for them.
const unparkPatience = 2 * time.Second

// parkWait waits until jobs are parked, or back.
type parkWait struct {
	s     *session.Session
	back  bool
	quiet bool // the outcomes are not printed
	limit time.Duration

	begun   time.Time
	pending map[string]*api.Acted
	order   []string // of the pending jobs
	told    map[string]bool
}

// await waits for the jobs that were acted on, and changes their results to
// what became of them.
func (w *parkWait) await(ctx context.Context, acted []api.Acted) error {
	w.begun, w.pending, w.told = time.Now(), map[string]*api.Acted{}, map[string]bool{}
	for i := range acted {
		if one := &acted[i]; one.Done && (w.back || one.State == string(job.Running)) {
			w.pending[one.ID], w.order = one, append(w.order, one.ID)
		}
	}
	patience := session.NewPatience(w.s)
	for len(w.order) > 0 {
		left := w.limit - time.Since(w.begun)
		if left <= 0 {
			return w.giveUp()
		}
		w.progress()
		views, err := w.ask(ctx, left)
		if err == nil {
			patience.Answered()
			err = w.update(ctx, views)
		}
		w.erase()
		switch {
		case ctx.Err() != nil:
			return w.interrupted()
		case err != nil:
			if err := patience.Bear(ctx, err); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
	if more := len(w.told) - listedOneByOne; more > 0 && !w.quiet {
		fmt.Fprintf(w.s.Out, "and %s more\n", text.CountGrouped(more, "job"))
	}
	return nil
}

// ask waits for the next outcome, or for a moment.
func (w *parkWait) ask(ctx context.Context, left time.Duration) ([]job.View, error) {
	most := longestPoll
	switch {
	case w.back && time.Since(w.begun) < unparkPatience:
		most = unparkPatience - time.Since(w.begun)
	case w.back || w.s.Terminal: // the reason of a wait, or the time, is to be shown
		most = time.Second
	}
	r := api.WaitRequest{Select: api.Select{Words: idRuns(w.order)}, Any: true, For: api.WaitParked, TimeoutS: max(time.Millisecond, min(most, left)).Seconds()}
	if w.back {
		r.For = api.WaitRunning
	}
	reply, err := api.Call(ctx, w.s.Client, api.WaitForJobs, r)
	return reply.Jobs, err
}

// update takes in how far the jobs are.
func (w *parkWait) update(ctx context.Context, views []job.View) error {
	for i := range views {
		v := &views[i]
		one := w.pending[v.ID]
		if one == nil {
			continue
		}
		what, done, over := parkOutcome(v, time.Since(w.begun))
		if w.back {
			var err error
			if what, done, over, err = w.unparkOutcome(ctx, v); err != nil {
				return err
			}
		}
		if !over {
			continue
		}
		*one = api.Acted{ID: v.ID, Done: done, State: string(v.State), What: what}
		if took := time.Since(w.begun).Seconds(); done {
			one.HostMiB, one.TookS = v.HostMiB, &took
		}
		delete(w.pending, v.ID)
		w.order = slices.DeleteFunc(w.order, func(id string) bool { return id == v.ID })
		w.tell(one)
	}
	return nil
}

// parkOutcome returns the result of parking a job.
func parkOutcome(v *job.View, took time.Duration) (what string, done, over bool) {
	switch {
	case v.State.Terminal():
		return "ended before it was parked", false, true
	case v.State == job.Parked && v.HostMiB != nil:
		return fmt.Sprintf("is parked, %s GiB saved in %s", text.GiB(*v.HostMiB), shortSpan(took)), true, true
	case v.State == job.Parked:
		return "is parked", true, true
	case v.Parking != nil && *v.Parking == job.ParkOut:
		return "", false, false
	case v.ParkRefused != nil:
		return "goes on running: " + *v.ParkRefused, false, true
	case v.State == job.Running && v.Parkings > 0:
		return "was parked, and has its GPUs again", true, true
	}
	return "was not parked", false, true
}

// unparkOutcome returns the result of unparking a job.
func (w *parkWait) unparkOutcome(ctx context.Context, v *job.View) (what string, done, over bool, err error) {
	took := time.Since(w.begun)
	switch {
	case v.State.Terminal():
		return "ended before it was back", false, true, nil
	case v.State == job.Running && v.Parking == nil:
		return "is back after " + shortSpan(took), true, true, nil
	case v.State != job.Parked || took < unparkPatience:
		return "", false, false, nil
	}
	why, err := api.Call(ctx, w.s.Client, api.GetWhy, api.JobID{ID: v.ID})
	if err != nil || why.State != string(job.Parked) {
		return "", false, false, err
	}
	return "comes back when its GPUs have room: " + why.Text, true, true, nil
}

// shortSpan is a span with a fraction, where that is worth knowing.
func shortSpan(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	}
	return text.Span(d)
}

// tell prints an outcome, up to a limit.
func (w *parkWait) tell(one *api.Acted) {
	if w.quiet {
		return
	}
	if w.told[one.ID] = true; len(w.told) > listedOneByOne {
		return
	}
	w.erase()
	if line := fmt.Sprintf("job %s %s", one.ID, one.What); one.Done {
		fmt.Fprintln(w.s.Out, text.Line(line))
	} else {
		w.s.Say("%s", line)
	}
}

// progress shows on a terminal that something is under way.
func (w *parkWait) progress() {
	if !w.s.Terminal || w.quiet || time.Since(w.begun) < time.Second {
		return
	}
	fmt.Fprintf(w.s.ErrOut, "\r%s for %s\x1b[K", w.under(), text.Span(time.Since(w.begun)))
}

func (w *parkWait) erase() {
	if w.s.Terminal && !w.quiet {
		fmt.Fprint(w.s.ErrOut, "\r\x1b[K")
	}
}

// under describes the wait: "job 17 is being parked".
func (w *parkWait) under() string {
	what := "being parked"
	if w.back {
		what = "coming back"
	}
	if len(w.order) == 1 {
		return fmt.Sprintf("job %s is %s", w.order[0], what)
	}
	return fmt.Sprintf("%s are %s", text.CountGrouped(len(w.order), "job"), what)
}

// giveUp is for jobs that took too long.
func (w *parkWait) giveUp() error {
	for _, id := range w.order {
		w.pending[id].Done = false
	}
	return problem.Newf(problem.Unable, fmt.Sprintf("it goes on; berth show %s shows how far it is", w.order[0]), "%s, after %s", w.under(), text.Span(w.limit))
}

// interrupted is for a user who does not want to wait.
func (w *parkWait) interrupted() error {
	w.s.Say("no longer waiting; %s", w.under())
	if w.back {
		w.s.Advise("berth show %s shows how far it is", w.order[0])
	} else {
		w.s.Advise("berth show %s shows how far it is; berth unpark %[1]s brings it back", w.order[0])
	}
	return session.ExitInterrupted
}
