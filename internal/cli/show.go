package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/text"
)

func newShow() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "show JOB",
		Short: "Show everything about one job",
		Example: `  berth show 17
  berth show @          your last job
  berth show 17_3       one task of an array
  berth show 17 --json

Exit status: 0 shown; 1 no such job, or no daemon; 2 bad usage; 130 interrupted.`,
		Args:              exactlyOne,
		ValidArgsFunction: completeEndedToo,
		RunE: verb(func(ctx context.Context, s *session, args []string) error {
			detail, err := s.client.Job(ctx, args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(s.out, detail)
			}
			return showJob(s.screen, detail, time.Now())
		}),
	}
	queueFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the job as a JSON object")
	cmd.Flags().Bool("no-color", false, "no colours (also: NO_COLOR)")
	return cmd
}

// facts is a block of labelled values, one per line.
type facts struct {
	names, values []string
}

// add skips an empty value.
func (f *facts) add(name, value string) {
	if value != "" {
		f.names = append(f.names, name)
		f.values = append(f.values, text.Line(value))
	}
}

func (f *facts) draw(s screen) error {
	widest := 0
	for _, name := range f.names {
		widest = max(widest, text.Width(name))
	}
	for i, name := range f.names {
		blanks := strings.Repeat(" ", widest-text.Width(name)+text.Gap)
		if _, err := fmt.Fprintf(s.out, "%s%s%s\n", s.painted(text.Dim, name), blanks, f.values[i]); err != nil {
			return err
		}
	}
	return nil
}

func showJob(s screen, d api.Detail, now time.Time) error {
	title := "job " + d.ID
	if d.Name != "job"+d.ID {
		title += " (" + d.Name + ")"
	}
	if _, err := fmt.Fprintf(s.out, "%s  %s\n", s.painted(text.Bold, text.Line(title)), s.painted(statePaint(d.State), stateText(d))); err != nil {
		return err
	}
	f := &facts{}
	if d.Reason != nil {
		f.add("reason", *d.Reason)
	}
	f.add("user", d.User)
	if d.Command != nil {
		f.add("command", *d.Command)
	}
	f.add("directory", d.Dir)
	f.add("snapshot", snapshotText(d.Snapshot))
	f.add("array", d.Array)
	f.add("requests", requestsText(d))
	f.add("expected time", runWords(d.ExpectedRun))
	f.add("expected VRAM", vramWords(d.ExpectedVRAM))
	f.add("GPUs", text.Numbers(d.GPUIDs))
	f.add("peak VRAM", peaksText(d.View))
	if d.AvgUtil != nil {
		f.add("utilisation", fmt.Sprintf("%.0f %%", *d.AvgUtil))
	}
	showTimes(f, d, now)
	showRest(f, d)
	if err := f.draw(s); err != nil {
		return err
	}
	return showEvents(s, d.Events, now)
}

// snapshotText is the copy of the code that a job runs, and what it is a copy of.
func snapshotText(s *job.Snapshot) string {
	switch {
	case s == nil:
		return ""
	case s.Commit == "":
		return fmt.Sprintf("%s (copy of %s)", s.Path, s.Tree)
	case s.Dirty:
		return fmt.Sprintf("%s (commit %.12s with uncommitted changes)", s.Path, s.Commit)
	}
	return fmt.Sprintf("%s (commit %.12s)", s.Path, s.Commit)
}

// stateText is a job's state, with its outcome or its place in the queue.
func stateText(d api.Detail) string {
	written := string(d.State)
	switch {
	case d.Outcome != nil:
		written += ", " + string(*d.Outcome)
	case d.State == job.Queued && d.Held:
		written += ", held"
	case d.State == job.Queued && d.Position > 0:
		written += ", position " + text.Grouped(d.Position)
	case d.Stopping != "":
		written += ", stopping (" + d.Stopping + ")"
	}
	return text.Line(written)
}

