package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/cli/session"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// action is a verb that does one thing to the selected jobs.
type action struct {
	selectors
	jobFlags        // of requeue: what the jobs get instead
	name     string // of the verb, and on the wire
	use      string // what follows JOB... in its usage
	grace    string
	json     bool
	parking  parkOptions // of park and unpark
}

const actionHelp = `
JOB is an id or a range (17, 1-3,7, 17_0), a name or a pattern (train,
'sweep-*'), @ for your last job, @~1 for the one before it, or all. The id of an
array means all of its tasks; a name means your unfinished jobs of that name, or
else the newest one. --name, --user and --state select among these jobs. Without
an id, only your own jobs are selected, even for administrators, unless you give
--user or --all-users. Jobs of an array, a range or a pattern that have nothing
to do, because they have ended for instance, are counted and are no error.`

const actionStatuses = `

Exit status: 0 done; 1 at least one job was refused, or no daemon; 2 bad usage;
130 interrupted.`

func newCancel() *cobra.Command {
	a := &action{name: api.ActCancel}
	cmd := a.command("Cancel jobs, running or not", `Cancel jobs. A running job gets SIGTERM, then SIGKILL after its grace period
(10 s). It has ended when its last process is gone.
`+actionHelp, `  berth cancel 17
  berth cancel 1-3,7 @
  berth cancel 'sweep-*'
  berth cancel --name sweep --state queued
  berth cancel --group io
  berth cancel all`+actionStatuses)
	cmd.Flags().StringVar(&a.grace, "grace", "", "time between SIGTERM and SIGKILL instead of the job's own, up to limits.grace; 0: SIGKILL at once")
	return cmd
}

func newHold() *cobra.Command {
	return (&action{name: api.ActHold}).command("Keep queued jobs from starting", `Keep queued jobs from starting until they are released.
`+actionHelp, `  berth hold 17
  berth hold --name sweep`+actionStatuses)
}

func newRelease() *cobra.Command {
	return (&action{name: api.ActRelease}).command("Let held jobs start", `Let held jobs start when it is their turn.
`+actionHelp, `  berth release 17
  berth release --state held`+actionStatuses)
}

func newRequeue() *cobra.Command {
	a := &action{name: api.ActRequeue, use: " [flags] [-- COMMAND...]"}
	cmd := a.command("Run jobs again from the beginning", `Put jobs back into the queue, to run again from the beginning. Running jobs are
stopped first. Jobs keep their ids, and each attempt has its own log. The flags
of submit, and a command after --, change jobs that have ended before they run
again. berth submit --like keeps the old job and its result.
`+actionHelp, `  berth requeue 17
  berth requeue 17 --vram 20G --time 4h
  berth requeue 17 -- python train.py --lr 1e-4
  berth requeue --state failed`+actionStatuses)
	a.registerChanges(cmd)
	return cmd
}

// complete completes the jobs that the verb may change.
func (a *action) complete(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if a.name == api.ActRequeue {
		return completeEndedToo(cmd, args, typed)
	}
	return completeJobs(cmd, args, typed)
}

func (a *action) command(short, long, example string) *cobra.Command {
	cmd := &cobra.Command{
		Use: a.name + " JOB..." + a.use, Short: short, Long: long, Example: example,
		ValidArgsFunction: a.complete,
	}
	cmd.RunE = session.Verb(func(ctx context.Context, s *session.Session, args []string) error {
		var command []string
		if dash := cmd.ArgsLenAtDash(); dash >= 0 && a.name == api.ActRequeue {
			args, command = args[:dash], args[dash:]
		}
		return a.run(ctx, s, args, command)
	})
	session.ActFlags(cmd)
	a.registerOwn(cmd)
	if a.name != api.ActRequeue {
		a.registerGroup(cmd)
	}
	cmd.Flags().BoolVar(&a.json, "json", false, "print a JSON array with the result for each job")
	return cmd
}

func (a *action) run(ctx context.Context, s *session.Session, args, command []string) error {
	if a.empty(args) {
		return needJobs(a.name)
	}
	r := api.ActRequest{Action: a.name}
	if a.grace != "" {
		grace, err := parseGrace(a.grace)
		if err != nil {
			return err
		}
		seconds := grace.Seconds()
		r.GraceS = &seconds
	}
	var err error
	if r.Until, err = a.parking.check(time.Now()); err != nil {
		return err
	}
	var change api.EditRequest
	if err := a.changes(&change); err != nil {
		return err
	}
	if len(command) > 0 {
		change.Set.Command = commandOf(command)
	}
	if err := absolute(&change.Set.Dir, &change.Set.Venv); err != nil {
		return err
	}
	if !change.None() {
		r.Changes = &change
	}
	if r.Select, err = a.own(args); err != nil {
		return err
	}
	reply, err := api.Call(ctx, s.Client, api.Act, r)
	if err != nil && !(r.Select.All && s.NoJobsYet(err)) {
		return err
	}
	err = nil // there is nothing to act on
	var told map[string]bool
	if a.parking.waits() {
		w := &parkWait{s: s, back: a.name == api.ActUnpark, quiet: a.json, limit: a.parking.limit}
		err = w.await(ctx, reply.Jobs)
		told = w.told
	}
	if a.json {
		if err := printJSON(s.Out, notNull(reply.Jobs)); err != nil {
			return err
		}
		return cmp.Or(err, actedStatus(reply.Jobs))
	}
	return cmp.Or(err, a.report(s, reply, told))
}

