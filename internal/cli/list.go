package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/cli/render"
	"berth/internal/cli/session"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// listOptions are the flags of `berth list`.
type listOptions struct {
	selectors
	all    bool
	json   bool
	watch  bool
	idle   bool
	strays bool
	tasks  bool
	limit  int // 0: all; negative: not given

	sort    []string
	reverse bool
	columns []string
	format  string

	lately   bool // of those that have ended, only the latest
	shown    []render.Column
	template *template.Template
}

// shownByDefault is how many rows are shown where the height of the terminal is
// not known.
const shownByDefault = 50

func newList() *cobra.Command {
	o := &listOptions{}
	cmd := &cobra.Command{
		Use:     "list [JOB...]",
		Aliases: []string{"ls", "queue"},
		Short:   "Show the queue",
		Long: `Show the running jobs, then the waiting jobs in the order in which they will be
considered, with the reason each one waits. Held jobs and those that wait for
another job or a time come after them, and with --all jobs that have ended, the
latest first. On a terminal, up to 5 that ended within the last hour are shown
without --all.

An array is one row that counts its tasks by state, and so are the lines of a
jobs file, unless they are all that the list has and at most 20; --tasks shows
each of them. Where it is known, the row says when all of them are expected to
be done. The lines of other users' files are listed one by one, unless you may
see their commands. --batch FILE lists the lines of one file one by one.

GPUS lists the GPUs of a running job, or ×N for a job that needs N of them.
VRAM/DECL is peak and declared memory per GPU, in GiB. TIME is how long the job
has run or waited.

On a terminal, the table is cut to the screen and says what it hides. In a pipe
nothing is cut, unless COLUMNS is set.

Beside the daemon's queue, your berth runs that go on are listed, wherever they
were started. If there are several queues, each has a heading (berth help
commands, "Of a berth run").

--sort takes id, name, user, state, priority, submitted, started, ended, vram
and time; a - in front sorts the other way.

--columns takes id, name, user, state, gpus, vram, time, reason, command,
priority, outcome, exit, attempt, submitted, started, ended, gpu-ids, peak,
util, group and log.

--format csv prints these columns with plain values: memory in MiB, TIME in
seconds. Any other format is a Go template over the fields of a job's JSON
(berth help json). --format and --json print each task and line.`,
		Example: `  berth list
  berth list --all --state failed
  berth list --tasks 17          each task of an array
  berth list --batch jobs.txt    each line of a jobs file
  berth list --sort user,-started
  berth list --columns id,state,priority,command
  berth list --format '{{.id}} {{.name}} {{.state}}'
  berth list --all --format csv > jobs.csv
  berth list --user ann --name train
  berth list --idle              jobs that hold GPUs or CPUs and leave them idle
  berth list --strays            running jobs that the store does not know
  berth list --json | jq '.[].id'

Exit status: 0 shown; 1 refused, or no daemon; 2 bad usage; 130 interrupted.`,
		ValidArgsFunction: completeEndedToo,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			return cmp.Or(atLeast(cmd, "limit", o.limit, 0), o.check())
		},
		RunE: session.Verb(func(ctx context.Context, s *session.Session, args []string) error {
			return o.run(ctx, s, args)
		}),
	}
	session.QueueFlags(cmd)
	cmd.Annotations = map[string]string{session.EveryQueueKey: "yes"}
	flags := cmd.Flags()
	flags.BoolVarP(&o.all, "all", "a", false, "include jobs that have ended")
	o.register(cmd)
	o.registerGroup(cmd)
	flags.IntVar(&o.limit, "limit", -1, "show at most this many rows, 0 for all (default a screenful on a terminal)")
	flags.BoolVar(&o.idle, "idle", false, "only running jobs that have left their GPUs or CPUs idle for a long time")
	flags.BoolVar(&o.tasks, "tasks", false, "show each task of an array and each line of a jobs file, not one row for all of them")
	flags.StringSliceVar(&o.sort, "sort", nil, "sort by these, as in user,-started (default the order of the queue)")
	flags.BoolVar(&o.reverse, "reverse", false, "sort the other way round")
	flags.StringSliceVar(&o.columns, "columns", nil, "show these columns, as in id,state,command")
	flags.StringVar(&o.format, "format", "", "print csv, or a line for each job by a template such as '{{.id}} {{.name}}'")
	flags.BoolVar(&o.strays, "strays", false, "only jobs under a supervisor that the daemon's store does not know")
	flags.BoolVarP(&o.watch, "watch", "w", false, "refresh every second")
	flags.BoolVar(&o.json, "json", false, "print all jobs as a JSON array, in order of submission")
	flags.Bool("no-color", false, "no colours (also: NO_COLOR)")
	completeList(cmd, "sort", sortWords)
	completeList(cmd, "columns", render.ColumnNames())
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{formatCSV, "{{.id}} {{.name}} {{.state}}"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// check parses the flags that shape the list.
func (o *listOptions) check() (err error) {
	for flag, given := range map[string]bool{"--sort": len(o.sort) > 0, "--reverse": o.reverse, "--columns": len(o.columns) > 0, "--format": o.format != ""} {
		if o.json && given {
			return problem.Newf(problem.Invalid, "leave out --json, or sort and choose with jq", "%s does not go with --json, which prints whole jobs in order of submission", flag)
		}
	}
	if o.watch && o.format != "" {
		return problem.Newf(problem.Invalid, "leave out --watch", "--format does not go with --watch, which draws a table")
	}
	if err = o.checkSort(); err != nil {
		return err
	}
	usual := render.Columns[:render.UsualColumns]
	if o.format == formatCSV {
		usual = render.Columns
	}
	if o.shown, err = render.ChooseColumns(o.columns, usual); err != nil {
		return err
	}
	if o.format != "" && o.format != formatCSV {
		if len(o.columns) > 0 {
			return problem.Newf(problem.Invalid, "name the fields in the template", "--columns does not go with a template")
		}
		o.template, err = parseFormat(o.format)
	}
	return err
}

func (o *listOptions) run(ctx context.Context, s *session.Session, args []string) error {
	if o.strays || o.format != "" {
		if err := s.Pick(false); err != nil {
			return err
		}
	}
	if o.strays {
		return listStrays(ctx, s, o.json)
	}
	sel, err := o.sel(args)
	if err != nil {
		return err
	}
	q := api.Query{Select: sel, Over: o.all || s.Ended() || namesEnded(o.states), Reasons: true, Idle: o.idle}
	if s.Screen.Terminal && !o.json && o.format == "" && !q.Over && len(args) == 0 && len(o.states) == 0 && !o.idle {
		q.Over, o.lately = true, true
	}
	q.Arrays = !o.tasks && !namesTask(args) && o.format == "" && !o.json
	q.Batches = q.Arrays && foldsFiles(sel)
	switch {
	case o.json:
		if q.Limit = max(o.limit, 0); len(s.Queues) > 1 {
			return jobsOfQueues(ctx, s, q)
		}
		return rawJobs(ctx, s, q)
	case o.watch:
		return session.Watch(ctx, s, func(view render.Screen) error { return o.draw(ctx, s, view, q, max(view.Height-around, 1)) })
	}
	if o.format == "" {
		return o.draw(ctx, s, s.Screen, q, o.rows(s.Screen))
	}
	list, err := o.fetch(ctx, s, q, max(o.limit, 0))
	if err != nil {
		return err
	}
	if o.template != nil {
		return writeFormat(s.Out, list.rows, o.template)
	}
	return writeCSV(s.Out, list.rows, o.shown, time.Now())
}

// namesTask reports whether a task of an array was named, which is then shown as
// such.
func namesTask(words []string) bool {
	return slices.ContainsFunc(words, func(word string) bool {
		sel, err := jobfile.ParseSelection([]string{word})
		task := func(id string) bool { return strings.Contains(id, "_") }
		return err == nil && (slices.ContainsFunc(sel.IDs, task) || slices.ContainsFunc(sel.Ranges, func(r jobfile.Range) bool { return r.Array != "" }))
	})
}

// foldsFiles reports whether the lines of a jobs file are one row: nothing less than
// that was asked for.
func foldsFiles(sel api.Select) bool {
	return len(sel.Words) == 0 && sel.Name == "" && sel.Batch == ""
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

// A screenful: the lines around the rows are titles, what is hidden, the counts
// and the prompt.
const (
	around     = 4
	fewestRows = 5
)

// rows is how many rows to show, 0 for all.
func (o *listOptions) rows(s render.Screen) int {
	switch {
	case o.limit >= 0 || !s.Terminal:
		return max(o.limit, 0)
	case s.Height > 0:
		return max(s.Height-around, fewestRows)
	}
	return shownByDefault
}

// rawJobs prints the daemon's JSON as it came.
func rawJobs(ctx context.Context, s *session.Session, q api.Query) error {
	rareCollections()
	w := &text.JSONWriter{Out: s.Out}
	err := s.Client.JobsRaw(ctx, q, w)
	if s.NoJobsYet(err) {
		return printJSON(s.Out, []job.View{})
	}
	if err != nil {
		return err
	}
	return w.Flush()
}

// fetchJobs gets up to limit jobs (0: all) in as many requests as that takes.
func fetchJobs(ctx context.Context, s *session.Session, q api.Query, limit int) ([]job.View, api.JobPage, error) {
	q.Limit = limit
	var jobs []job.View
	page, err := s.Client.JobsAll(ctx, q, func(v job.View) error {
		jobs = append(jobs, v)
		return nil
	})
	if s.NoJobsYet(err) {
		err = nil
	}
	return jobs, page, err
}

func (o *listOptions) draw(ctx context.Context, s *session.Session, view render.Screen, q api.Query, most int) error {
	if len(s.Queues) > 1 {
		return o.drawQueues(ctx, s, view, q, most)
	}
	list, err := o.fetch(ctx, s, q, most)
	if err != nil {
		return err
	}
	return drawList(view, list, o.shown, len(o.columns) > 0, time.Now())
}

// drawList draws the table, then says what was left out and counts the states.
func drawList(s render.Screen, list listed, shown []render.Column, chosen bool, now time.Time) error {
	if len(list.rows) > 0 {
		if err := s.Draw(render.JobTable(list.rows, shown, chosen, now)); err != nil {
			return err
		}
	}
	if more := list.more(); more != "" {
		fmt.Fprintln(s.Out, s.Fit("… and "+more+" (berth list --limit 0 shows all)"))
	}
	sum := render.CountLine(list.counts, len(list.rows))
	if sum == render.EmptyQueue && len(list.rows) > 0 {
		sum = "no job is queued or running" // those shown have ended
	}
	_, err := fmt.Fprintln(s.Out, s.Fit(sum))
	return err
}
