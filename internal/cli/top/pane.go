package top

import (
	"fmt"
	"strings"
	"time"

	"berth/internal/cli/render"
	"berth/internal/job"
	"berth/internal/text"
)

// drawPane shows the selected job: its story, its memory over time and the end of its
// log, side by side where the screen is wide enough.
func drawPane(m model, l layout) []string {
	v, ok := m.selected()
	if !ok {
		return []string{drawRule(m, ""), ""}
	}
	title := "job " + v.ID + " " + v.Name
	if v.Command != nil {
		title += ": " + *v.Command
	}
	lines := []string{drawRule(m, title)}
	if m.Width < wideEnough {
		story := drawStory(m, v, m.Width)
		if keep := max(1, l.pane/2); len(story) > keep {
			story = story[:keep]
		}
		lines = append(lines, drawColumn(m, story, m.Width)...)
		return append(lines, drawColumn(m, logTail(m, l.pane-len(story)), m.Width)...)
	}
	left := m.Width / 2
	story := drawStory(m, v, left-1)
	if room := l.pane - len(story); room >= 5 {
		story = append(story, drawChart(m, left-1, room)...)
	}
	story, log := drawColumn(m, story, left-1), drawColumn(m, logTail(m, l.pane), m.Width-left-1)
	between := " │"
	if m.ASCII {
		between = " |"
	}
	for i := range l.pane {
		lines = append(lines, at(story, i, left-1)+between+at(log, i, m.Width-left-1))
	}
	return lines
}

// at is a line of a column, or blanks.
func at(lines []string, i, width int) string {
	if i < len(lines) {
		return lines[i]
	}
	return strings.Repeat(" ", width)
}

func drawColumn(m model, lines []string, width int) []string {
	padded := make([]string, len(lines))
	for i, line := range lines {
		padded[i] = drawLine(m, line, width, text.Plain)
	}
	return padded
}

func drawRule(m model, title string) string {
	dash := "─"
	if m.ASCII {
		dash = "-"
	}
	words := text.Cut(text.Line(title), m.Width-4)
	if words != "" {
		words = " " + words + " "
	}
	return paint(m, text.Dim, dash+words+strings.Repeat(dash, max(0, m.Width-1-text.Width(words))))
}

func logTail(m model, rows int) []string {
	if len(m.log.lines) == 0 {
		return []string{emptyLog(m)}
	}
	last := m.log
	last.back = 0
	return last.tail(rows)
}

// drawStory returns lines about what the job does or waits for.
func drawStory(m model, v job.View, width int) []string {
	state := render.StateText(v)
	if v.Outcome != nil {
		state += ", " + string(*v.Outcome)
	}
	state += ", " + timeOf(m, v)
	if v.Priority != 0 {
		state += fmt.Sprintf(", priority %d", v.Priority)
	}
	if memory(v) > 0 && len(v.PeakVRAMMiB) > 0 {
		state += ", peak " + text.GiB(memory(v)) + " GiB"
		if v.VRAMMiB != nil {
			state += " of " + text.GiB(*v.VRAMMiB) + " declared"
		}
	}
	lines := []string{state}
	sentence := ""
	switch {
	case m.why != nil && v.State == job.Queued:
		sentence = m.why.Text
	case v.Reason != nil:
		sentence = *v.Reason
	}
	if sentence != "" {
		lines = append(lines, text.Wrap(text.Line(sentence), width)...)
	}
	if m.why != nil && v.State == job.Queued && m.why.Expected != nil {
		e := m.why.Expected
		lines = append(lines, fmt.Sprintf("expected to start %s, between %s and %s", momentOf(m, e.Mid), momentOf(m, e.Low), momentOf(m, e.High)))
	}
	if m.detail != nil && m.detail.ID == v.ID {
		for _, e := range m.detail.Events[max(0, len(m.detail.Events)-4):] {
			lines = append(lines, momentOf(m, e.Time)+" "+strings.ReplaceAll(string(e.Kind), "_", " ")+" "+e.Text)
		}
	}
	return lines
}

// momentOf is a time of today, or a date.
func momentOf(m model, t time.Time) string {
	if t.IsZero() {
		return "at an unknown time"
	}
	return render.Moment(t, m.now)
}

// drawChart is the job's memory over time.
func drawChart(m model, width, rows int) []string {
	if m.samples == nil {
		return nil
	}
	from, to := m.samples.To, m.samples.To
	for _, track := range m.samples.Tracks {
		for _, p := range track.Points[:min(1, len(track.Points))] {
			if p.At.Before(from) {
				from = p.At
			}
		}
	}
	if !from.Before(to) {
		return nil
	}
	columns := max(4, width-8)
	values := m.samples.Highest(from, to, text.PlotSteps(columns, m.ASCII))
	for i := range values {
		values[i] /= 1024
	}
	plot := text.Plot{Values: values, Rows: min(rows-1, 12), ASCII: m.ASCII}
	if m.samples.DeclaredMiB != nil {
		plot.Line = float64(*m.samples.DeclaredMiB) / 1024
	}
	return append([]string{fmt.Sprintf("VRAM in GiB since %s", momentOf(m, from))}, plot.Draw()...)
}
