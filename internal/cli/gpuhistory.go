package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/cli/render"
	"berth/internal/cli/session"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// gpuHistoryOptions are the flags of `berth gpu history`.
type gpuHistoryOptions struct {
	since string
	limit int
	json  bool
}

// maxCardEvents is the most that a daemon returns at once.
const maxCardEvents = 1000

func newGPUHistory() *cobra.Command {
	o := &gpuHistoryOptions{}
	cmd := &cobra.Command{
		Use:   "history [N]",
		Short: "Show events of the GPUs, newest first",
		Long: `Show the events of all GPUs or of one, newest first: changes of health, pauses,
and the actions of administrators, with their names.`,
		Example: `  berth gpu history
  berth gpu history 3 --since 30d
  berth gpu history --json | jq '.[] | select(.gpu == 3)'

Exit status: 0 shown; 1 refused, or no daemon; 2 bad usage; 130 interrupted.`,
		RunE: session.Verb(func(ctx context.Context, s *session.Session, args []string) error {
			return o.run(ctx, s, args, time.Now())
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&o.since, "since", "7d", "only events since then: 2h (ago), 7d, 2026-03-01")
	flags.IntVarP(&o.limit, "limit", "n", 50, "show at most this many events")
	flags.BoolVar(&o.json, "json", false, "print a JSON array of events")
	flags.Bool("no-color", false, "no colours (also: NO_COLOR)")
	return cmd
}

func (o *gpuHistoryOptions) run(ctx context.Context, s *session.Session, args []string, now time.Time) error {
	q := api.CardQuery{Limit: o.limit}
	if o.limit < 1 || o.limit > maxCardEvents {
		return problem.Newf(problem.Invalid, "berth gpu history -n 50", "--limit: expected 1 to %d, found %d", maxCardEvents, o.limit)
	}
	if len(args) > 1 {
		return problem.Newf(problem.Invalid, "berth gpu history 3", "expected one GPU, found %d", len(args))
	}
	for _, arg := range args {
		index, err := strconv.Atoi(strings.TrimPrefix(arg, "gpu"))
		if err != nil || index < 0 || index > 4096 {
			return problem.Newf(problem.Invalid, "berth gpus lists the GPUs", "expected the number of a GPU, found %q", arg)
		}
		q.GPU = &index
	}
	var err error
	if q.Since, err = optionalWhen("since", o.since, now); err != nil {
		return err
	}
	events, err := api.Call(ctx, s.Client, api.ListCardEvents, q)
	if err != nil && !s.NoJobsYet(err) {
		return err
	}
	if o.json {
		return printJSON(s.Out, notNull(events))
	}
	if len(events) == 0 {
		text := "no events"
		if q.GPU != nil {
			text = "no events of GPU " + strconv.Itoa(*q.GPU)
		}
		if q.Since != nil {
			text += " since " + render.Moment(*q.Since, now)
		}
		_, err := fmt.Fprintln(s.Out, text)
		return err
	}
	return drawCardEvents(s.Screen, events, now)
}

func drawCardEvents(s render.Screen, events []api.CardEvent, now time.Time) error {
	t := &text.Table{
		Columns:     []text.Column{{Title: "TIME"}, {Title: "EVENT"}},
		Concessions: []text.Concession{{Title: "EVENT", To: 20}},
	}
	for _, ev := range events {
		t.Row(render.Moment(ev.At, now), ev.Text)
	}
	return s.Draw(t)
}
