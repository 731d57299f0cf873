package sim

import "slices"

// floor is how much of each card is taken, and which demands wait. It decides
// nothing; it is there to measure what was given out and what lay idle.
type floor struct {
	taken   []int64 // of each card, in parts
	waiting map[demand]int
}

// demand is what a waiting job needs: so many cards, so much of each.
type demand struct {
	gpus int
	part int64
}

func newFloor(cards int) floor {
	return floor{taken: make([]int64, cards), waiting: map[demand]int{}}
}

// take gives out a part of some cards, or takes it back.
func (f *floor) take(cards []int, part int64) {
	for _, c := range cards {
		f.taken[c] += part
	}
}

// wait counts jobs that wait for cards.
func (f *floor) wait(d demand, more int) {
	if d.gpus < 1 {
		return
	}
	if f.waiting[d] += more; f.waiting[d] == 0 {
		delete(f.waiting, d)
	}
}

// free is what is left of a card. Shares and memory are different things, so
// that a share and a declaration may together take up more than the whole.
func (f *floor) free(card int) int64 { return max(0, wholeCard-f.taken[card]) }

func (f *floor) freeParts() int64 {
	free := int64(0)
	for c := range f.taken {
		free += f.free(c)
	}
	return free
}

func (f *floor) freeGPUs() float64 { return float64(f.freeParts()) / wholeCard }

func (f *floor) takenGPUs() float64 { return float64(len(f.taken)) - f.freeGPUs() }

// fragmented reports that a job waits which needs no more than is free in
// all, and yet there are not cards enough with as much as it needs of each.
func (f *floor) fragmented() bool {
	if len(f.waiting) == 0 {
		return false
	}
	total := f.freeParts()
	free := make([]int64, len(f.taken))
	for c := range f.taken {
		free[c] = f.free(c)
	}
	slices.Sort(free)
	for d := range f.waiting {
		if int64(d.gpus)*d.part <= total && (d.gpus > len(free) || free[len(free)-d.gpus] < d.part) {
			return true
		}
	}
	return false
}
