package report

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"slices"
	"strings"

	"berth/internal/sched/sim"
	"berth/internal/text"
)

// waitOf is how long a job made no progress between its submission and its end:
// before it started, and while it was parked.
func waitOf(j *sim.Job, fate *sim.Fate) float64 {
	ran := j.Duration
	if fate.TimedOut {
		ran = j.Limit
	}
	return max(0, (fate.End - j.Submit - ran).Seconds())
}

// ended reports whether a job ran to its end, and is in the figures.
func ended(fate *sim.Fate) bool { return fate.Refused == nil && !fate.Unfinished }

// waitsOf are the waits of a replay, the shortest first.
func waitsOf(w *sim.Workload, res *sim.Result) []float64 {
	waits := make([]float64, 0, len(res.Fates))
	for i := range res.Fates {
		if fate := &res.Fates[i]; ended(fate) {
			waits = append(waits, waitOf(&w.Jobs[i], fate))
		}
	}
	slices.Sort(waits)
	return waits
}

// waitBands group waits by length, each up to this many seconds.
var waitBands = []struct {
	name string
	upTo float64
}{
	{"immediately", 1}, {"within a minute", 60}, {"10 minutes", 600}, {"an hour", 3600},
	{"6 hours", 6 * 3600}, {"a day", 86400}, {"3 days", 3 * 86400}, {"longer", math.Inf(1)},
}

// bandKey names the bands' colours.
func bandKey() []keyEntry {
	key := make([]keyEntry, len(waitBands))
	for i, band := range waitBands {
		key[i] = keyEntry{band.name, i}
	}
	return key
}

// bandChart draws the share of jobs in each band, for each policy.
func bandChart(w *sim.Workload, replays []sim.Replayed) template.HTML {
	const row, left = 30.0, 110.0
	b := &strings.Builder{}
	openSVG(b, row*float64(len(replays)), "share of jobs by waiting time")
	for i := range replays {
		waits := waitsOf(w, &replays[i].Result)
		y, before := row*float64(i), 0
		fmt.Fprintf(b, `<text class="name" x="%.0f" y="%.1f" text-anchor="end">%s</text>`, left-10, y+row/2+4, html.EscapeString(replays[i].Policy))
		for k, band := range waitBands {
			upTo, _ := slices.BinarySearch(waits, math.Nextafter(band.upTo, math.Inf(1)))
			count := upTo - before
			if count == 0 {
				continue
			}
			part := float64(count) / float64(len(waits))
			from := left + (chartRight-left)*float64(before)/float64(len(waits))
			width := (chartRight - left) * part
			fmt.Fprintf(b, `<rect class="w%d" x="%.1f" y="%.1f" width="%.1f" height="%.1f"><title>%s: %s of %s started %s</title></rect>`,
				k, from, y+2, max(0.5, width-0.6), row-5, html.EscapeString(replays[i].Policy), text.Grouped(count), text.CountGrouped(len(waits), "job"), bandText(k))
			if width > 34 {
				fmt.Fprintf(b, `<text class="on w%dt" x="%.1f" y="%.1f" text-anchor="middle">%.0f %%</text>`, k, from+width/2, y+row/2+4, 100*part)
			}
			before = upTo
		}
	}
	return closeSVG(b)
}

func bandText(k int) string {
	switch k {
	case 0, 1:
		return waitBands[k].name
	case len(waitBands) - 1:
		return "after more than " + waitBands[k-1].name
	}
	return "within " + waitBands[k].name
}

// waitChart draws the cumulative distribution of waits for each policy, on a
// logarithmic scale that begins at one second.
func waitChart(w *sim.Workload, replays []sim.Replayed) template.HTML {
	waits := make([][]float64, len(replays))
	longest := 10.0
	for i := range replays {
		waits[i] = waitsOf(w, &replays[i].Result)
		longest = max(longest, sim.Quantile(waits[i], 1))
	}
	scale := math.Log10(longest)
	x := func(wait float64) float64 {
		return chartLeft + (chartRight-chartLeft)*math.Log10(max(1, wait))/scale
	}
	y := func(part float64) float64 { return 8 + (plotHeight-8)*(1-part) }
	b := &strings.Builder{}
	openSVG(b, plotHeight+axisHeight, "share of jobs that waited at most this long")
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
		curve(b, waits[i], i%policyColours, replays[i].Policy, x, y)
	}
	return closeSVG(b)
}

