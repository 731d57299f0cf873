package top

import (
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
		lines = m.logScreen()
	case helping:
		lines = m.helpScreen()
	default:
		lines = m.mainScreen()
	}
	for len(lines) < m.Height-1 {
		lines = append(lines, "")
	}
	lines = append(lines[:m.Height-1], m.footer())
	return strings.Join(lines, "\n")
}

// line makes a line of exactly the given width, with nothing in it that could
// control the terminal. Everything that is shown passes through here or rule.
func (m model) line(words string, width int, p text.Paint) string {
	return m.painted(p, text.Pad(text.Cut(text.Line(words), width), width))
}

func (m model) painted(p text.Paint, words string) string {
	if !m.Colour {
		return words
	}
	return p.On(words)
}

// marked shows which row is selected, with and without colours.
func (m model) marked(on bool) (mark string, p text.Paint) {
	if on {
		return ">", text.Bold
	}
	return " ", text.Plain
}

func (m model) mainScreen() []string {
	l := m.layout()
	lines := []string{m.header()}
	lines = append(lines, m.gpuRows(l)...)
	lines = append(lines, m.jobRows(l)...)
	if l.pane > 0 {
		lines = append(lines, m.pane(l)...)
	}
	return lines
}

func (m model) header() string {
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
	if !m.since.IsZero() {
		words, p = fmt.Sprintf("no answer since %s: %s", m.since.Format("15:04:05"), m.lost), text.Red
	}
	return m.line(words, left, p) + " " + clock
}

func (m model) footer() string {
	words := "? keys  / filter  enter log  c cancel  tab GPUs  q quit"
	switch {
	case m.mode == filtering:
		words = "name contains: " + m.prompt + "_"
	case m.mode == searching:
		words = "search: " + m.prompt + "_"
	case m.mode == asking:
		return m.line(m.ask.text, m.Width, text.Bold)
	case m.said != "":
		words = m.said
	case m.mode == reading:
		words = "up down pgup pgdown move  / search  n next  q back"
	case m.mode == helping:
		words = "any key comes back"
		if more := len(keyHelp) - m.helpAt - m.helpRows(); more > 0 {
			words = fmt.Sprintf("any key shows %d more", more)
		}
	}
	return m.line(words, m.Width, text.Dim)
}

func (m model) helpScreen() []string {
	lines := []string{m.line("berth top: keys", m.Width, text.Bold), ""}
	for _, k := range keyHelp[m.helpAt:min(m.helpAt+m.helpRows(), len(keyHelp))] {
		lines = append(lines, m.line(fmt.Sprintf("  %-22s %s", k.keys, k.does), m.Width, text.Plain))
	}
	return append(lines, "", m.line("  A click selects, the wheel moves.", m.Width, text.Dim))
}

// helpRows is how many keys a screen has room for, between the title and what is
// said about the mouse.
func (m model) helpRows() int { return max(1, m.Height-5) }

func (m model) logScreen() []string {
	title := "log of job " + m.chosen
	if v, ok := m.selected(); ok {
		title += " (" + v.Name + "), " + string(v.State)
	}
	if m.log.back > 0 {
		title += fmt.Sprintf("  %s below", text.CountGrouped(m.log.back, "line"))
	}
	lines := []string{m.line(title, m.Width, text.Bold)}
	for _, line := range m.log.tail(m.Height - 2) {
		p := text.Plain
		if m.log.search != "" && strings.Contains(line, m.log.search) {
			p = text.Yellow
			line = "> " + line
		}
		lines = append(lines, m.line(line, m.Width, p))
	}
	if len(m.log.lines) == 0 {
		lines = append(lines, m.line(m.emptyLog(), m.Width, text.Dim))
	}
	return lines
}

func (m model) emptyLog() string {
	if m.log.note != "" {
		return m.log.note
	}
	return "nothing was printed yet"
}
