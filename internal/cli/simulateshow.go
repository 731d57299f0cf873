package cli

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"time"

	"berth/internal/sim"
)

// drawReplays writes the policies side by side.
func drawReplays(s screen, w *workload, replays []replayed) error {
	fmt.Fprintln(s.out, fit(s, printable(workloadText(w, replays))))
	if seeds := replays[0].Seeds; seeds > 0 {
		fmt.Fprintln(s.out, fit(s, seedsText(seeds)))
	}
	return drawSideBySide(s, replays)
}

// drawSideBySide draws as many policies beside one another as the screen has
// room for, and the others below.
func drawSideBySide(s screen, replays []replayed) error {
	t := replayTable(replays)
	if n := len(replays); n > 1 && s.width > 0 && tableWidth(t.widths(0)) > s.width {
		if err := drawSideBySide(s, replays[:(n+1)/2]); err != nil {
			return err
		}
		return drawSideBySide(s, replays[(n+1)/2:])
	}
	fmt.Fprintln(s.out)
	return t.draw(s)
}

// seedsText says what the figures are, where they are not the trace's own.
func seedsText(seeds int) string {
	if seeds == 1 {
		return "figures of one perturbed copy"
	}
	return fmt.Sprintf("means over %d perturbed copies, ± half of the 95 %% interval", seeds)
}

// workloadText says what was replayed, on what.
func workloadText(w *workload, replays []replayed) string {
	m := &replays[0].Metrics
	of := ""
	if m.Users > 1 {
		of = fmt.Sprintf(" of %d users", m.Users)
	}
	return fmt.Sprintf("%s: %s%s on %s", w.source, plural(m.Jobs, "job"), of, machineText(w.machine))
}

func replayTable(replays []replayed) *table {
	t := &table{columns: []column{{title: ""}}}
	for i := range replays {
		t.columns = append(t.columns, column{title: replays[i].Policy, right: true})
	}
	t.columns = append(t.columns, column{title: "at best", right: true})
	for _, f := range shownFigures(replays) {
		row := []cell{{text: f.Title}}
		for i := range replays {
			r := &replays[i]
			row = append(row, cell{text: figureCell(&f, r)})
		}
		best := ""
		if f.Bound != nil {
			best = figureText(f.Unit, *f.Bound(&replays[0].Metrics))
		}
		t.add(append(row, cell{text: best})...)
	}
	return t
}

// seldomFigures are shown to people only where there is something to show.
var seldomFigures = []string{"preemptions", "gpu_lost", "ooms"}

// shownFigures are those that say something about these replays.
func shownFigures(replays []replayed) []sim.Figure {
	return slices.DeleteFunc(sim.Figures(), func(f sim.Figure) bool {
		return slices.Contains(seldomFigures, f.Name) && !slices.ContainsFunc(replays, func(r replayed) bool { return *f.Of(&r.Metrics) != 0 })
	})
}

// figureCell is a figure and how sure it is. How long decisions take says
// more of the machine that replays than of the copies.
func figureCell(f *sim.Figure, r *replayed) string {
	value := *f.Of(&r.Metrics)
	text := figureText(f.Unit, value)
	if f.Unit == sim.Milliseconds {
		return text
	}
	if text == figureText(f.Unit, 0) {
		return text // a part of what rounds to nothing says nothing
	}
	return text + marginText(r.Interval95[f.Name], value)
}

// figureText writes a figure as people read it.
func figureText(unit sim.Unit, value float64) string {
	switch unit {
	case sim.Seconds:
		return nearestSpan(time.Duration(min(value, 9e9) * float64(time.Second)))
	case sim.Percent:
		return fmt.Sprintf("%.1f %%", 100*value)
	case sim.Milliseconds:
		return fmt.Sprintf("%.2f ms", value)
	}
	switch {
	case value >= 1000:
		return grouped(int(value + 0.5))
	case value == float64(int(value)):
		return strconv.Itoa(int(value))
	}
	return fmt.Sprintf("%.2f", value)
}

// nearestSpan writes a duration rounded to what is written of it: a figure is
// not an age, which passes the next minute only when it is over.
func nearestSpan(d time.Duration) string {
	switch {
	case d >= 50*time.Millisecond && d < 9950*time.Millisecond && d%time.Second != 0:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Hour:
		return span(d.Round(time.Second))
	case d < 24*time.Hour:
		return span(d.Round(time.Minute))
	}
	return span(d.Round(time.Hour))
}

// marginText is half the interval, in percent of the figure.
func marginText(half, value float64) string {
	if half == 0 || value == 0 {
		return ""
	}
	return fmt.Sprintf(" ±%.0f%%", 100*half/value)
}

// replaysCSV is the figures for a spreadsheet: one line for each policy.
func replaysCSV(replays []replayed) []byte {
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	titles := []string{"policy", "jobs", "infeasible", "unfinished", "left_out", "timed_out", "users", "seeds"}
	for _, f := range sim.Figures() {
		titles = append(titles, f.Name)
		if f.Bound != nil {
			titles = append(titles, "bound_"+f.Name)
		}
		if replays[0].Seeds > 1 {
			titles = append(titles, "interval95_"+f.Name)
		}
	}
	_ = w.Write(titles) // a buffer takes everything
	for i := range replays {
		r := &replays[i]
		row := []string{r.Policy}
		for _, n := range []int{r.Jobs, r.Infeasible, r.Unfinished, r.LeftOut, r.TimedOut, r.Users, r.Seeds} {
			row = append(row, strconv.Itoa(n))
		}
		for _, f := range sim.Figures() {
			row = append(row, plainNumber(*f.Of(&r.Metrics)))
			if f.Bound != nil {
				row = append(row, plainNumber(*f.Bound(&r.Metrics)))
			}
			if r.Seeds > 1 {
				row = append(row, plainNumber(r.Interval95[f.Name]))
			}
		}
		_ = w.Write(row)
	}
	w.Flush()
	return out.Bytes()
}
