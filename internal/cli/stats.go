package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/cli/render"
	"berth/internal/cli/session"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// statsOptions are the flags of `berth stats`.
type statsOptions struct {
	since, until, user string
	json               bool
}

func newStats() *cobra.Command {
	o := &statsOptions{}
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Summarise waits, GPU allocation and GPU-hours",
		Long: `Summarise the jobs that ended in a period: how long they waited and ran, and how
much GPU and CPU time was allocated, in all and by user and day.`,
		Example: `  berth stats
  berth stats --since 30d --user ann
  berth stats --since 2026-03-01 --until 2026-04-01 --json

Exit status: 0 shown; 1 refused, or no daemon; 2 bad usage; 130 interrupted.`,
		Args: noWords,
		RunE: session.Verb(func(ctx context.Context, s *session.Session, _ []string) error {
			return o.run(ctx, s, time.Now())
		}),
	}
	session.QueueFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.since, "since", "7d", "start of the period: 24h (ago), 30d, 2026-03-01")
	flags.StringVar(&o.until, "until", "", "end of the period (default now)")
	flags.StringVarP(&o.user, "user", "u", "", "only jobs of this user")
	flags.BoolVar(&o.json, "json", false, "print a JSON object")
	flags.Bool("no-color", false, "no colours (also: NO_COLOR)")
	return cmd
}

func (o *statsOptions) run(ctx context.Context, s *session.Session, now time.Time) error {
	q := api.StatsQuery{User: o.user}
	var err error
	if q.Since, err = optionalWhen("since", o.since, now); err != nil {
		return err
	}
	if q.Until, err = optionalWhen("until", o.until, now); err != nil {
		return err
	}
	if q.Until != nil && q.Since != nil && !q.Since.Before(*q.Until) {
		return problem.Newf(problem.Invalid, "berth stats --since 30d --until 7d", "expected --since before --until")
	}
	stats, err := api.Call(ctx, s.Client, api.GetStats, q)
	if s.NoJobsYet(err) {
		stats, err = api.Stats{Since: *q.Since, Until: now, Users: []api.StatsLine{}, Days: []api.StatsLine{}}, nil
		if q.Until != nil {
			stats.Until = *q.Until
		}
	}
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(s.Out, stats)
	}
	return drawStats(s.Screen, stats)
}

func drawStats(s render.Screen, stats api.Stats) error {
	fmt.Fprintf(s.Out, "%s to %s, %s\n", stats.Since.Local().Format("2006-01-02 15:04"), stats.Until.Local().Format("2006-01-02 15:04"), text.CountGrouped(stats.GPUs, "GPU"))
	f := &render.Facts{}
	f.Add("jobs", fmt.Sprintf("%s: %s finished, %s failed, %s cancelled", text.Grouped(stats.All.Jobs), text.Grouped(stats.All.Finished), text.Grouped(stats.All.Failed), text.Grouped(stats.All.Cancelled)))
	f.Add("GPU-hours", fmt.Sprintf("%.1f", stats.GPUHours))
	if stats.CPUHours > 0 {
		f.Add("CPU-hours", fmt.Sprintf("%.1f", stats.CPUHours))
	}
	if stats.Util != nil {
		counted := "of the time"
		if stats.UtilSince != nil {
			counted = "since the first submission, " + stats.UtilSince.Local().Format("2006-01-02 15:04")
		}
		f.Add("GPU allocation", fmt.Sprintf("%.0f %% %s", *stats.Util*100, counted))
	}
	if stats.AvgUtil != nil {
		f.Add("GPU utilisation", fmt.Sprintf("%.0f %% while allocated", *stats.AvgUtil))
	}
	if stats.All.WaitP50S != nil {
		f.Add("wait", fmt.Sprintf("p50 %s, p95 %s, max %s", render.SpanOfSeconds(stats.All.WaitP50S), render.SpanOfSeconds(stats.All.WaitP95S), render.SpanOfSeconds(stats.All.WaitMaxS)))
	}
	if n := stats.All.Parkings; n > 0 {
		f.Add("parked", fmt.Sprintf("%s, for %s in all", text.CountGrouped(n, "time"), text.Span(text.OfSeconds(stats.All.ParkedS))))
	}
	if lost := stats.All.LostS; lost > 0 {
		f.Add("repeated", text.Span(text.OfSeconds(lost))+" of work that was not saved")
	}
	if err := f.Draw(s); err != nil {
		return err
	}
	for _, part := range []struct {
		title string
		lines []api.StatsLine
	}{{"USER", stats.Users}, {"DAY", stats.Days}} {
		if len(part.lines) == 0 {
			continue
		}
		fmt.Fprintln(s.Out)
		if err := s.Draw(statsTable(part.title, part.lines)); err != nil {
			return err
		}
	}
	return nil
}

func statsTable(title string, lines []api.StatsLine) *text.Table {
	t := &text.Table{
		Columns: []text.Column{
			{Title: title}, {Title: "JOBS", Right: true}, {Title: "FAILED", Right: true}, {Title: "CANCELLED", Right: true},
			{Title: "GPU-H", Right: true}, {Title: "CPU-H", Right: true}, {Title: "WAIT P50", Right: true}, {Title: "P95", Right: true}, {Title: "MAX", Right: true},
			{Title: "RUN MEAN", Right: true}, {Title: "UTIL", Right: true},
		},
		Concessions: []text.Concession{{Title: title, To: 10}, {Title: "CANCELLED", To: 0}, {Title: "MAX", To: 0}, {Title: "CPU-H", To: 0}, {Title: "RUN MEAN", To: 0}, {Title: "UTIL", To: 0}, {Title: "FAILED", To: 0}},
	}
	for _, l := range lines {
		util := "-"
		if l.AvgUtil != nil {
			util = fmt.Sprintf("%.0f%%", *l.AvgUtil)
		}
		t.Add(text.Cell{Text: l.Key}, text.Cell{Text: text.Grouped(l.Jobs)}, text.Cell{Text: text.Grouped(l.Failed)}, text.Cell{Text: text.Grouped(l.Cancelled)},
			text.Cell{Text: fmt.Sprintf("%.1f", l.GPUHours)}, text.Cell{Text: fmt.Sprintf("%.1f", l.CPUHours)}, text.Cell{Text: render.SpanOfSeconds(l.WaitP50S)}, text.Cell{Text: render.SpanOfSeconds(l.WaitP95S)},
			text.Cell{Text: render.SpanOfSeconds(l.WaitMaxS)}, text.Cell{Text: render.SpanOfSeconds(l.RunMeanS)}, text.Cell{Text: util})
	}
	return t
}
