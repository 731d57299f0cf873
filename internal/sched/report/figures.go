package report

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"berth/internal/sched/sim"
	"berth/internal/text"
)

// Row is one figure for all policies.
type Row struct {
	Name, Title, Bound string
	Cells              []Cell
}

// Cell is a figure under one policy.
type Cell struct {
	Value float64
	Text  string
	Best  bool
}

// lessIsBetter are the figures where the lowest value is best, moreIsBetter
// those where the highest is. For the others no value is best.
var (
	lessIsBetter = []string{"wait_mean_s", "wait_p50_s", "wait_p95_s", "wait_p99_s", "wait_max_s", "bounded_slowdown_mean", "flow_mean_s", "makespan_s", "fragmentation", "worst_over_median_user", "ooms"}
	moreIsBetter = []string{"gpu_useful", "jain_users"}
)

// valuesOf are a figure's values and the best of them: NaN if no value is best,
// or all are equal.
func valuesOf(f *sim.Figure, replays []sim.Replayed) (values []float64, best float64) {
	for i := range replays {
		values = append(values, *f.Of(&replays[i].Metrics))
	}
	switch {
	case slices.Min(values) == slices.Max(values):
	case slices.Contains(lessIsBetter, f.Name):
		return values, slices.Min(values)
	case slices.Contains(moreIsBetter, f.Name):
		return values, slices.Max(values)
	}
	return values, math.NaN()
}

// Rows are the figures worth showing, each for all policies.
func (r *Report) Rows() []Row { return rowsOf(r.Replays) }

func rowsOf(replays []sim.Replayed) []Row {
	var rows []Row
	for _, f := range shownFigures(replays) {
		row := Row{Name: f.Name, Title: f.Title}
		values, best := valuesOf(&f, replays)
		for i, v := range values {
			row.Cells = append(row.Cells, Cell{Value: v, Text: figureCell(&f, &replays[i]), Best: v == best})
		}
		if f.Bound != nil {
			row.Bound = figureText(f.Unit, *f.Bound(&replays[0].Metrics))
		}
		rows = append(rows, row)
	}
	return rows
}

// optionalFigures are left out of tables if they are 0 everywhere.
var optionalFigures = []string{"preemptions", "gpu_lost", "gpu_wasted", "gpu_fixed", "host_full", "own_gpus_busy", "parked_max_mib", "ooms", "decision_p50_ms", "decision_p99_ms"}

// shownFigures are the figures worth showing for these replays.
func shownFigures(replays []sim.Replayed) []sim.Figure {
	return slices.DeleteFunc(sim.Figures(), func(f sim.Figure) bool {
		return slices.Contains(optionalFigures, f.Name) && !slices.ContainsFunc(replays, func(r sim.Replayed) bool { return *f.Of(&r.Metrics) != 0 })
	})
}

// figureCell is a figure with its confidence interval. Decision times have none:
// they depend more on this machine than on the copies.
func figureCell(f *sim.Figure, r *sim.Replayed) string {
	value := *f.Of(&r.Metrics)
	shown := figureText(f.Unit, value)
	if f.Unit == sim.Milliseconds || shown == figureText(f.Unit, 0) { // rounded to 0
		return shown
	}
	return shown + marginText(r.Interval95[f.Name], value)
}

// figureText formats a figure for people.
func figureText(unit sim.Unit, value float64) string {
	switch unit {
	case sim.Seconds:
		return nearestSpan(time.Duration(min(value, 9e9) * float64(time.Second)))
	case sim.Percent:
		return fmt.Sprintf("%.1f %%", 100*value)
	case sim.Milliseconds:
		return fmt.Sprintf("%.2f ms", value)
	case sim.MiB:
		return gib(int64(value))
	}
	switch {
	case value >= 1000:
		return text.Grouped(int(value + 0.5))
	case value == float64(int(value)):
		return strconv.Itoa(int(value))
	}
	return fmt.Sprintf("%.2f", value)
}

// nearestSpan rounds a duration to the digits shown, unlike text.Span, which
// rounds down as suits an age.
func nearestSpan(d time.Duration) string {
	switch {
	case d >= 50*time.Millisecond && d < 9950*time.Millisecond && d%time.Second != 0:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Hour:
		return text.Span(d.Round(time.Second))
	case d < 24*time.Hour:
		return text.Span(d.Round(time.Minute))
	}
	return text.Span(d.Round(time.Hour))
}

// marginText is half the confidence interval, in percent of the figure.
func marginText(half, value float64) string {
	if half == 0 || value == 0 {
		return ""
	}
	return fmt.Sprintf(" ±%.0f%%", 100*half/value)
}

// CSV are the figures for a spreadsheet: one line for each policy.
func (r *Report) CSV() []byte {
	replays := r.Replays
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
	_ = w.Write(titles) // a buffer never fails
	for i := range replays {
		r := &replays[i]
		row := []string{r.Policy}
		for _, n := range []int{r.Jobs, r.Infeasible, r.Unfinished, r.LeftOut, r.TimedOut, r.Users, r.Seeds} {
			row = append(row, strconv.Itoa(n))
		}
		for _, f := range sim.Figures() {
			row = append(row, plain(*f.Of(&r.Metrics)))
			if f.Bound != nil {
				row = append(row, plain(*f.Bound(&r.Metrics)))
			}
			if r.Seeds > 1 {
				row = append(row, plain(r.Interval95[f.Name]))
			}
		}
		_ = w.Write(row)
	}
	w.Flush()
	return out.Bytes()
}

// plain formats a number for a program.
func plain(value float64) string {
	if value > -1e15 && value < 1e15 {
		return strconv.FormatFloat(value, 'f', -1, 64)
	}
	return strconv.FormatFloat(value, 'g', -1, 64)
}
