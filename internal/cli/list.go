package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/text"
)

// listOptions are the flags of `berth list`.
type listOptions struct {
	selectors
	all    bool
	json   bool
	watch  bool
	idle   bool
	strays bool
	limit  int // 0: all; negative: not given
}

// shownByDefault is how many rows are shown on a terminal.
const shownByDefault = 50

func newList() *cobra.Command {
	o := &listOptions{}
	cmd := &cobra.Command{
		Use:     "list [JOB...]",
		Aliases: []string{"ls", "queue"},
		Short:   "Show the queue",
		Long: `Show the running jobs, and the waiting jobs with the reason each one waits.

GPUS lists the GPUs of a running job, or ×N for a job that waits for N of them.
VRAM/DECL is peak and declared memory per GPU, in GiB. TIME is how long the job
has run or waited.

On a terminal, the table is cut to fit and shows at most 50 jobs. In a pipe
nothing is cut, unless COLUMNS is set.`,
		Example: `  berth list
  berth list --all --state failed
  berth list --user ann --name train
  berth list --idle              jobs that hold GPUs and leave them idle
  berth list --strays            running jobs that the store does not know
  berth list --json | jq '.[].id'

Exit status: 0 shown; 1 refused, or no daemon; 2 bad usage; 130 interrupted.`,
		ValidArgsFunction: completeEndedToo,
		PreRunE:           func(cmd *cobra.Command, _ []string) error { return atLeast(cmd, "limit", o.limit, 0) },
		RunE: verb(func(ctx context.Context, s *session, args []string) error {
			return o.run(ctx, s, args)
		}),
	}
	queueFlags(cmd)
	flags := cmd.Flags()
	flags.BoolVarP(&o.all, "all", "a", false, "include jobs that have ended")
	o.register(cmd)
	flags.IntVar(&o.limit, "limit", -1, "show at most this many jobs, 0 for all (default 50 on a terminal)")
	flags.BoolVar(&o.idle, "idle", false, "only running jobs that have left their GPUs idle for a long time")
	flags.BoolVar(&o.strays, "strays", false, "only jobs under a supervisor that the daemon's store does not know")
	flags.BoolVarP(&o.watch, "watch", "w", false, "refresh every second")
	flags.BoolVar(&o.json, "json", false, "print all jobs as a JSON array")
	flags.Bool("no-color", false, "no colours (also: NO_COLOR)")
	return cmd
}

func (o *listOptions) run(ctx context.Context, s *session, args []string) error {
	if o.strays {
		return listStrays(ctx, s, o.json)
	}
	sel, err := o.sel(args)
	if err != nil {
		return err
	}
	q := api.Query{Select: sel, Over: o.all || s.ended() || namesEnded(o.states), Reasons: true, Idle: o.idle}
	switch {
	case o.json:
		q.Limit = max(o.limit, 0)
		return rawJobs(ctx, s, q)
	case o.watch:
		return watch(ctx, s, func(view screen) error { return o.draw(ctx, s, view, q, view.height-4) })
	}
	return o.draw(ctx, s, s.screen, q, o.rows(s.screen))
}

// namesEnded reports whether a state was named that only ended jobs have.
func namesEnded(states []string) bool {
	for _, state := range states {
		if job.State(state).Terminal() {
			return true
		}
	}
	return false
}

// rows is how many jobs to show, 0 for all.
func (o *listOptions) rows(s screen) int {
	if o.limit < 0 && s.terminal {
		return shownByDefault
	}
	return max(o.limit, 0)
}

// rawJobs prints the daemon's JSON as it came.
func rawJobs(ctx context.Context, s *session, q api.Query) error {
	w := &text.JSONWriter{Out: s.out}
	err := s.client.JobsRaw(ctx, q, w)
	if s.nothing(err) {
		return printJSON(s.out, []job.View{})
	}
	if err != nil {
		return err
	}
	return w.Flush()
}

// fetchJobs gets up to limit jobs (0: all) in as many requests as that takes.
func fetchJobs(ctx context.Context, s *session, q api.Query, limit int) ([]job.View, api.JobPage, error) {
	q.Limit = limit
	var jobs []job.View
	page, err := s.client.JobsAll(ctx, q, func(v job.View) error {
		jobs = append(jobs, v)
		return nil
	})
	if s.nothing(err) {
		err = nil
	}
	return jobs, page, err
}

func (o *listOptions) draw(ctx context.Context, s *session, view screen, q api.Query, rows int) error {
	jobs, page, err := fetchJobs(ctx, s, q, rows)
	if err != nil {
		return err
	}
	return drawJobs(view, jobs, page, time.Now())
}

// drawJobs draws the table, then says what was left out and counts the states.
func drawJobs(s screen, jobs []job.View, page api.JobPage, now time.Time) error {
	if len(jobs) > 0 {
		if err := s.draw(jobTable(jobs, now)); err != nil {
			return err
		}
	}
	if more := page.Total - len(jobs); more > 0 {
		fmt.Fprintln(s.out, fit(s, fmt.Sprintf("… %s more (berth list --limit 0, or narrow with --state, --user, --name)", text.Grouped(more))))
	}
	_, err := fmt.Fprintln(s.out, fit(s, countLine(page.Counts, len(jobs))))
	return err
}

// fit cuts a line to the screen.
func fit(s screen, line string) string {
	if s.width == 0 {
		return line
	}
	return text.Cut(line, s.width)
}

func jobTable(jobs []job.View, now time.Time) *text.Table {
	t := &text.Table{
		Columns: []text.Column{
			{Title: "ID"}, {Title: "NAME"}, {Title: "USER"}, {Title: "STATE"}, {Title: "GPUS"},
			{Title: "VRAM/DECL", Shy: true}, {Title: "TIME", Right: true}, {Title: "REASON", Shy: true}, {Title: "COMMAND", Shy: true},
		},
		Concessions: []text.Concession{
			{Title: "COMMAND", To: 20}, {Title: "NAME", To: 16}, {Title: "COMMAND", To: 0}, {Title: "REASON", To: 24}, {Title: "NAME", To: 10}, {Title: "USER", To: 6},
			{Title: "REASON", To: 16}, {Title: "GPUS", To: 5}, {Title: "VRAM/DECL", To: 0}, {Title: "USER", To: 0}, {Title: "NAME", To: 6}, {Title: "REASON", To: 0},
		},
	}
	for _, v := range jobs {
		t.Add(text.Cell{Text: v.ID}, text.Cell{Text: v.Name}, text.Cell{Text: v.User}, stateCell(v), text.Cell{Text: gpusText(v)},
			text.Cell{Text: vramText(v)}, text.Cell{Text: timeText(v, now)}, text.Cell{Text: noteText(v, now)}, text.Cell{Text: commandText(v)})
	}
	return t
}

// countLine counts all selected jobs by state, including those not shown.
func countLine(counts map[string]int, shown int) string {
	var parts []string
	for _, state := range []job.State{job.Running, job.Queued, job.Parked, job.Finished, job.Failed, job.Cancelled} {
		if n := counts[string(state)]; n > 0 {
			parts = append(parts, text.Grouped(n)+" "+string(state))
		}
	}
	switch {
	case len(parts) == 0:
		return "no jobs"
	case shown == 0:
		return "no jobs to show; in total: " + strings.Join(parts, ", ")
	}
	return strings.Join(parts, ", ")
}
