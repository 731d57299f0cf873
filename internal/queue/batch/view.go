package batch

import (
	"fmt"
	"strings"

	"berth/internal/job"
	"berth/internal/queue/engine/running"
	"berth/internal/text"
)

const (
	viewRunning = 16 // jobs shown; more are counted
	barWidth    = 10
)

// renderView is the live block: running jobs, why the next one waits, progress.
// It leaves a row of the terminal to the cursor: the top of a higher block would
// scroll away and could not be redrawn.
func renderView(s snapshot, width, height int, colour bool) []string {
	if width < 1 {
		width = 80
	}
	if height < 1 {
		height = 24
	}
	paint := painter(colour)
	most := height - 1
	var foot []string
	if len(s.pending) > 0 && s.pending[0].reason != "" && most > 3 {
		next := s.pending[0]
		foot = append(foot, paint.on(text.Dim, text.Cut(fmt.Sprintf("· next %s: %s", next.job.ID, text.Line(next.reason)), width)))
	}
	if s.paused != "" {
		foot = append(foot, paint.on(text.Yellow, text.Cut("no job can start: "+text.Line(s.paused), width)))
	}
	foot = append(foot, progressLine(s, width, paint))
	lines := append(runningLines(s, width, most-len(foot)), foot...)
	return lines[max(0, len(lines)-most):] // the last lines matter most
}

// runningLines are the running jobs, as many as fit; the rest are counted.
func runningLines(s snapshot, width, rows int) []string {
	shown := min(len(s.running), viewRunning)
	if rows < shown || shown < len(s.running) {
		shown = max(0, min(shown, rows-1)) // one row for the count
	}
	var lines []string
	for _, r := range s.running[:shown] {
		row := fmt.Sprintf("▶ %-4s %-12s gpu %-5s %8s  %s %s  %s",
			r.Job.ID, text.Cut(text.Line(r.Job.Spec.Name), 12), cardsText(r.Job), text.Clock(r.Job.Worked(s.at)),
			bar(r), text.Pad(memory(r), 17), text.Line(r.Job.Spec.Command()))
		lines = append(lines, text.Cut(row, width))
	}
	if rest := len(s.running) - shown; rest > 0 && rows > 0 {
		lines = append(lines, text.Cut(fmt.Sprintf("  and %d more running", rest), width))
	}
	return lines
}

func progressLine(s snapshot, width int, paint painter) string {
	total := max(s.total, s.tally.done())
	filled := 0
	if total > 0 {
		filled = 20 * s.tally.done() / total
	}
	written := fmt.Sprintf("%s%s %d/%d done · %d running · %d queued%s", strings.Repeat("█", filled), strings.Repeat("░", 20-filled),
		s.tally.done(), total, s.tally.running, s.tally.queued, s.left(" · "))
	written = text.Cut(written, width)
	if s.tally.failed > 0 && len([]rune(written))+16 < width {
		return paint.on(text.Bold, written) + paint.on(text.Red, fmt.Sprintf(" · %d failed", s.tally.failed))
	}
	return paint.on(text.Bold, written)
}

func cardsText(j *job.Job) string {
	if where := j.View().Slurm.Where(); where != "" {
		return where
	}
	if len(j.Grant.GPUs) == 0 {
		return "-"
	}
	return j.Grant.List()
}

// bar draws the memory in use relative to the declaration or, without one, to
// the budget.
func bar(r running.Job) string {
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
