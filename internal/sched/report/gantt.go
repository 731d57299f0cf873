package report

import (
	"cmp"
	"fmt"
	"html"
	"html/template"
	"slices"
	"strings"

	"berth/internal/sched/sim"
	"berth/internal/text"
)

// block is a job on one card for one segment.
type block struct {
	job, card  int
	start, end sim.Millis
	low, part  float64 // its position on the card, from 0 to 1, and its part of the card
}

// absence is a time during which a job is parked: it holds no card, and may
// resume on another.
type absence struct {
	job, card  int // the card it left
	start, end sim.Millis
}

// gantt is a timeline of the jobs on the cards, and what it leaves out.
type gantt struct {
	Chart  template.HTML
	Left   string // a sentence about merged blocks; may be empty
	Closer template.HTML
}

// maxPageBlocks bounds the page: the charts of all policies share it. The
// smallest blocks beyond it are merged.
const (
	maxPageBlocks = 9000
	maxBlocks     = 3000 // of one chart
)

// ganttChart draws which job ran on which card. Its size is bounded: it draws the
// largest blocks and merges the rest. If it merges most of them, it draws the
// busiest stretch again by itself.
func ganttChart(w *sim.Workload, res *sim.Result, a, busiest axis, paint palette, most int) gantt {
	blocks := layOut(w, res)
	chart, drawn := ganttOf(w, res, blocks, a, paint, most)
	g := gantt{Chart: chart}
	if drawn < len(blocks) {
		g.Left = fmt.Sprintf("%s of %s are drawn; the others are too short and merged in grey.", text.Grouped(drawn), text.CountGrouped(len(blocks), "block"))
	}
	if drawn < len(blocks)/2 {
		g.Closer, _ = ganttOf(w, res, busiest.within(blocks), busiest, paint, most/2)
	}
	return g
}

// within are the blocks on the axis.
func (a axis) within(blocks []block) []block {
	var within []block
	for _, k := range blocks {
		if k.end > a.first && k.start < a.last {
			within = append(within, k)
		}
	}
	return within
}

// busiestStretch is the sixteenth of the time in which most jobs start, of all
// policies together.
func busiestStretch(replays []sim.Replayed, a axis) axis {
	const bins, wide = 64, 4
	starts := make([]int, bins)
	for i := range replays {
		for k := range replays[i].Result.Fates {
			for _, s := range replays[i].Result.Fates[k].Segments {
				if s.Start >= a.first {
					starts[min(bins-1, int(float64(s.Start-a.first)*bins/float64(a.last-a.first)))]++
				}
			}
		}
	}
	best, most := 0, -1
	for from := range bins - wide + 1 {
		sum := 0
		for _, n := range starts[from : from+wide] {
			sum += n
		}
		if sum > most {
			best, most = from, sum
		}
	}
	length := float64(a.last - a.first)
	first := a.first + sim.Millis(length*float64(best)/bins)
	return axis{origin: a.origin, first: first, last: max(first+1, a.first+sim.Millis(length*float64(best+wide)/bins))}
}

// ganttOf draws blocks, and returns how many it did not merge.
func ganttOf(w *sim.Workload, res *sim.Result, blocks []block, a axis, paint palette, most int) (chart template.HTML, count int) {
	drawn, rest := largest(blocks, a, most)
	row := max(4, min(30, ganttHeight/float64(w.Machine.GPUs)))
	bottom := row * float64(w.Machine.GPUs)
	b := &strings.Builder{}
	openSVG(b, bottom+axisHeight, "jobs on the GPUs over time")
	for card := range w.Machine.GPUs {
		y := row * float64(card)
		fmt.Fprintf(b, `<rect class="band" x="%.0f" y="%.1f" width="%.0f" height="%.1f"/>`, chartLeft, y, chartRight-chartLeft, row-1)
		if row >= 12 {
			fmt.Fprintf(b, `<text x="%.0f" y="%.1f" text-anchor="end">gpu%d</text>`, chartLeft-6, y+row/2+3, w.CardName(card))
		}
	}
	drawMerged(b, rest, a, w.Machine.GPUs, row)
	drawJobs(b, w, res, drawn, absencesOf(res, a, most/2), a, row, paint)
	a.ticks(b, bottom)
	return closeSVG(b), len(drawn)
}

