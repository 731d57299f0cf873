package report

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strings"
	"time"

	"berth/internal/sched/sim"
	"berth/internal/text"
)

// Sizes of the charts, in pixels before the page scales them.
const (
	chartWidth  = 1000.0
	chartLeft   = 46.0 // of the plot, right of the labels
	chartRight  = 990.0
	plotHeight  = 220.0
	useHeight   = 80.0
	queueHeight = 40.0
	axisHeight  = 20.0
	useBins     = 470
	maxCurve    = 400 // points of one curve
	ganttHeight = 320.0
)

// axis is the time axis, which all charts of a page share so that they can be
// compared.
type axis struct {
	origin      sim.Millis // shown as 0
	first, last sim.Millis
}

func timeAxis(w *sim.Workload, replays []sim.Replayed) axis {
	a := axis{first: math.MaxInt64}
	for i := range w.Jobs {
		a.first = min(a.first, w.Jobs[i].Submit)
	}
	if w.Begin > 0 {
		a.first = w.Begin // jobs of a snapshot were submitted earlier
	}
	for i := range replays {
		for k := range replays[i].Result.Fates {
			a.last = max(a.last, replays[i].Result.Fates[k].End)
		}
	}
	a.origin, a.last = a.first, max(a.last, a.first+1)
	return a
}

func (a axis) x(m sim.Millis) float64 {
	return chartLeft + (chartRight-chartLeft)*float64(min(max(m, a.first), a.last)-a.first)/float64(a.last-a.first)
}

// ticks draws the times below a plot.
func (a axis) ticks(b *strings.Builder, bottom float64) {
	step := niceStep((a.last - a.first).Seconds() / 8)
	for s := step * math.Ceil((a.first-a.origin).Seconds()/step); a.origin+sim.MillisOf(s) <= a.last; s += step {
		x := a.x(a.origin + sim.MillisOf(s))
		fmt.Fprintf(b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/><text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`,
			x, x, bottom, bottom+4, x, bottom+15, tickText(s))
	}
}

// niceStep is the next larger round step of time.
func niceStep(seconds float64) float64 {
	for _, step := range []float64{1, 5, 15, 60, 300, 900, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 2 * 86400, 7 * 86400, 14 * 86400, 28 * 86400} {
		if step >= seconds {
			return step
		}
	}
	return 91 * 86400 * math.Ceil(seconds/(91*86400))
}

// tickText formats a time as short as possible.
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
	return text.Span(time.Duration(seconds * float64(time.Second)))
}

func openSVG(b *strings.Builder, height float64, label string) {
	fmt.Fprintf(b, `<svg viewBox="0 0 %.0f %.0f" role="img" aria-label="%s">`, chartWidth, height, html.EscapeString(label))
}

func closeSVG(b *strings.Builder) template.HTML {
	b.WriteString("</svg>")
	// Everything in it is a number or escaped.
	return template.HTML(b.String())
}

// useChart draws the GPU allocation over time and, below, the number of waiting
// jobs, scaled to the most that wait under any policy.
func useChart(w *sim.Workload, res *sim.Result, a axis, mostWait float64, colour int) template.HTML {
	b := &strings.Builder{}
	const bottom = useHeight + queueHeight
	openSVG(b, bottom+axisHeight, "GPU allocation and waiting jobs over time")
	gpus := float64(w.Machine.GPUs)
	fmt.Fprintf(b, `<rect class="band" x="%.0f" y="8" width="%.0f" height="%.0f"/>`, chartLeft, chartRight-chartLeft, useHeight-8)
	areaPath(b, useOver(w, res, a), gpus, 8, useHeight, fmt.Sprintf("area f%d", colour))
	for _, n := range []int{0, w.Machine.GPUs} {
		fmt.Fprintf(b, `<text x="%.0f" y="%.1f" text-anchor="end">%d</text>`, chartLeft-6, useHeight-(useHeight-8)*float64(n)/gpus+4, n)
	}
	areaPath(b, queueOver(w, res, a), mostWait, useHeight+6, bottom, "waiting")
	fmt.Fprintf(b, `<text x="%.0f" y="%.1f" text-anchor="end">%s</text>`, chartLeft-6, useHeight+16, text.Grouped(int(math.Ceil(mostWait))))
	a.ticks(b, bottom)
	return closeSVG(b)
}

// areaPath fills the area under a row of values; most is at the top.
func areaPath(b *strings.Builder, values []float64, most, top, bottom float64, class string) {
	fmt.Fprintf(b, `<path class="%s" d="M%.0f %.1f`, class, chartLeft, bottom)
	width, last := (chartRight-chartLeft)/float64(len(values)), math.NaN()
	for bin, value := range values {
		y := bottom - (bottom-top)*min(1, value/max(most, 1e-9))
		if math.Abs(y-last) < 0.05 {
			continue
		}
		fmt.Fprintf(b, "H%.1fV%.1f", chartLeft+width*float64(bin), y)
		last = y
	}
	fmt.Fprintf(b, `H%.0fV%.1fZ"/>`, chartRight, bottom)
}

// useOver is the mean number of allocated GPUs in each slice of the time.
func useOver(w *sim.Workload, res *sim.Result, a axis) []float64 {
	use := newSlices(a)
	for i := range res.Fates {
		gpus := float64(w.Jobs[i].GPUs) * w.Machine.Part(&w.Jobs[i])
		for _, s := range res.Fates[i].Segments {
			use.add(s.Start, s.End, gpus)
		}
	}
	return use.means()
}

// queueOver is the mean number of waiting jobs in each slice, parked ones
// included.
func queueOver(w *sim.Workload, res *sim.Result, a axis) []float64 {
	queue := newSlices(a)
	for i := range res.Fates {
		fate := &res.Fates[i]
		if fate.Refused != nil {
			continue
		}
		since := w.Jobs[i].Submit
		for _, s := range fate.Segments {
			queue.add(since, s.Start, 1)
			since = s.End
		}
		if fate.Unfinished {
			queue.add(since, a.last, 1)
		}
	}
	return queue.means()
}

// timeSlices add up an amount over equal slices of the time. An amount that
// spans many slices is entered at the first and the last only, so that a long
// job costs no more than a short one.
type timeSlices struct {
	axis   axis
	perBin float64
	steps  []float64 // how the level changes at the start of a slice
	parts  []float64 // amounts for a part of a slice
}

func newSlices(a axis) *timeSlices {
	return &timeSlices{axis: a, perBin: float64(a.last-a.first) / useBins, steps: make([]float64, useBins+1), parts: make([]float64, useBins)}
}

func (t *timeSlices) add(from, to sim.Millis, amount float64) {
	from, to = max(from, t.axis.first), min(to, t.axis.last)
	if to <= from {
		return
	}
	begin, end := float64(from-t.axis.first)/t.perBin, float64(to-t.axis.first)/t.perBin
	first, last := min(int(begin), useBins-1), min(int(end), useBins-1)
	if first == last {
		t.parts[first] += amount * (end - begin)
		return
	}
	t.parts[first] += amount * (float64(first+1) - begin)
	t.parts[last] += amount * (end - float64(last))
	t.steps[first+1] += amount
	t.steps[last] -= amount
}

func (t *timeSlices) means() []float64 {
	level := 0.0
	for bin := range t.parts {
		level += t.steps[bin]
		t.parts[bin] = max(0, t.parts[bin]+level)
	}
	return t.parts
}
