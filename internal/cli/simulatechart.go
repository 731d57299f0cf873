package cli

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"slices"
	"strings"
	"time"

	"berth/internal/sim"
)

// Sizes of the charts, in pixels of a page that is as wide as it likes to be.
const (
	chartWidth  = 1000.0
	chartLeft   = 46.0 // of the plot, where the labels end
	chartRight  = 990.0
	plotHeight  = 220.0
	useHeight   = 80.0
	axisHeight  = 20.0
	maxBlocks   = 2500 // of one Gantt chart; what is smaller is run together
	useBins     = 470
	maxCurve    = 400 // points of one curve
	ganttHeight = 320.0
)

// axis is the time that all charts of a page have in common, so that they can
// be compared.
type axis struct {
	first, last sim.Millis
}

func timeAxis(w *workload, replays []replayed) axis {
	a := axis{first: math.MaxInt64}
	for i := range w.jobs {
		a.first = min(a.first, w.jobs[i].Submit)
	}
	for i := range replays {
		for _, fate := range replays[i].result.Fates {
			a.last = max(a.last, fate.End)
		}
	}
	a.last = max(a.last, a.first+1)
	return a
}

func (a axis) x(m sim.Millis) float64 {
	return chartLeft + (chartRight-chartLeft)*float64(m-a.first)/float64(a.last-a.first)
}