// curve draws a distribution as steps, through at most maxCurve points.
func curve(b *strings.Builder, sorted []float64, colour int, name string, x, y func(float64) float64) {
	fmt.Fprintf(b, `<path class="curve s%d" d="M%.1f %.1f`, colour, chartLeft, y(0))
	n := len(sorted)
	for step := range min(n, maxCurve) {
		k := (step+1)*n/min(n, maxCurve) - 1
		fmt.Fprintf(b, "H%.1fV%.1f", x(sorted[k]), y(float64(k+1)/float64(n)))
	}
	fmt.Fprintf(b, `H%.0f"><title>%s</title></path>`, chartRight, html.EscapeString(name))
}

// maxDots bounds how many users are drawn for one policy.
const maxDots = 400

// userChart draws each user as a dot at their mean slowdown; the wider a row,
// the less evenly users fared. It is empty for a single user.
func userChart(w *sim.Workload, replays []sim.Replayed) (chart template.HTML, leftOut int) {
	fared := make([][]userFared, len(replays))
	worst := 10.0
	for i := range replays {
		fared[i] = userSlowdowns(w, &replays[i].Result)
		for _, u := range fared[i] {
			worst = max(worst, u.slowdown)
		}
	}
	if len(fared[0]) < 2 {
		return "", 0
	}
	const row, left = 34.0, 110.0
	scale := math.Log10(worst)
	x := func(slowdown float64) float64 {
		return left + (chartRight-14-left)*math.Log10(max(1, slowdown))/scale
	}
	bottom := row * float64(len(replays))
	b := &strings.Builder{}
	openSVG(b, bottom+axisHeight, "users by the mean slowdown of their jobs")
	for power := 0; float64(power) <= scale; power++ {
		at := x(math.Pow10(power))
		fmt.Fprintf(b, `<line class="grid" x1="%.1f" x2="%.1f" y1="0" y2="%.1f"/><text x="%.1f" y="%.1f" text-anchor="middle">×%s</text>`,
			at, at, bottom, at, bottom+15, text.Grouped(int(math.Pow10(power))))
	}
	for i := range fared {
		y := row*float64(i) + row/2
		fmt.Fprintf(b, `<text class="name" x="%.0f" y="%.1f" text-anchor="end">%s</text>`, left-10, y+4, html.EscapeString(replays[i].Policy))
		drawn := fared[i]
		if leftOut = len(drawn) - maxDots; leftOut > 0 {
			drawn = drawn[:maxDots]
		}
		for _, u := range drawn {
			radius := 3 + 6*math.Sqrt(u.part)
			fmt.Fprintf(b, `<circle class="dot f%d" cx="%.1f" cy="%.1f" r="%.1f"><title>%s, %s: mean slowdown %s, %.1f %% of the GPU time</title></circle>`,
				i%policyColours, x(u.slowdown), y, radius, html.EscapeString(userText(u.name)), text.CountGrouped(u.jobs, "job"), figureText(sim.Number, u.slowdown), 100*u.part)
		}
	}
	return closeSVG(b), max(0, leftOut)
}

// userFared is how the jobs of one user fared.
type userFared struct {
	name     string
	jobs     int
	slowdown float64 // the mean
	part     float64 // share of all GPU time
}

// userSlowdowns lists the users with the most GPU time first.
func userSlowdowns(w *sim.Workload, res *sim.Result) []userFared {
	const floorS = 10 // of the bounded slowdown
	area, all := map[string]float64{}, 0.0
	slowdowns, jobs := map[string]float64{}, map[string]int{}
	for i := range res.Fates {
		j, fate := &w.Jobs[i], &res.Fates[i]
		if !ended(fate) {
			continue
		}
		wait, flow := waitOf(j, fate), (fate.End - j.Submit).Seconds()
		slowdowns[j.User] += max(1, flow/max(flow-wait, floorS))
		jobs[j.User]++
		gpuSeconds := float64(j.GPUs) * w.Machine.Part(j) * (flow - wait)
		area[j.User] += gpuSeconds
		all += gpuSeconds
	}
	users := byArea(area)
	fared := make([]userFared, len(users))
	for i, user := range users {
		fared[i] = userFared{name: user, jobs: jobs[user], slowdown: slowdowns[user] / float64(jobs[user]), part: area[user] / max(all, 1)}
	}
	return fared
}
