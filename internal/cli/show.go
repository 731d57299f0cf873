package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/cli/render"
	"berth/internal/cli/session"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/text"
)

// showOptions are the flags of `berth show`.
type showOptions struct {
	json, plot, csv bool
}

func newShow() *cobra.Command {
	o := &showOptions{}
	cmd := &cobra.Command{
		Use:   "show JOB",
		Short: "Show everything about one job",
		Long: `Show everything about one job. --plot adds a chart of its memory over time,
--csv prints what was measured instead.`,
		Example: `  berth show 17
  berth show @          your last job
  berth show 18         an array: its tasks by state, failures, GPU time
  berth show 18_3       one of its tasks
  berth show 17 --plot
  berth show 17 --csv > memory.csv
  berth show 17 --json

Exit status: 0 shown; 1 no such job, or no daemon; 2 bad usage; 130 interrupted.`,
		Args:              exactlyOne,
		ValidArgsFunction: completeEndedToo,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if o.csv && (o.json || o.plot) {
				return badFlag(cmd, "csv", errors.New("expected it alone, found --json or --plot too"))
			}
			return nil
		},
		RunE: session.Verb(func(ctx context.Context, s *session.Session, args []string) error {
			return o.run(ctx, s, args[0], time.Now())
		}),
	}
	session.QueueFlags(cmd)
	cmd.Flags().BoolVar(&o.plot, "plot", false, "draw its memory over time; with --json: add what was measured as samples")
	cmd.Flags().BoolVar(&o.csv, "csv", false, "print only what was measured over time, as CSV")
	cmd.Flags().BoolVar(&o.json, "json", false, "print the job as a JSON object")
	cmd.Flags().Bool("no-color", false, "no colours (also: NO_COLOR)")
	return cmd
}

func (o *showOptions) run(ctx context.Context, s *session.Session, id string, now time.Time) error {
	var samples api.Samples
	if o.csv || o.plot {
		var err error
		if samples, err = api.Call(ctx, s.Client, api.GetJobSamples, api.JobSamplesQuery{JobID: api.JobID{ID: id}}); err != nil {
			return err
		}
	}
	if o.csv {
		return csvSamples(s.Out, samples)
	}
	detail, err := api.Call(ctx, s.Client, api.GetJob, api.JobID{ID: id})
	switch {
	case err != nil:
		return err
	case o.json && o.plot:
		return printJSON(s.Out, struct {
			api.Detail
			Samples api.Samples `json:"samples"`
		}{detail, samples})
	case o.json:
		return printJSON(s.Out, detail)
	case detail.Tasks != nil:
		return showArray(s.Screen, detail, now)
	}
	if err := showJob(s.Screen, detail, now); err != nil || !o.plot {
		return err
	}
	return plotSamples(s.Screen, samples, !render.SpeaksUTF8(os.Getenv), now)
}

