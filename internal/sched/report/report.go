// Package report shows the results of replays: as a table for a terminal, as
// CSV, and as an HTML page with charts that loads nothing from the network.
//
// It knows the workloads and replays of sim, but no store, daemon or file. It
// escapes every text that comes from a trace.
package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/internal/sched/sim"
	"berth/internal/text"
)

// Report is one workload under several policies.
type Report struct {
	Work    *sim.Workload
	Replays []sim.Replayed
	Park    *sim.Parking // how jobs are parked; nil: they are not
	Asked   string       // the flags that change the figures, such as "--park-cost 20"
}

// Machine describes a machine in words.
func Machine(m sim.Machine) string {
	return fmt.Sprintf("%s of %s", text.Count(m.GPUs, "GPU"), gib(m.VRAMMiB))
}

// Table shows the policies side by side, as many as fit into the columns of the
// terminal, and the others below; 0: no limit.
func (r *Report) Table(columns int, colour bool) string {
	b := &strings.Builder{}
	lines := []string{text.Line(r.title())}
	if seeds := r.Replays[0].Seeds; seeds > 0 {
		lines = append(lines, seedsText(seeds))
	}
	for _, line := range lines {
		if columns > 0 {
			line = text.Cut(line, columns)
		}
		fmt.Fprintln(b, line)
	}
	sideBySide(b, r.Replays, columns, colour)
	return b.String()
}

func sideBySide(b *strings.Builder, replays []sim.Replayed, columns int, colour bool) {
	t := figureTable(replays)
	if n := len(replays); n > 1 && columns > 0 && t.Width() > columns {
		sideBySide(b, replays[:(n+1)/2], columns, colour)
		sideBySide(b, replays[(n+1)/2:], columns, colour)
		return
	}
	b.WriteString("\n" + t.Draw(columns, colour))
}

func figureTable(replays []sim.Replayed) *text.Table {
	t := &text.Table{Columns: []text.Column{{}}}
	for i := range replays {
		t.Columns = append(t.Columns, text.Column{Title: replays[i].Policy, Right: true})
	}
	t.Columns = append(t.Columns, text.Column{Title: "lower bound", Right: true})
	for _, row := range rowsOf(replays) {
		words := []string{row.Title}
		for _, cell := range row.Cells {
			words = append(words, cell.Text)
		}
		t.Row(append(words, row.Bound)...)
	}
	return t
}

// title says what was replayed, and on which machine.
func (r *Report) title() string {
	m := &r.Replays[0].Metrics
	of := ""
	if m.Users > 1 {
		of = fmt.Sprintf(" of %d users", m.Users)
	}
	return fmt.Sprintf("%s: %s%s on %s", r.Work.Source, text.CountGrouped(m.Jobs, "job"), of, Machine(r.Work.Machine))
}

// seedsText says that the figures are those of perturbed copies.
func seedsText(seeds int) string {
	if seeds == 1 {
		return "figures of one perturbed copy"
	}
	return fmt.Sprintf("means of %d perturbed copies, ± half the 95 %% confidence interval", seeds)
}

// Before are remarks on a workload that a user should see before the replay.
func Before(w *sim.Workload) (remarks []string) {
	if n := w.CardsLeftOut; n > 0 {
		remarks = append(remarks, fmt.Sprintf("%s left out: paused or unhealthy, and without a job", text.CountGrouped(n, "GPU")))
	}
	if assumed := durationText(w); assumed != "" {
		remarks = append(remarks, assumed)
	}
	if w.LeftOut > 0 {
		remarks = append(remarks, fmt.Sprintf("%s left out: %s", text.CountGrouped(w.LeftOut, "job"), leftOutText(w)))
	}
	return remarks
}

func leftOutText(w *sim.Workload) string {
	switch {
	case w.Origin == sim.OfHistory:
		return "never started, or had no GPU"
	case w.KeptOff > 0 && w.Paused > 0:
		return "without a GPU, of paused groups, or for GPUs that are paused or unhealthy"
	case w.KeptOff > 0:
		return "without a GPU, or for GPUs that are paused or unhealthy"
	case w.Paused > 0:
		return "without a GPU, or of paused groups"
	}
	return "without a GPU"
}

// durationText says which duration queued jobs without an estimate are assumed
// to have; empty: there are none.
func durationText(w *sim.Workload) string {
	if w.Unknown == 0 {
		return ""
	}
	return fmt.Sprintf("%s without an estimate, assumed to run for %s", text.CountGrouped(w.Unknown, "queued job"), text.Span(w.Typical))
}

// assumedText says what the replay of a snapshot assumes.
func assumedText(w *sim.Workload) string {
	if w.Origin != sim.OfSnapshot {
		return ""
	}
	assumed := fmt.Sprintf(" It continues from the snapshot of %s: running jobs end as estimated, and no new jobs arrive.", w.TakenAt.Format(time.DateTime))
	if duration := durationText(w); duration != "" {
		assumed += " " + duration + "."
	}
	return assumed
}

// After names the jobs that are in no figure: those larger than the machine, and
// those that wait forever for memory of external processes.
func (r *Report) After() (remarks []string) {
	w := r.Work
	if count, first := which(&r.Replays[0].Result, func(f *sim.Fate) bool { return f.Refused != nil }); count > 0 {
		remarks = append(remarks, fmt.Sprintf("%s can never run on %s and %s not counted; %s: %s", text.CountGrouped(count, "job"), Machine(w.Machine),
			text.Verb(count, "are"), w.Places[first], r.Replays[0].Result.Fates[first].Refused))
	}
	for i := range r.Replays {
		if count, first := which(&r.Replays[i].Result, func(f *sim.Fate) bool { return f.Unfinished }); count > 0 {
			remarks = append(remarks, fmt.Sprintf("under %s, %s still %s for memory of external processes and %s not counted, such as %s",
				r.Replays[i].Policy, text.CountGrouped(count, "job"), text.Verb(count, "wait"), text.Verb(count, "are"), w.Places[first]))
		}
	}
	return remarks
}

// which counts the jobs with such a fate and finds the first.
func which(res *sim.Result, such func(*sim.Fate) bool) (count, first int) {
	first = slices.IndexFunc(res.Fates, func(f sim.Fate) bool { return such(&f) })
	for i := max(first, 0); i < len(res.Fates); i++ {
		if such(&res.Fates[i]) {
			count++
		}
	}
	return count, first
}
