package batch

import (
	"fmt"
	"strings"

	"berth/internal/engine"
	"berth/internal/job"
	"berth/internal/text"
)

// Colours, by what they say.
const (
	green = "\x1b[32m"
	red   = "\x1b[31m"
	amber = "\x1b[33m"
	dim   = "\x1b[2m"
	bold  = "\x1b[1m"
	plain = "\x1b[0m"
)

// paint colours a whole line by what it tells.
func (s *screen) paint(line string) string {
	if !s.colour {
		return line
	}
	switch {
	case strings.Contains(line, "] WARN "), strings.Contains(line, "will retry"):
		return amber + line + plain
	case strings.Contains(line, " finished ["):
		return strings.Replace(line, " finished [", green+" finished ["+plain, 1)
	case strings.Contains(line, " failed ["):
		return red + line + plain
	}
	return line
}

const (
	viewRunning = 16 // jobs shown; more are counted
	barWidth    = 10
)

// renderView is the live block: running jobs, what keeps others from running,
// progress. It leaves a row of the terminal to the cursor: of a higher block
// the top would scroll away, and could not be taken back.
func renderView(s snapshot, width, height int, colour bool) []string {
	if width < 1 {
		width = 80
	}
	if height < 1 {
		height = 24
	}
	ink := func(code, written string) string {
		if !colour {
			return written
		}
		return code + written + plain
	}
	most := height - 1
	var foot []string
	if len(s.pending) > 0 && s.pending[0].reason != "" && most > 3 {
		next := s.pending[0]
		foot = append(foot, ink(dim, text.Cut(fmt.Sprintf("· next %s: %s", next.job.ID, text.Line(next.reason)), width)))
	}
	if s.paused != "" {
		foot = append(foot, ink(amber, text.Cut("nothing starts: "+text.Line(s.paused), width)))
	}
	foot = append(foot, progressLine(s, width, ink))
	lines := append(runningLines(s, width, most-len(foot)), foot...)
	return lines[max(0, len(lines)-most):] // the last lines say most
}

// runningLines are the running jobs, as many as there are rows for; the rest
// is counted.
func runningLines(s snapshot, width, rows int) []string {
	shown := min(len(s.running), viewRunning)
	if rows < shown || shown < len(s.running) {
		shown = max(0, min(shown, rows-1)) // one row for the count
	}
	var lines []string
	for _, r := range s.running[:shown] {
		row := fmt.Sprintf("▶ %-4s %-12s gpu %-5s %8s  %s %s  %s",
			r.Job.ID, text.Cut(text.Line(r.Job.Spec.Name), 12), cardsText(r.Job), text.Clock(s.at.Sub(r.Job.StartedAt)),
			bar(r), text.Pad(memory(r), 17), text.Line(r.Job.Spec.Command()))
		lines = append(lines, text.Cut(row, width))
	}
	if rest := len(s.running) - shown; rest > 0 && rows > 0 {
		lines = append(lines, text.Cut(fmt.Sprintf("  and %d more running", rest), width))
	}
	return lines
}

func progressLine(s snapshot, width int, ink func(code, written string) string) string {
	total := max(s.total, s.tally.done())
	filled := 0
	if total > 0 {
		filled = 20 * s.tally.done() / total
	}
	written := fmt.Sprintf("%s%s %d/%d done · %d running · %d queued", strings.Repeat("█", filled), strings.Repeat("░", 20-filled),
		s.tally.done(), total, s.tally.running, s.tally.queued)
	written = text.Cut(written, width)
	if s.tally.failed > 0 && len([]rune(written))+16 < width {
		return ink(bold, written) + ink(red, fmt.Sprintf(" · %d failed", s.tally.failed))
	}
	return ink(bold, written)
}

func cardsText(j *job.Job) string {
	if len(j.Grant.GPUs) == 0 {
		return "-"
	}
	return j.Grant.List()
}

// bar draws use against the declaration, or the budget where there is none.
func bar(r engine.Running) string {
	of := r.Job.VRAMMiB
	if of == 0 {
		of = r.Job.Grant.BudgetMiB
	}
	if of == 0 {
		of = r.Job.Grant.CardMiB
	}
	if of == 0 || r.NowMiB < 0 {
		return strings.Repeat(" ", barWidth)
	}
	filled := int(min(int64(barWidth), barWidth*r.NowMiB/of))
	return strings.Repeat("▮", filled) + strings.Repeat("▯", barWidth-filled)
}
