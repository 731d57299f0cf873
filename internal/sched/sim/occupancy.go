package sim

import "slices"

// occupancy is how much of each card is allocated, and which demands wait. It
// only measures allocation and fragmentation; it decides nothing.
type occupancy struct {
	taken   []int64 // on each card, in parts
	waiting map[demand]int
}

// demand is what a waiting job needs: a number of cards, and a part of each.
type demand struct {
	gpus int
	part int64
}

func newOccupancy(cards int) occupancy {
	return occupancy{taken: make([]int64, cards), waiting: map[demand]int{}}
}

// take allocates a part of some cards, or frees it if part is negative.
func (o *occupancy) take(cards []int, part int64) {
	for _, c := range cards {
		o.taken[c] += part
	}
}

// wait counts jobs that wait for cards.
func (o *occupancy) wait(d demand, more int) {
	if d.gpus < 1 {
		return
	}
	if o.waiting[d] += more; o.waiting[d] == 0 {
		delete(o.waiting, d)
	}
}

// free is the free part of a card. Shares and memory are counted separately, so
// a share and a declaration together may exceed the whole.
func (o *occupancy) free(card int) int64 { return max(0, wholeCard-o.taken[card]) }

func (o *occupancy) freeParts() int64 {
	free := int64(0)
	for c := range o.taken {
		free += o.free(c)
	}
	return free
}

func (o *occupancy) freeGPUs() float64 { return float64(o.freeParts()) / wholeCard }

func (o *occupancy) takenGPUs() float64 { return float64(len(o.taken)) - o.freeGPUs() }

// fragmented reports whether a waiting job needs no more than is free in total,
// but too few single cards have enough room.
func (o *occupancy) fragmented() bool {
	if len(o.waiting) == 0 {
		return false
	}
	total := o.freeParts()
	free := make([]int64, len(o.taken))
	for c := range o.taken {
		free[c] = o.free(c)
	}
	slices.Sort(free)
	for d := range o.waiting {
		if int64(d.gpus)*d.part <= total && (d.gpus > len(free) || free[len(free)-d.gpus] < d.part) {
			return true
		}
	}
	return false
}
