// Package report shows what replays came to: as a table for a terminal, as CSV,
// and as a page with charts that asks nothing of anybody.
//
// It knows what sim says of a workload and of its replays, and nothing of a
// store, a daemon or a file. Whatever it takes from a trace, it escapes.
package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/internal/sim"
	"berth/internal/text"
)

// Report is one workload under several policies.
type Report struct {
	Work    *sim.Workload
	Replays []sim.Replayed
	Asked   string // the flags that change the figures: "--park-cost 20"
}

// Machine is a machine in words.
func Machine(m sim.Machine) string {
	return fmt.Sprintf("%s of %s GiB", text.Count(m.GPUs, "GPU"), strings.TrimSuffix(text.GiB(m.VRAMMiB), ".0"))
}

// Table writes the policies side by side, as many as so many columns have room
// for, and the others below; 0: all of them.
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
	t.Columns = append(t.Columns, text.Column{Title: "at best", Right: true})
	for _, row := range rowsOf(replays) {
		words := []string{row.Title}
		for _, cell := range row.Cells {
			words = append(words, cell.Text)
		}
		t.Row(append(words, row.Bound)...)
	}
	return t
}

// title says what was replayed, on what.
func (r *Report) title() string {
	m := &r.Replays[0].Metrics
	of := ""
	if m.Users > 1 {
		of = fmt.Sprintf(" of %d users", m.Users)
	}
	return fmt.Sprintf("%s: %s%s on %s", r.Work.Source, text.CountGrouped(m.Jobs, "job"), of, Machine(r.Work.Machine))
}

// seedsText says what the figures are, where they are not the trace's own.
func seedsText(seeds int) string {
	if seeds == 1 {
		return "figures of one perturbed copy"
	}
	return fmt.Sprintf("means over %d perturbed copies, ± half of the 95 %% interval", seeds)
}

// Before is what a person should know of a workload before it is replayed.
func Before(w *sim.Workload) (remarks []string) {
	if n := w.CardsLeftOut; n > 0 {
		remarks = append(remarks, fmt.Sprintf("%s without a job that %s none now %s left out", text.CountGrouped(n, "card"), text.Verb(n, "take"), text.Verb(n, "are")))
	}
	if guessed := guessedText(w); guessed != "" {
		remarks = append(remarks, guessed)
	}
	if w.LeftOut > 0 {
		remarks = append(remarks, fmt.Sprintf("%s %s %s left out", text.CountGrouped(w.LeftOut, "job"), leftOutText(w), text.Verb(w.LeftOut, "are")))
	}
	return remarks
}

func leftOutText(w *sim.Workload) string {
	switch {
	case w.Origin == sim.OfHistory:
		return "that never started or had no GPU"
	case w.KeptOff > 0:
		return "without a GPU, or for cards that take none now,"
	}
	return "without a GPU"
}

// guessedText says what was assumed of queued jobs; empty: nothing.
func guessedText(w *sim.Workload) string {
	if w.Unknown == 0 {
		return ""
	}
	return fmt.Sprintf("%s of which nothing is known %s taken to run for %s", text.CountGrouped(w.Unknown, "queued job"), text.Verb(w.Unknown, "are"), text.Span(w.Typical))
}

// assumedText says what else a replay of a snapshot is built on.
func assumedText(w *sim.Workload) string {
	if w.Origin != sim.OfSnapshot {
		return ""
	}
	assumed := fmt.Sprintf(" It goes on from the snapshot of %s: what runs ends when it is expected to, and no job comes after it.", w.TakenAt.Format(time.DateTime))
	if guessed := guessedText(w); guessed != "" {
		assumed += " " + guessed + "."
	}
	return assumed
}

// After names the jobs that are in no figure: those that are larger than the
// machine, and those that never had what they waited for because other
// processes keep it.
func (r *Report) After() (remarks []string) {
	w := r.Work
	if count, first := which(&r.Replays[0].Result, func(f *sim.Fate) bool { return f.Refused != nil }); count > 0 {
		remarks = append(remarks, fmt.Sprintf("%s can never run on %s and %s not counted; %s: %s", text.CountGrouped(count, "job"), Machine(w.Machine),
			text.Verb(count, "are"), w.Places[first], r.Replays[0].Result.Fates[first].Refused))
	}
	for i := range r.Replays {
		if count, first := which(&r.Replays[i].Result, func(f *sim.Fate) bool { return f.Unfinished }); count > 0 {
			remarks = append(remarks, fmt.Sprintf("under %s %s %s for memory that other processes hold and %s not counted; %s is one",
				r.Replays[i].Policy, text.CountGrouped(count, "job"), text.Verb(count, "wait"), text.Verb(count, "are"), w.Places[first]))
		}
	}
	return remarks
}

// which counts the jobs with such a fate, and finds the first.
func which(res *sim.Result, such func(*sim.Fate) bool) (count, first int) {
	first = slices.IndexFunc(res.Fates, func(f sim.Fate) bool { return such(&f) })
	for i := max(first, 0); i < len(res.Fates); i++ {
		if such(&res.Fates[i]) {
			count++
		}
	}
	return count, first
}
