package top

import (
	"fmt"
	"strings"
	"time"

	"berth/internal/api"
	"berth/internal/cli/render"
	"berth/internal/job"
	"berth/internal/text"
)

// gpuRows has a line for each GPU: a bar split by job, memory, utilisation,
// temperature and the utilisation of the last half hour.
func gpuRows(m model, l layout) []string {
	if len(m.gpus) == 0 {
		return []string{drawLine(m, " no GPU was read yet", m.Width, text.Dim)}
	}
	var lines []string
	widest := 0 // so that the bars are below one another
	for _, g := range m.gpus[l.firstGPU : l.firstGPU+l.gpus] {
		widest = max(widest, text.Width(gpuState(g)))
	}
	for i := l.firstGPU; i < l.firstGPU+l.gpus; i++ {
		g := m.gpus[i]
		mark, p := marked(m, m.onGPUs && i == m.gpuAt)
		spark := ""
		if m.Width >= 72 {
			values := m.utilisation[g.Index]
			spark = " " + text.Pad(text.Spark(values[max(0, len(values)-sparkWidth(m)):], 100, m.ASCII), sparkWidth(m))
		}
		facts := fmt.Sprintf(" %5s/%s G %4s %4s", text.GiB(g.UsedMiB), text.GiB(g.TotalMiB), render.Measured(g.Util, "%", "-"), render.Measured(g.TemperatureC, "C", "-"))
		state := text.Pad(gpuState(g), widest)
		name := fmt.Sprintf("%sgpu%-3d", mark, g.Index)
		width := max(4, m.Width-text.Width(name)-text.Width(facts)-text.Width(spark)-text.Width(state)-2)
		line := name + "[" + memoryBar(m, g, width) + "]" + facts + spark + state
		switch {
		case g.Health != "ok" && g.Health != "":
			p = text.Red
		case g.Paused || g.Stale:
			p = text.Yellow
		}
		lines = append(lines, drawLine(m, line, m.Width, p))
	}
	return lines
}

func sparkWidth(m model) int {
	if m.Width >= wideEnough {
		return 30
	}
	return 10
}

func gpuState(g api.GPU) string {
	switch {
	case g.Health != "ok" && g.Health != "":
		return " " + g.Health
	case g.Paused:
		return " paused"
	case g.Stale:
		return " stale"
	}
	return ""
}

// memoryBar shows a GPU's memory by job, each part beginning with the job's id where
// that fits; external use comes last.
func memoryBar(m model, g api.GPU, width int) string {
	fills, outside, free := []rune("█▓"), '░', '·'
	if m.ASCII {
		fills, outside, free = []rune("#="), 'x', '.'
	}
	cells := []rune(strings.Repeat(string(free), width))
	columns := func(mib int64) int {
		if g.TotalMiB <= 0 || mib <= 0 {
			return 0
		}
		return max(1, int(mib*int64(width)/g.TotalMiB))
	}
	at := 0
	fill := func(n int, with rune, label string) {
		n = min(n, width-at)
		for i := range n {
			cells[at+i] = with
		}
		if runes := []rune(text.Line(label)); len(runes) < n {
			copy(cells[at:], runes)
		}
		at += n
	}
	var jobs int64
	for i, on := range g.Jobs {
		mib := int64(0)
		if on.UsedMiB != nil {
			mib = *on.UsedMiB
		}
		jobs += mib
		fill(columns(mib), fills[i%len(fills)], on.ID)
	}
	fill(columns(g.UsedMiB-jobs), outside, "")
	return string(cells)
}

// jobRows has the titles and the visible jobs.
func jobRows(m model, l layout) []string {
	columns := []struct {
		title string
		width int
		text  func(v job.View) string
	}{
		{"ID", 6, func(v job.View) string { id, _, _ := m.named(v); return id }},
		{"NAME", 10, func(v job.View) string { _, name, _ := m.named(v); return name }},
		{"USER", 6, func(v job.View) string { return v.User }},
		{"STATE", 8, render.StateText},
		{"GPUS", 5, gpusOf},
		{"GIB", 5, gibOf},
		{"TIME", 6, func(v job.View) string { return timeOf(m, v) }},
		{"STARTS", 6, func(v job.View) string { return startOf(m, v) }},
	}
	if m.Width >= wideEnough {
		columns[0].width, columns[1].width, columns[2].width, columns[3].width, columns[4].width = 10, 24, 12, 10, 8
	}
	title := " "
	for _, c := range columns {
		title += text.Pad(c.title, c.width) + " "
	}
	lines := []string{drawLine(m, title+"REASON", m.Width, text.Dim)}
	for i := m.scroll; i < min(len(m.rows), m.scroll+l.rows); i++ {
		v := m.rows[i]
		mark, p := marked(m, !m.onGPUs && i == m.at)
		row := mark
		for _, c := range columns {
			row += text.Pad(text.Cut(text.Line(c.text(v)), c.width), c.width) + " "
		}
		if sum, ok := m.folded(v); ok {
			row += sum.String() + "  "
			if left := sum.Left(m.now); left != "" {
				row += left + "  "
			}
		}
		if v.Reason != nil {
			row += *v.Reason
		}
		if p == text.Plain {
			p = paintOf(v.State)
		}
		lines = append(lines, drawLine(m, row, m.Width, p))
	}
	if len(m.rows) == 0 {
		lines = append(lines, drawLine(m, " no jobs", m.Width, text.Dim))
	}
	shown := 0
	for _, n := range m.page.Matching {
		shown += n
	}
	if more := shown - len(m.rows); more > 0 && len(lines) > l.rows && m.scroll+l.rows >= len(m.rows) {
		lines[len(lines)-1] = drawLine(m, fmt.Sprintf(" … %s more; / filters", text.Grouped(more)), m.Width, text.Dim)
	}
	for len(lines) < l.rows+1 {
		lines = append(lines, "")
	}
	return lines[:l.rows+1]
}

func paintOf(s job.State) text.Paint {
	switch s {
	case job.Running:
		return text.Green
	case job.Parked:
		return text.Blue
	case job.Failed:
		return text.Red
	default:
		return text.Plain
	}
}

func gpusOf(v job.View) string {
	switch where := v.Slurm.Where(); {
	case v.State == job.Running && where != "":
		return where
	case v.State == job.Running && len(v.GPUIDs) > 0:
		return text.Numbers(v.GPUIDs)
	case v.Share != nil:
		return text.Share(*v.Share)
	}
	return "x" + text.Grouped(v.GPUs)
}

func gibOf(v job.View) string {
	if mib := memory(v); mib > 0 {
		return text.GiB(mib)
	}
	return "-"
}

// timeOf returns how long a job has run or waited.
func timeOf(m model, v job.View) string {
	from := v.SubmittedAt
	if v.State != job.Queued && v.StartedAt != nil {
		from = v.StartedAt
	}
	if from == nil {
		return ""
	}
	to := m.now
	if v.EndedAt != nil {
		to = *v.EndedAt
	}
	return brief(to.Sub(*from))
}

// startOf returns the time until a queued job is expected to start. An expectation that
// has passed was wrong, and is not shown.
func startOf(m model, v job.View) string {
	s := m.starts[v.ID]
	if v.State != job.Queued || v.Held || s.expected.Before(m.now) {
		return ""
	}
	return brief(s.expected.Sub(m.now))
}

// brief is a duration in at most six columns.
func brief(d time.Duration) string {
	switch d = max(0, d); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02d", int(d.Minutes()), int(d.Seconds())%60)
	case d < 100*time.Hour:
		return fmt.Sprintf("%dh%02d", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