// drawJobs draws the blocks of each job as one group, so that pointing at one
// highlights all.
func drawJobs(b *strings.Builder, w *sim.Workload, res *sim.Result, drawn []block, absences []absence, a axis, row float64, paint palette) {
	slices.SortStableFunc(drawn, func(a, b block) int { return cmp.Compare(a.job, b.job) })
	for len(drawn) > 0 {
		job := drawn[0].job
		fmt.Fprintf(b, `<g class="job f%d"><title>%s</title>`, paint.of(&w.Jobs[job]), html.EscapeString(fateText(&w.Jobs[job], &res.Fates[job])))
		for ; len(absences) > 0 && absences[0].job <= job; absences = absences[1:] {
			if g := absences[0]; g.job == job {
				fmt.Fprintf(b, `<rect class="gap" x="%.1f" y="%.1f" width="%.1f" height="2"/>`, a.x(g.start), row*float64(g.card)+row/2-1, a.x(g.end)-a.x(g.start))
			}
		}
		for ; len(drawn) > 0 && drawn[0].job == job; drawn = drawn[1:] {
			k := drawn[0]
			x := a.x(k.start)
			// A little narrower, so that blocks of one colour stay apart.
			fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`,
				x, row*float64(k.card)+(row-1)*k.low, max(0.8, a.x(k.end)-x-0.4), (row-1)*k.part)
		}
		b.WriteString("</g>")
	}
}

// fateText describes a job and what happened to it.
func fateText(j *sim.Job, fate *sim.Fate) string {
	start := "started immediately"
	if wait := fate.Start - j.Submit; wait > 0 {
		start = fmt.Sprintf("started after %s", figureText(sim.Seconds, wait.Seconds()))
	}
	about := fmt.Sprintf("%s, %s: %s, %s of work", text.Cut(text.Line(j.ID), maxWord), userText(j.User), text.CountGrouped(j.GPUs, "GPU"), figureText(sim.Seconds, j.Duration.Seconds()))
	if j.Share > 0 {
		about += fmt.Sprintf(", %.0f %% of a GPU", 100*j.Share)
	}
	about += "; " + start
	if fate.Preemptions > 0 {
		about += fmt.Sprintf("; preempted %s", times(fate.Preemptions))
	}
	if fate.OOMs > 0 {
		about += fmt.Sprintf("; ran out of memory %s", times(fate.OOMs))
	}
	switch {
	case fate.Unfinished:
		return about + "; never finished"
	case fate.TimedOut:
		about += "; ended by its time limit"
	}
	if wait := waitOf(j, fate); fate.Preemptions > 0 && wait > 0 {
		about += fmt.Sprintf("; waited %s in total", figureText(sim.Seconds, wait))
	}
	return about
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return text.Grouped(n) + " times"
}

// layOut gives each job the lowest free position on its cards. Blocks overlap if
// shares and memory together exceed a card.
func layOut(w *sim.Workload, res *sim.Result) []block {
	var blocks []block
	for i := range res.Fates {
		part := w.Machine.Part(&w.Jobs[i])
		for _, s := range res.Fates[i].Segments {
			for _, card := range s.Cards {
				if s.End > s.Start {
					blocks = append(blocks, block{job: i, card: card, start: s.Start, end: s.End, part: part})
				}
			}
		}
	}
	slices.SortFunc(blocks, func(a, b block) int {
		return cmp.Or(cmp.Compare(a.card, b.card), cmp.Compare(a.start, b.start), cmp.Compare(a.job, b.job))
	})
	var there []*block // now on the card, ascending by low
	for i := range blocks {
		k := &blocks[i]
		there = slices.DeleteFunc(there, func(other *block) bool { return other.card != k.card || other.end <= k.start })
		place := 0
		for place < len(there) && there[place].low-k.low < k.part-1e-9 {
			k.low = there[place].low + there[place].part
			place++
		}
		k.low = max(0, min(k.low, 1-k.part))
		there = slices.Insert(there, place, k)
		slices.SortStableFunc(there, func(a, b *block) int { return cmp.Compare(a.low, b.low) })
	}
	return blocks
}

// absencesOf are the longest times for which jobs were parked, by job.
func absencesOf(res *sim.Result, a axis, most int) []absence {
	var absences []absence
	pixel := a.pixel()
	for i := range res.Fates {
		segments := res.Fates[i].Segments
		for k := 1; k < len(segments); k++ {
			left, back := segments[k-1], segments[k]
			gone, again := max(left.End, a.first), min(back.Start, a.last)
			if again-gone >= pixel && len(left.Cards) > 0 {
				absences = append(absences, absence{job: i, card: left.Cards[0], start: gone, end: again})
			}
		}
	}
	slices.SortFunc(absences, func(a, b absence) int {
		return cmp.Or(cmp.Compare(b.end-b.start, a.end-a.start), cmp.Compare(a.job, b.job), cmp.Compare(a.start, b.start))
	})
	absences = absences[:min(len(absences), most)]
	slices.SortStableFunc(absences, func(a, b absence) int { return cmp.Compare(a.job, b.job) })
	return absences
}

// pixel is the time that one pixel covers.
func (a axis) pixel() sim.Millis {
	return sim.Millis(float64(a.last-a.first) / (chartRight - chartLeft))
}

// largest separates the blocks to draw from those to merge: it merges blocks
// under half a pixel, and the smallest ones beyond the bound.
func largest(blocks []block, a axis, most int) (drawn, rest []block) {
	lengths := make([]sim.Millis, len(blocks))
	for i := range blocks {
		lengths[i] = blocks[i].end - blocks[i].start
	}
	slices.SortFunc(lengths, func(a, b sim.Millis) int { return cmp.Compare(b, a) })
	least := max(1, a.pixel()/2) // pages are often shown wider
	if len(lengths) > most {
		least = max(least, lengths[most]+1)
	}
	for _, k := range blocks {
		if k.end-k.start >= least {
			drawn = append(drawn, k)
		} else {
			rest = append(rest, k)
		}
	}
	return drawn, rest
}

// drawMerged draws how much of each card the merged blocks took, pixel by pixel,
// from the bottom of its row.
func drawMerged(b *strings.Builder, rest []block, a axis, cards int, row float64) {
	columns := int(chartRight-chartLeft) * 16 / max(16, cards) // coarser for many cards
	taken := make([][]float64, cards)
	per := float64(a.last-a.first) / float64(columns)
	for _, k := range rest {
		if taken[k.card] == nil {
			taken[k.card] = make([]float64, columns)
		}
		from, to := float64(max(k.start, a.first)-a.first)/per, float64(k.end-a.first)/per
		for column := int(from); column < columns && float64(column) < to; column++ {
			covered := min(to, float64(column+1)) - max(from, float64(column))
			taken[k.card][column] += covered * k.part
		}
	}
	width := (chartRight - chartLeft) / float64(columns)
	for card, column := range taken {
		if column == nil {
			continue
		}
		bottom := row*float64(card+1) - 1
		last := 0.0
		fmt.Fprintf(b, `<path class="mixed" d="M%.0f %.1f`, chartLeft, bottom)
		for i, part := range column {
			// In steps of an eighth: finer ones are not visible.
			if level := min(1, float64(int(part*8+0.5))/8); level != last {
				fmt.Fprintf(b, "H%.1fV%.1f", chartLeft+width*float64(i), bottom-(row-1)*level)
				last = level
			}
		}
		fmt.Fprintf(b, `H%.0fV%.1fZ"/>`, chartRight, bottom)
	}
}
