package cli

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"berth/internal/api"
	"berth/internal/cli/render"
	"berth/internal/text"
)

const (
	plotRows    = 10
	plotColumns = 80 // where the width of the screen is not known
	plotAxis    = 8  // columns for its labels
)

// plotSamples draws a job's memory over time: the fullest of its GPUs, what it
// declared, when its attempts began and when it was parked.
func plotSamples(s render.Screen, samples api.Samples, ascii bool, now time.Time) error {
	from, to := sampled(samples)
	if from.IsZero() {
		_, err := fmt.Fprintln(s.Out, "\nno memory was measured, or its samples are no longer kept")
		return err
	}
	width := s.Width
	if width <= 0 {
		width = plotColumns
	}
	columns := max(10, width-plotAxis)
	values := samples.Highest(from, to, text.PlotSteps(columns, ascii))
	for i := range values {
		values[i] /= 1024
	}
	plot := text.Plot{Values: values, Rows: plotRows, ASCII: ascii}
	if samples.DeclaredMiB != nil {
		plot.Line = float64(*samples.DeclaredMiB) / 1024
	}
	lines := append([]string{"", plotTitle(samples)}, plot.Draw()...)
	lines = append(lines, plotMarks(samples, from, to, columns), plotTimes(from, to, columns, now), plotLegend(samples, ascii))
	for _, line := range lines {
		if _, err := fmt.Fprintln(s.Out, s.Fit(line)); err != nil {
			return err
		}
	}
	return nil
}

// sampled is when the first and the last point were measured.
func sampled(samples api.Samples) (from, to time.Time) {
	see := func(at time.Time) {
		if from.IsZero() || at.Before(from) {
			from = at
		}
		if at.After(to) {
			to = at
		}
	}
	for _, track := range samples.Tracks {
		for _, p := range track.Points {
			if p.VRAMMiB != nil {
				see(p.At)
			}
		}
	}
	for _, stretch := range samples.Parked {
		see(stretch.From)
		see(until(stretch, samples.To))
	}
	return from, to
}

// until is when a stretch ended, or now.
func until(s api.Stretch, now time.Time) time.Time {
	if s.To == nil {
		return now
	}
	return *s.To
}

func plotTitle(samples api.Samples) string {
	gpus := map[int]bool{}
	for _, track := range samples.Tracks {
		gpus[track.GPU] = true
	}
	if len(gpus) > 1 {
		return fmt.Sprintf("VRAM in GiB, on the fullest of its %d GPUs", len(gpus))
	}
	return "VRAM in GiB"
}

// plotMarks is the row below a chart: where each attempt begins, and where the job
// was parked.
func plotMarks(samples api.Samples, from, to time.Time, columns int) string {
	row := []byte(strings.Repeat(" ", columns))
	at := func(t time.Time) int {
		if !to.After(from) {
			return 0
		}
		return max(0, min(columns-1, int(float64(t.Sub(from))/float64(to.Sub(from))*float64(columns))))
	}
	for _, stretch := range samples.Parked {
		for i := at(stretch.From); i <= at(until(stretch, to)); i++ {
			row[i] = 'p'
		}
	}
	seen := 0
	for _, track := range samples.Tracks {
		if track.Attempt == seen || len(track.Points) == 0 {
			continue
		}
		seen = track.Attempt
		mark := strconv.Itoa(seen)
		place := min(at(track.Points[0].At), columns-len(mark))
		copy(row[max(0, place):], mark)
	}
	return strings.TrimRight(strings.Repeat(" ", plotAxis)+string(row), " ")
}

// plotTimes is the row with the times at both ends.
func plotTimes(from, to time.Time, columns int, now time.Time) string {
	left, right := render.Moment(from, now), render.Moment(to, now)
	if gap := columns - len(left) - len(right); gap > 0 {
		return strings.Repeat(" ", plotAxis) + left + strings.Repeat(" ", gap) + right
	}
	return strings.Repeat(" ", plotAxis) + left
}

func plotLegend(samples api.Samples, ascii bool) string {
	var parts []string
	if samples.DeclaredMiB != nil {
		mark := "╌"
		if ascii {
			mark = "-"
		}
		parts = append(parts, mark+" declared "+text.GiB(*samples.DeclaredMiB)+" GiB")
	}
	parts = append(parts, "1: attempt")
	if len(samples.Parked) > 0 {
		parts = append(parts, "p: parked")
	}
	return strings.Repeat(" ", plotAxis) + strings.Join(append(parts, "blank: not measured"), "   ")
}

// csvSamples writes every point, one per line.
func csvSamples(out io.Writer, samples api.Samples) error {
	w := csv.NewWriter(out)
	_ = w.Write([]string{"at", "attempt", "gpu", "vram_mib", "util", "power_w", "temperature_c", "after_gap"}) // Flush reports it
	for _, track := range samples.Tracks {
		for _, p := range track.Points {
			_ = w.Write([]string{
				p.At.UTC().Format("2006-01-02T15:04:05.000Z"), strconv.Itoa(track.Attempt), strconv.Itoa(track.GPU),
				csvNumber(p.VRAMMiB), csvNumber(p.Util), csvNumber(p.PowerW), csvNumber(p.TemperatureC), strconv.FormatBool(p.AfterGap),
			})
		}
	}
	w.Flush()
	return w.Error()
}

// csvNumber is empty for what was not measured.
func csvNumber[T int64 | float64](value *T) string {
	if value == nil {
		return ""
	}
	return strconv.FormatFloat(float64(*value), 'f', -1, 64)
}