func requestsText(d api.Detail) string {
	parts := []string{text.CountGrouped(d.GPUs, "GPU")}
	switch {
	case d.GPUs == 0:
		parts[0] = "no GPU"
	case d.Share != nil:
		parts[0] = strconv.FormatFloat(*d.Share, 'g', 3, 64) + " of a GPU"
	}
	if d.VRAMMiB != nil {
		parts = append(parts, text.GiB(*d.VRAMMiB)+" GiB each")
	}
	if d.TimeLimitS > 0 {
		parts = append(parts, "time limit "+text.Span(time.Duration(d.TimeLimitS*float64(time.Second))))
	}
	if d.Priority != 0 {
		parts = append(parts, "priority "+strconv.Itoa(d.Priority))
	}
	return strings.Join(parts, ", ")
}

// peaksText is the peak memory use on each GPU, in the order of the GPUs.
func peaksText(v job.View) string {
	var parts []string
	for _, card := range slices.SortedFunc(maps.Keys(v.PeakVRAMMiB), compareCards) {
		parts = append(parts, fmt.Sprintf("gpu%s %s GiB", card, text.GiB(v.PeakVRAMMiB[card])))
	}
	return strings.Join(parts, ", ")
}

func compareCards(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

func showTimes(f *facts, d api.Detail, now time.Time) {
	at := func(name string, t *time.Time) {
		if t != nil {
			f.add(name, fmt.Sprintf("%s (%s ago)", moment(*t, now), text.Span(now.Sub(*t))))
		}
	}
	at("submitted", d.SubmittedAt)
	if d.NotBefore != nil && d.State == job.Queued {
		f.add("not before", moment(*d.NotBefore, now))
	}
	at("started", d.StartedAt)
	at("idle since", d.IdleSince)
	at("ended", d.EndedAt)
	if d.StartedAt != nil && d.State != job.Queued {
		f.add("ran for", timeText(d.View, now))
	}
}

func showRest(f *facts, d api.Detail) {
	var after []string
	for _, dep := range d.After {
		after = append(after, dep.Job+dep.Name+":"+string(dep.On))
	}
	f.add("after", strings.Join(after, ","))
	if d.Attempt > 1 || d.RetriesUsed > 0 || d.Requeues > 0 || d.Preemptions > 0 {
		f.add("attempt", attemptText(d))
	}
	f.add("verdict", d.Verdict)
	for _, key := range slices.Sorted(maps.Keys(d.Settings)) {
		f.add(key, d.Settings[key])
	}
	for _, name := range slices.Sorted(maps.Keys(d.Env)) {
		f.add("env."+name, d.Env[name])
	}
	if d.Log != nil {
		written := *d.Log
		if d.LogDropped > 0 {
			written += fmt.Sprintf(" (%s bytes removed from its middle, to stay within log_size)", text.Grouped(int(d.LogDropped)))
		}
		f.add("log", written)
	}
}

// attemptText counts the attempts, and says why there was more than one.
func attemptText(d api.Detail) string {
	written := fmt.Sprintf("%d (%s, %s", d.Attempt, retriesText(d.RetriesUsed), text.CountGrouped(d.Requeues, "requeue"))
	if d.Preemptions > 0 {
		written += ", preempted " + text.CountGrouped(d.Preemptions, "time")
	}
	return written + ")"
}

func retriesText(n int) string {
	if n == 1 {
		return "1 retry"
	}
	return text.Grouped(n) + " retries"
}

func showEvents(s screen, events []api.Event, now time.Time) error {
	if len(events) == 0 {
		return nil
	}
	fmt.Fprintln(s.out)
	for _, e := range events {
		line := moment(e.Time, now) + "  " + string(e.Kind)
		if e.Text != "" {
			line += ": " + e.Text
		}
		if _, err := fmt.Fprintln(s.out, text.Line(line)); err != nil {
			return err
		}
	}
	return nil
}