func showJob(s render.Screen, d api.Detail, now time.Time) error {
	f := &render.Facts{}
	if err := showTitle(s, "job "+d.ID, d, stateText(d)); err != nil {
		return err
	}
	if d.Reason != nil {
		f.Add("reason", *d.Reason)
	}
	addSpec(f, d)
	f.Add("array", d.Array)
	f.Add("expected time", render.RunWords(d.ExpectedRun))
	f.Add("expected VRAM", render.VRAMWords(d.ExpectedVRAM))
	f.Add("GPUs", text.Numbers(d.GPUIDs))
	if d.Slurm != nil {
		f.Add("Slurm's id", render.StringOrNone(d.Slurm.ID))
		f.Add("node", d.Slurm.Where())
	}
	f.Add("peak VRAM", peaksText(d.View))
	if d.AvgUtil != nil {
		f.Add("utilisation", fmt.Sprintf("%.0f %%", *d.AvgUtil))
	}
	showTimes(f, d, now)
	showRest(f, d)
	if err := f.Draw(s); err != nil {
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

// showTitle prints the title.
func showTitle(s render.Screen, title string, d api.Detail, state string) error {
	if d.Name != "job"+d.ID {
		title += " (" + d.Name + ")"
	}
	_, err := fmt.Fprintf(s.Out, "%s  %s\n", s.Painted(text.Bold, text.Line(title)), s.Painted(render.StatePaint(d.State), text.Line(state)))
	return err
}

// addSpec adds what a job is and requests.
func addSpec(f *render.Facts, d api.Detail) {
	f.Add("user", d.User)
	if d.Command != nil {
		f.Add("command", *d.Command)
	}
	f.Add("directory", d.Dir)
	f.Add("snapshot", snapshotText(d.Snapshot))
	f.Add("requests", requestsText(d))
}

// showArray sums up an array: its tasks by state, what they share, those that
// failed and those that have not ended.
func showArray(s render.Screen, d api.Detail, now time.Time) error {
	f := &render.Facts{}
	if err := showTitle(s, "array "+d.ID, d, d.Tasks.String()); err != nil {
		return err
	}
	f.Add("waits because", d.Tasks.Reason)
	addSpec(f, d)
	f.Add("GPU time", fmt.Sprintf("%.2f GPU-hours", d.Tasks.GPUHours))
	showTimes(f, d, now)
	showRest(f, d)
	if err := f.Draw(s); err != nil {
		return err
	}
	if failed := d.Tasks.Counts[string(job.Failed)]; failed > 0 {
		fmt.Fprintf(s.Out, "\n%s\n", s.Painted(text.Bold, someOf("failed", len(d.Tasks.Failed), failed)))
		for _, v := range d.Tasks.Failed {
			fmt.Fprintln(s.Out, s.Fit(text.Line(render.EndText(v))))
		}
	}
	open := 0
	for _, state := range []job.State{job.Running, job.Parked, job.Queued} {
		open += d.Tasks.Counts[string(state)]
	}
	if open == 0 || len(d.Tasks.Unfinished) == 0 {
		return nil
	}
	fmt.Fprintf(s.Out, "\n%s\n", s.Painted(text.Bold, someOf("unfinished", len(d.Tasks.Unfinished), open)))
	columns := []string{"id", "state", "gpus", "time", "reason"}
	if !slices.ContainsFunc(d.Tasks.Unfinished, func(v job.View) bool { return v.Reason != nil && *v.Reason != d.Tasks.Reason }) {
		columns = columns[:4] // it is above
	}
	shown, err := render.ChooseColumns(columns, nil)
	if err != nil {
		return err
	}
	return s.Draw(render.JobTable(render.Fold(d.Tasks.Unfinished, api.JobPage{}), shown, false, now))
}

// someOf heads a part of a list: "failed (first 10 of 31)".
func someOf(what string, shown, all int) string {
	if shown < all {
		return fmt.Sprintf("%s (first %d of %s)", what, shown, text.Grouped(all))
	}
	return what
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
		written += ", stopping (" + plain(stopWords, d.Stopping) + ")"
	case render.ParkingText(d.View) != "":
		written += ", " + render.ParkingText(d.View)
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
		memory := text.GiB(*d.VRAMMiB) + " GiB"
		if d.GPUs > 1 {
			memory += " each"
		}
		parts = append(parts, memory)
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

func showTimes(f *render.Facts, d api.Detail, now time.Time) {
	at := func(name string, t *time.Time) {
		if t != nil {
			f.Add(name, fmt.Sprintf("%s (%s ago)", render.Moment(*t, now), text.Span(now.Sub(*t))))
		}
	}
	at("submitted", d.SubmittedAt)
	if d.NotBefore != nil && d.State == job.Queued {
		f.Add("not before", render.Moment(*d.NotBefore, now))
	}
	at("started", d.StartedAt)
	at("idle since", d.IdleSince)
	at("ended", d.EndedAt)
	if d.StartedAt != nil && d.State != job.Queued {
		f.Add("ran for", render.TimeText(d.View, now))
	}
	at("parked", d.ParkedSince)
	if d.HostMiB != nil {
		f.Add("saved", text.GiB(*d.HostMiB)+" GiB in the host's memory")
	}
	if d.ParkRefused != nil {
		f.Add("parking", *d.ParkRefused)
	}
	if d.Parkings > 0 && (d.ParkedSince == nil || d.Parkings > 1) {
		f.Add("was parked", fmt.Sprintf("%s, for %s", text.Count(d.Parkings, "time"), text.Span(text.OfSeconds(d.ParkedS))))
	}
	switch k := d.Checkpoints; {
	case k != nil && k.RanS > 0:
		f.Add("earlier runs", earlierRuns(k, now))
	case k != nil && k.SavedAt != nil:
		f.Add("last saved", render.Moment(*k.SavedAt, now))
	}
}

func showRest(f *render.Facts, d api.Detail) {
	var after []string
	for together := range job.Alternatives(d.After) {
		var words []string
		for _, dep := range together {
			words = append(words, dep.Job+dep.Name+" to "+dep.Words())
		}
		after = append(after, strings.Join(words, ", "))
	}
	f.Add("depends on", strings.Join(after, "; or "))
	if d.Attempt > 1 || d.RetriesUsed > 0 || d.Requeues > 0 || d.Preemptions > 0 {
		f.Add("attempt", attemptText(d))
	}
	f.Add("memory use", plain(verdictWords, d.Verdict))
	for _, key := range slices.Sorted(maps.Keys(d.Settings)) {
		lines := []string{d.Settings[key]}
		if key == "notify" {
			lines = strings.Split(d.Settings[key], "\n") // a rule each
		}
		for _, line := range lines {
			f.Add(plain(settingWords, key), line)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Env)) {
		f.Add("variable "+name, d.Env[name])
	}
	if d.TextDropped {
		f.Add("text", "no longer kept beyond the beginning of the command, so the job cannot be requeued (retention.history_text)")
	}
	if d.Log != nil {
		written := *d.Log
		if d.LogDropped > 0 {
			written += fmt.Sprintf(" (%s bytes removed from its middle, to stay within log_size)", text.Grouped(int(d.LogDropped)))
		}
		f.Add("log", written)
	}
	host, _ := os.Hostname()
	f.Add("errors", jobfile.ErrorFile(d.Settings["setup"], &d.View, host))
}

// What show calls keys whose own words say little. Any other key is its own word.
var (
	settingWords = map[string]string{
		"allow": "allowed GPUs", "array_limit": "at a time", "cap": "memory limit", "cpus": "CPUs", "export": "exports", "grace": "grace period",
		"ids": "exact GPUs", "inject_gpus": "GPU flag", "mem": "host memory", "on_timeout": "at time limit", "no_park": "no parking", "pin": "CPUs near GPUs", "to": "runs on", "slurm": "Slurm options", "pty": "terminal",
		"requeue": "requeue after reboot", "retry_on": "retries after", "type": "GPU type",
	}
	stopWords    = map[string]string{"aside": "preempted", "cancel": "cancelled", "timeout": "time limit", "interrupt": "berth stops", "overuse": "too much memory"}
	verdictWords = map[string]string{"within": "as declared", "under-declared": "more than declared", "over-declared": "much less than declared"}
	eventWords   = map[string]string{"set_aside": "preempted", "gpus_unreadable": "GPUs unreadable", "gpus_readable": "GPUs readable", "exceeds": "uses more than declared", "adopted": "found again after berth restarted"}
)

func plain(words map[string]string, key string) string {
	return cmp.Or(words[key], strings.ReplaceAll(key, "_", " "))
}

// earlierRuns sums up the earlier attempts of a job that saves its own work.
func earlierRuns(k *job.CheckpointsView, now time.Time) string {
	words := text.Span(text.OfSeconds(k.RanS))
	if lost := text.OfSeconds(k.LostS); lost >= time.Second {
		words += ", of which " + text.Span(lost) + " was not saved"
	}
	if k.SavedAt != nil {
		words += "; last saved " + render.Moment(*k.SavedAt, now)
	}
	return words
}

// attemptText counts the attempts, and says why berth made more than one. What a
// user requeued is among the events.
func attemptText(d api.Detail) string {
	var whys []string
	for _, why := range []struct {
		n    int
		many string
	}{{d.RetriesUsed, "retried"}, {d.Requeues, "requeued"}, {d.Preemptions, "preempted"}} {
		if why.n > 0 {
			whys = append(whys, why.many+" "+text.CountGrouped(why.n, "time"))
		}
	}
	if len(whys) == 0 {
		return strconv.Itoa(d.Attempt)
	}
	return fmt.Sprintf("%d (%s)", d.Attempt, strings.Join(whys, ", "))
}

func showEvents(s render.Screen, events []api.Event, now time.Time) error {
	if len(events) == 0 {
		return nil
	}
	fmt.Fprintln(s.Out)
	for _, e := range events {
		line := render.Moment(e.Time, now) + "  "
		switch what := plain(eventWords, string(e.Kind)); {
		case e.Text == "":
			line += what
		case e.Kind == job.EventStopping:
			line += what + ": " + plain(stopWords, e.Text)
		case strings.HasPrefix(e.Text, what):
			line += e.Text
		default:
			line += what + ": " + e.Text
		}
		if _, err := fmt.Fprintln(s.Out, text.Line(line)); err != nil {
			return err
		}
	}
	return nil
}
