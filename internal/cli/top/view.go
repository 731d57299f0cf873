package top

import (
	"cmp"
	"fmt"
	"strings"

	"berth/internal/job"
	"berth/internal/text"
)

// The smallest screen that is drawn.
const (
	leastWidth  = 40
	leastHeight = 10
	wideEnough  = 110 // columns, for the story beside the log
)

// layout is where things are on the screen.
type layout struct {
	gpusAt, gpus, firstGPU int // the rows of GPUs
	jobsAt, rows           int // the rows of jobs
	paneAt, pane           int // the selected job, without its title
}

func (m model) layout() layout {
	l := layout{gpusAt: 1}
	l.gpus = max(1, min(len(m.gpus), m.Height/4))
	l.firstGPU = max(0, min(m.gpuAt, len(m.gpus)-1)-l.gpus+1)
	l.jobsAt = l.gpusAt + l.gpus + 1
	rest := m.Height - l.jobsAt - 1 // without the footer
	l.pane = max(0, min(rest/2, rest-4))
	if l.pane < 3 {
		l.pane = 0
	}
	l.rows = rest
	if l.pane > 0 {
		l.rows = rest - l.pane
		l.paneAt = l.jobsAt + l.rows
		l.pane-- // its title
		l.paneAt++
	}
	return l
}

// draw is a frame: as many lines as the screen has, none wider than it.
func draw(m model) string {
	if m.Width < leastWidth || m.Height < leastHeight {
		return text.Cut(fmt.Sprintf("berth top needs %dx%d", leastWidth, leastHeight), max(1, m.Width))
	}
	var lines []string
	switch m.mode {
	case reading, searching:
		lines = logScreen(m)
	case helping:
		lines = helpScreen(m)
	default:
		lines = mainScreen(m)
	}
	for len(lines) < m.Height-1 {
		lines = append(lines, "")
	}
	lines = append(lines[:m.Height-1], drawFooter(m))
	return strings.Join(lines, "\n")
}

// drawLine makes a line of exactly the given width, with nothing in it that could
// control the terminal. Everything that is shown passes through here or rule.
func drawLine(m model, words string, width int, p text.Paint) string {
	return paint(m, p, text.Pad(text.Cut(text.Line(words), width), width))
}

func paint(m model, p text.Paint, words string) string {
	if !m.Colour {
		return words
	}
	return p.On(words)
}

// marked shows which row is selected, with and without colours.
func marked(m model, on bool) (mark string, p text.Paint) {
	if on {
		return ">", text.Bold
	}
	return " ", text.Plain
}

func mainScreen(m model) []string {
	l := m.layout()
	lines := []string{drawHeader(m)}
	lines = append(lines, gpuRows(m, l)...)
	lines = append(lines, jobRows(m, l)...)
	if l.pane > 0 {
		lines = append(lines, drawPane(m, l)...)
	}
	return lines
}

func drawHeader(m model) string {
	var parts []string
	for _, state := range []job.State{job.Running, job.Parked, job.Queued} {
		if n := m.page.Counts[string(state)]; n > 0 || state != job.Parked {
			parts = append(parts, text.Grouped(n)+" "+string(state))
		}
	}
	words := strings.Join(parts, ", ")
	if m.own {
		words += "  own jobs"
	}
	if m.ended {
		words += "  with ended"
	}
	if m.sortBy > 0 {
		words += "  by " + sorts[m.sortBy].name
	}
	if m.filter != "" {
		words += "  name: " + m.filter
	}
	if hidden := len(m.gpus) - m.layout().gpus; hidden > 0 {
		words += "  " + text.Count(hidden, "GPU") + " not shown"
	}
	clock := m.now.Format("15:04:05")
	left := m.Width - len(clock) - 1
	if titled := "berth top  " + words; text.Width(titled) <= left {
		words = titled
	}
	p := text.Bold
	if !m.lostSince.IsZero() {
		words, p = fmt.Sprintf("no answer since %s: %s", m.lostSince.Format("15:04:05"), m.lostErr), text.Red
	}
	return drawLine(m, words, left, p) + " " + clock
}

func drawFooter(m model) string {
	words := "? keys  / filter  enter log  c cancel  tab GPUs  q quit"
	switch {
	case m.mode == filtering:
		words = "name contains: " + m.prompt + "_"
	case m.mode == searching:
		words = "search: " + m.prompt + "_"
	case m.mode == asking:
		return drawLine(m, m.ask.text, m.Width, text.Bold)
	case m.notice != "":
		words = m.notice
	case m.mode == reading:
		words = "up down pgup pgdown move  / search  n next  q back"
	case m.mode == helping:
		words = "any key comes back"
		if more := len(keyHelp) - m.helpAt - helpRows(m); more > 0 {
			words = fmt.Sprintf("any key shows %d more", more)
		}
	}
	return drawLine(m, words, m.Width, text.Dim)
}

func helpScreen(m model) []string {
	lines := []string{drawLine(m, "berth top: keys", m.Width, text.Bold), ""}
	for _, k := range keyHelp[m.helpAt:min(m.helpAt+helpRows(m), len(keyHelp))] {
		lines = append(lines, drawLine(m, fmt.Sprintf("  %-22s %s", k.keys, k.does), m.Width, text.Plain))
	}
	return append(lines, "", drawLine(m, "  A click selects, the wheel moves.", m.Width, text.Dim))
}

// helpRows is how many keys a screen has room for, between the title and what is
// said about the mouse.
func helpRows(m model) int { return max(1, m.Height-5) }

func logScreen(m model) []string {
	title := "log of job " + m.selectedID
	if v, ok := m.selected(); ok {
		title += " (" + v.Name + "), " + string(v.State)
	}
	if m.log.back > 0 {
		title += fmt.Sprintf("  %s below", text.CountGrouped(m.log.back, "line"))
	}
	lines := []string{drawLine(m, title, m.Width, text.Bold)}
	for _, line := range m.log.tail(m.Height - 2) {
		p := text.Plain
		if m.log.search != "" && strings.Contains(line, m.log.search) {
			p = text.Yellow
			line = "> " + line
		}
		lines = append(lines, drawLine(m, line, m.Width, p))
	}
	if len(m.log.lines) == 0 {
		lines = append(lines, drawLine(m, emptyLog(m), m.Width, text.Dim))
	}
	return lines
}

func emptyLog(m model) string {
	return cmp.Or(m.log.note, "nothing was printed yet")
}