// ticks writes the times below a plot.
func (a axis) ticks(b *strings.Builder, bottom float64) {
	length := a.last - a.first
	step := niceStep(length.Seconds() / 8)
	for s := 0.0; s <= length.Seconds(); s += step {
		x := a.x(a.first + sim.MillisOf(s))
		fmt.Fprintf(b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/><text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`,
			x, x, bottom, bottom+4, x, bottom+15, tickText(s))
	}
}

// niceStep is the next larger step of time that people count in.
func niceStep(seconds float64) float64 {
	for _, step := range []float64{1, 5, 15, 60, 300, 900, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 2 * 86400, 7 * 86400, 14 * 86400, 28 * 86400} {
		if step >= seconds {
			return step
		}
	}
	return 91 * 86400 * math.Ceil(seconds/(91*86400))
}

// tickText writes a time as short as it can be.
func tickText(seconds float64) string {
	switch {
	case seconds == 0:
		return "0"
	case math.Mod(seconds, 86400) == 0:
		return fmt.Sprintf("%.0fd", seconds/86400)
	case math.Mod(seconds, 3600) == 0 && seconds < 3*86400:
		return fmt.Sprintf("%.0fh", seconds/3600)
	case math.Mod(seconds, 60) == 0 && seconds < 2*3600:
		return fmt.Sprintf("%.0fm", seconds/60)
	}
	return span(time.Duration(seconds * float64(time.Second)))
}

func openSVG(b *strings.Builder, height float64, label string) {
	fmt.Fprintf(b, `<svg viewBox="0 0 %.0f %.0f" role="img" aria-label="%s">`, chartWidth, height, html.EscapeString(label))
}

func closeSVG(b *strings.Builder) template.HTML {
	b.WriteString("</svg>")
	// Everything in it is a number or was escaped.
	return template.HTML(b.String())
}

// waitChart draws for each policy which part of the jobs had started after so
// long, over a logarithmic scale that begins at a second.
func waitChart(w *workload, replays []replayed) template.HTML {
	waits := make([][]float64, len(replays))
	longest := 10.0
	for i := range replays {
		for k, fate := range replays[i].result.Fates {
			if fate.Refused == nil {
				waits[i] = append(waits[i], (fate.Start - w.jobs[k].Submit).Seconds())
			}
		}
		slices.Sort(waits[i])
		longest = max(longest, sim.Quantile(waits[i], 1))
	}
	scale := math.Log10(longest)
	x := func(wait float64) float64 {
		return chartLeft + (chartRight-chartLeft)*math.Log10(max(1, wait))/scale
	}
	y := func(part float64) float64 { return 8 + (plotHeight-8)*(1-part) }
	b := &strings.Builder{}
	openSVG(b, plotHeight+axisHeight, "the part of the jobs that had started after so long")
	for _, part := range []float64{0, 0.25, 0.5, 0.75, 1} {
		fmt.Fprintf(b, `<line class="grid" x1="%.0f" x2="%.0f" y1="%.1f" y2="%.1f"/><text x="%.0f" y="%.1f" text-anchor="end">%.0f %%</text>`,
			chartLeft, chartRight, y(part), y(part), chartLeft-6, y(part)+4, 100*part)
	}
	for _, seconds := range []float64{1, 10, 60, 600, 3600, 6 * 3600, 86400, 7 * 86400, 28 * 86400, 364 * 86400} {
		if seconds <= longest {
			fmt.Fprintf(b, `<line class="grid" x1="%.1f" x2="%.1f" y1="8" y2="%.0f"/><text x="%.1f" y="%.0f" text-anchor="middle">%s</text>`,
				x(seconds), x(seconds), plotHeight, x(seconds), plotHeight+15, tickText(seconds))
		}
	}
	for i := range waits {
		curve(b, waits[i], i%(colours-1), x, y)
	}
	return closeSVG(b)
}

// curve draws a distribution as steps, through so many of its points.
func curve(b *strings.Builder, sorted []float64, colour int, x, y func(float64) float64) {
	fmt.Fprintf(b, `<path class="curve s%d" d="M%.1f %.1f`, colour, chartLeft, y(0))
	n := len(sorted)
	for step := range min(n, maxCurve) {
		k := (step+1)*n/min(n, maxCurve) - 1
		fmt.Fprintf(b, "H%.1fV%.1f", x(sorted[k]), y(float64(k+1)/float64(n)))
	}
	fmt.Fprintf(b, `H%.0f"/>`, chartRight)
}

// useChart draws how many GPUs are given out over time.
func useChart(w *workload, res *sim.Result, a axis, colour int) template.HTML {
	use := useOver(w, res, a)
	b := &strings.Builder{}
	openSVG(b, useHeight+axisHeight, "GPUs given out over time")
	y := func(gpus float64) float64 {
		return 8 + (useHeight-8)*(1-min(1, gpus/float64(w.machine.GPUs)))
	}
	fmt.Fprintf(b, `<rect class="band" x="%.0f" y="8" width="%.0f" height="%.0f"/>`, chartLeft, chartRight-chartLeft, useHeight-8)
	fmt.Fprintf(b, `<path class="area f%d" d="M%.0f %.0f`, colour, chartLeft, useHeight)
	width := (chartRight - chartLeft) / useBins
	for bin, gpus := range use {
		fmt.Fprintf(b, "V%.1fH%.1f", y(gpus), chartLeft+width*float64(bin+1))
	}
	fmt.Fprintf(b, `V%.0fZ"/>`, useHeight)
	for _, gpus := range []int{0, w.machine.GPUs} {
		fmt.Fprintf(b, `<text x="%.0f" y="%.1f" text-anchor="end">%d</text>`, chartLeft-6, y(float64(gpus))+4, gpus)
	}
	a.ticks(b, useHeight)
	return closeSVG(b)
}

// useOver is the mean number of GPUs given out in each slice of the time. A
// job adds to the whole slices it spans by their first and last, so that a
// long one costs no more than a short one.
func useOver(w *workload, res *sim.Result, a axis) []float64 {
	steps, use := make([]float64, useBins+1), make([]float64, useBins)
	perBin := float64(a.last-a.first) / useBins
	for i := range res.Fates {
		fate := &res.Fates[i]
		if fate.Refused != nil {
			continue
		}
		gpus := float64(w.jobs[i].GPUs) * w.machine.Part(&w.jobs[i])
		from, to := float64(fate.Start-a.first)/perBin, float64(fate.End-a.first)/perBin
		first, last := min(int(from), useBins-1), min(int(to), useBins-1)
		if first == last {
			use[first] += gpus * (to - from)
			continue
		}
		use[first] += gpus * (float64(first+1) - from)
		use[last] += gpus * (to - float64(last))
		steps[first+1] += gpus
		steps[last] -= gpus
	}
	level := 0.0
	for bin := range use {
		level += steps[bin]
		use[bin] += level
	}
	return use
}