// parseGrace parses a duration, or 0.
func parseGrace(written string) (time.Duration, error) {
	if written == "0" || written == "0s" {
		return 0, nil
	}
	grace, err := text.ParseDuration(written)
	if err != nil {
		return 0, problem.Newf(problem.Invalid, "--grace 0 kills the job at once", "--grace: %v", err)
	}
	return grace, nil
}

// report prints the results, except those that were told while they were waited
// for. The tasks of an array are one line, and so are the lines of a jobs file.
func (a *action) report(s *session.Session, reply api.ActReply, told map[string]bool) error {
	left := ""
	if len(reply.Left) > 0 {
		left = leftAlone(reply.Left)
	}
	if len(reply.Jobs) == 0 {
		s.Say("no jobs to %s%s", a.name, left)
		return nil
	}
	rows := foldActed(slices.DeleteFunc(slices.Clone(reply.Jobs), func(one api.Acted) bool { return told[one.ID] }), a.fileName())
	done, refused := 0, 0
	for i, row := range rows {
		line := text.Line(row.text())
		if i == len(rows)-1 {
			line += left
		}
		if row.done {
			if done++; done <= listedOneByOne {
				fmt.Fprintln(s.Out, line)
			}
			continue
		}
		if refused++; refused <= listedOneByOne {
			fmt.Fprintln(s.ErrOut, "berth: "+line)
		}
	}
	if more := done - listedOneByOne; more > 0 {
		fmt.Fprintf(s.Out, "and %s more\n", text.CountGrouped(more, "job"))
	}
	if more := refused - listedOneByOne; more > 0 {
		s.Say("and %s more refused", text.CountGrouped(more, "job"))
	}
	return actedStatus(reply.Jobs)
}

// fileName is the jobs file whose lines were chosen; empty: none.
func (a *action) fileName() string {
	if a.batch == "" {
		return ""
	}
	return filepath.Base(a.batch)
}

// leftAlone says how many jobs had nothing to do, as the end of a line.
func leftAlone(states map[string]int) string {
	var parts []string
	for _, state := range slices.Sorted(maps.Keys(states)) {
		parts = append(parts, text.Grouped(states[state])+" "+state)
	}
	return " (left alone: " + strings.Join(parts, ", ") + ")"
}

// actedRow is the result for a job, or for some tasks of an array.
type actedRow struct {
	id    string
	file  string // the jobs file that all of them are lines of; empty: none was asked for
	done  bool
	tasks int
	whats []string // in order of their first
	count map[string]int
}

func (r *actedRow) text() string {
	if r.tasks == 1 {
		return fmt.Sprintf("job %s: %s", r.id, r.whats[0])
	}
	parts := make([]string, len(r.whats))
	for i, what := range r.whats {
		parts[i] = what
		if len(r.whats) > 1 {
			parts[i] = text.Grouped(r.count[what]) + " " + what
		}
	}
	if r.file != "" {
		return fmt.Sprintf("%s: %s: %s", r.file, text.CountGrouped(r.tasks, "job"), strings.Join(parts, ", "))
	}
	return fmt.Sprintf("job %s: %s: %s", r.id, text.CountGrouped(r.tasks, "task"), strings.Join(parts, ", "))
}

// foldActed makes one row of the tasks of an array that follow each other, but a
// single task keeps its id. With a jobs file, all are one row, and those that were
// refused another.
func foldActed(acted []api.Acted, file string) (rows []*actedRow) {
	if file != "" {
		slices.SortStableFunc(acted, func(a, b api.Acted) int {
			switch {
			case a.Done == b.Done:
				return 0
			case a.Done:
				return -1
			}
			return 1
		})
	}
	for _, one := range acted {
		array, _, isTask := strings.Cut(one.ID, "_")
		if last := len(rows) - 1; (isTask || file != "") && last >= 0 && rows[last].done == one.Done {
			if before, _, _ := strings.Cut(rows[last].id, "_"); before == array || file != "" {
				rows[last].id = array
				rows[last].add(one.What)
				continue
			}
		}
		row := &actedRow{id: one.ID, file: file, done: one.Done, count: map[string]int{}}
		row.add(one.What)
		rows = append(rows, row)
	}
	return rows
}

func (r *actedRow) add(what string) {
	if r.count[what]++; r.count[what] == 1 {
		r.whats = append(r.whats, what)
	}
	r.tasks++
}

func actedStatus(acted []api.Acted) error {
	for _, one := range acted {
		if !one.Done {
			return session.ExitFailed
		}
	}
	return nil
}
