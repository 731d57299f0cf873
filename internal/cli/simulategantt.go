package cli

import (
	"cmp"
	"fmt"
	"html"
	"html/template"
	"slices"
	"strings"

	"berth/internal/sim"
)

// block is a job on one card.
type block struct {
	job, card  int
	start, end sim.Millis
	low, part  float64 // where on the card it lies, from 0 to 1, and how much of it
}

// ganttChart draws what ran where. However many jobs there are, its size is
// bounded: the largest blocks are drawn, the rest is run together.
func ganttChart(w *workload, res *sim.Result, a axis, paint palette) template.HTML {
	blocks := layOut(w, res)
	drawn, rest := largest(blocks, a)
	row := max(4, min(26, ganttHeight/float64(w.machine.GPUs)))
	bottom := row * float64(w.machine.GPUs)
	b := &strings.Builder{}
	openSVG(b, bottom+axisHeight, "jobs on the cards over time")
	for card := range w.machine.GPUs {
		y := row * float64(card)
		fmt.Fprintf(b, `<rect class="band" x="%.0f" y="%.1f" width="%.0f" height="%.1f"/>`, chartLeft, y, chartRight-chartLeft, row-1)
		if row >= 12 {
			fmt.Fprintf(b, `<text x="%.0f" y="%.1f" text-anchor="end">gpu%d</text>`, chartLeft-6, y+row/2+3, card)
		}
	}
	runTogether(b, rest, a, w.machine.GPUs, row)
	for i := range drawn {
		drawBlock(b, w, &drawn[i], res, a, row, paint)
	}
	a.ticks(b, bottom)
	return closeSVG(b)
}

func drawBlock(b *strings.Builder, w *workload, k *block, res *sim.Result, a axis, row float64, paint palette) {
	j, fate := &w.jobs[k.job], &res.Fates[k.job]
	x, height := a.x(k.start), (row-1)*k.part
	// A hair less than its width, so that blocks of one colour stay apart.
	width := max(0.8, a.x(k.end)-x-0.4)
	about := fmt.Sprintf("%s, %s: waited %s, ran %s on %s", printable(clip(j.ID)), userText(j.User),
		figureText(sim.Seconds, (fate.Start-j.Submit).Seconds()), figureText(sim.Seconds, (fate.End-fate.Start).Seconds()), plural(j.GPUs, "GPU"))
	fmt.Fprintf(b, `<rect class="f%d" x="%.1f" y="%.1f" width="%.1f" height="%.1f"><title>%s</title></rect>`,
		paint.of(j), x, row*float64(k.card)+(row-1)*k.low, width, height, html.EscapeString(about))
}

// layOut gives each job its place on its cards: the lowest that is free while
// it runs. Shares and memory together may ask for more than a card has; then
// blocks overlap.
func layOut(w *workload, res *sim.Result) []block {
	var blocks []block
	for i := range res.Fates {
		fate := &res.Fates[i]
		for _, card := range fate.Cards {
			if fate.End > fate.Start {
				blocks = append(blocks, block{job: i, card: card, start: fate.Start, end: fate.End, part: w.machine.Part(&w.jobs[i])})
			}
		}
	}
	slices.SortFunc(blocks, func(a, b block) int {
		return cmp.Or(cmp.Compare(a.card, b.card), cmp.Compare(a.start, b.start), cmp.Compare(a.job, b.job))
	})
	var there []*block // on the card, ascending by low
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

// largest parts the blocks that are drawn from those that are run together:
// nothing under a pixel is drawn, and nothing beyond the bound.
func largest(blocks []block, a axis) (drawn, rest []block) {
	pixel := sim.Millis(float64(a.last-a.first) / (chartRight - chartLeft))
	lengths := make([]sim.Millis, len(blocks))
	for i := range blocks {
		lengths[i] = blocks[i].end - blocks[i].start
	}
	slices.SortFunc(lengths, func(a, b sim.Millis) int { return cmp.Compare(b, a) })
	least := pixel
	if len(lengths) > maxBlocks {
		least = max(least, lengths[maxBlocks]+1)
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

// runTogether draws for each card how much of it small jobs took, pixel by
// pixel, from the bottom of its row.
func runTogether(b *strings.Builder, rest []block, a axis, cards int, row float64) {
	columns := int(chartRight-chartLeft) * 16 / max(16, cards) // many cards, coarser
	taken := make([][]float64, cards)
	per := float64(a.last-a.first) / float64(columns)
	for _, k := range rest {
		if taken[k.card] == nil {
			taken[k.card] = make([]float64, columns)
		}
		from, to := float64(k.start-a.first)/per, float64(k.end-a.first)/per
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
			// In steps of an eighth: more cannot be seen.
			if level := min(1, float64(int(part*8+0.5))/8); level != last {
				fmt.Fprintf(b, "H%.1fV%.1f", chartLeft+width*float64(i), bottom-(row-1)*level)
				last = level
			}
		}
		fmt.Fprintf(b, `H%.0fV%.1fZ"/>`, chartRight, bottom)
	}
}
