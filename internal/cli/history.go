package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/cli/render"
	"berth/internal/cli/session"
	"berth/internal/job"
	"berth/internal/text"
)

// historyOptions are the flags of `berth history`.
type historyOptions struct {
	selectors
	since string
	tasks bool
	limit int
	json  bool
}

func newHistory() *cobra.Command {
	o := &historyOptions{}
	cmd := &cobra.Command{
		Use:   "history [JOB...]",
		Short: "Show jobs that have ended, newest first",
		Long: `Show jobs that have ended, newest first: how they ended, how long they ran, and
their peak and declared memory per GPU. Of a job that saves its own work, REASON
also has how much of its earlier attempts was not saved. An array is one row
that counts its tasks by state, and so are the lines of a jobs file (see berth
list); --tasks shows each of them.`,
		Example: `  berth history
  berth history --since 7d --state failed
  berth history --user ann --limit 0
  berth history --since 2026-03-01 --json

Exit status: 0 shown; 1 refused, or no daemon; 2 bad usage; 130 interrupted.`,
		ValidArgsFunction: completeEndedToo,
		PreRunE:           func(cmd *cobra.Command, _ []string) error { return atLeast(cmd, "limit", o.limit, 0) },
		RunE: session.Verb(func(ctx context.Context, s *session.Session, args []string) error {
			return o.run(ctx, s, args, time.Now())
		}),
	}
	session.QueueFlags(cmd)
	o.register(cmd)
	o.registerGroup(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.since, "since", "", "only jobs that ended since then: 2h (ago), 7d, 2026-03-01")
	flags.BoolVar(&o.tasks, "tasks", false, "show each task of an array and each line of a jobs file, not one row for all of them")
	flags.IntVar(&o.limit, "limit", -1, "show at most this many rows, 0 for all (default 50, or all with --json)")
	flags.BoolVar(&o.json, "json", false, "print a JSON array of jobs")
	flags.Bool("no-color", false, "no colours (also: NO_COLOR)")
	return cmd
}

func (o *historyOptions) run(ctx context.Context, s *session.Session, args []string, now time.Time) error {
	sel, err := o.sel(args)
	if err != nil {
		return err
	}
	if len(sel.States) == 0 {
		sel.States = []string{string(job.Finished), string(job.Failed), string(job.Cancelled)}
	}
	q := api.Query{Select: sel, Over: true}
	if q.Since, err = optionalWhen("since", o.since, now); err != nil {
		return err
	}
	switch {
	case o.json:
		q.Newest, q.Limit = true, max(o.limit, 0)
		return rawJobs(ctx, s, q)
	case o.limit < 0:
		o.limit = shownByDefault
	}
	q.Arrays = !o.tasks && !namesTask(args)
	q.Batches = q.Arrays && foldsFiles(sel)
	return o.draw(ctx, s, q, now)
}

func (o *historyOptions) draw(ctx context.Context, s *session.Session, q api.Query, now time.Time) error {
	list, err := (&listOptions{}).fetch(ctx, s, q, o.limit)
	if err != nil {
		return err
	}
	if len(list.rows) == 0 {
		_, err := fmt.Fprintln(s.Out, "no jobs have ended")
		return err
	}
	if err := s.Screen.Draw(historyTable(list.rows, now)); err != nil {
		return err
	}
	if more := list.more(); more != "" {
		fmt.Fprintf(s.Out, "… %s (berth history --limit 0, or narrow with --since, --user, --name)\n", more)
	}
	return nil
}

func historyTable(rows []render.Row, now time.Time) *text.Table {
	t := &text.Table{
		Columns: []text.Column{
			{Title: "ID"}, {Title: "NAME"}, {Title: "USER"}, {Title: "STATE"}, {Title: "GPUS"}, {Title: "VRAM/DECL", Shy: true},
			{Title: "RAN", Right: true}, {Title: "ENDED"}, {Title: "REASON", Shy: true}, {Title: "COMMAND", Shy: true},
		},
		Concessions: []text.Concession{
			{Title: "COMMAND", To: 20}, {Title: "NAME", To: 16}, {Title: "COMMAND", To: 0}, {Title: "REASON", To: 20}, {Title: "NAME", To: 10}, {Title: "USER", To: 6},
			{Title: "GPUS", To: 5}, {Title: "REASON", To: 12}, {Title: "GPUS", To: 0}, {Title: "VRAM/DECL", To: 0}, {Title: "USER", To: 0}, {Title: "NAME", To: 6}, {Title: "REASON", To: 0},
		},
	}
	for i := range rows {
		v := rows[i].View
		ended := "-"
		if v.EndedAt != nil {
			ended = render.Moment(*v.EndedAt, now)
		}
		t.Add(text.Cell{Text: v.ID}, text.Cell{Text: v.Name}, text.Cell{Text: v.User}, render.StateCell(&rows[i], now), text.Cell{Text: render.RowGPUs(&rows[i])},
			text.Cell{Text: render.VRAMText(v)}, text.Cell{Text: render.TimeText(v, now)}, text.Cell{Text: ended}, text.Cell{Text: endedText(&v)}, text.Cell{Text: render.CommandText(v)})
	}
	return t
}

// endedText is why a job ended like this, and what of its earlier attempts was in vain.
func endedText(v *job.View) string {
	why := render.ReasonText(*v)
	if v.Checkpoints == nil {
		return why
	}
	lost := text.OfSeconds(v.Checkpoints.LostS)
	if lost < time.Second {
		return why
	}
	if why != "" {
		why += "; "
	}
	return why + text.Span(lost) + " was not saved"
}
