package sched

import (
	"math"
	"slices"
)

// maxCombinations bounds the search for the best connected cards. Beyond it
// the choice is greedy: good, not always the best.
const maxCombinations = 20000

// merit is how good a set of cards is. Connection comes first, because it decides
// how fast the job runs; the fit decides what is left for others.
type merit struct {
	links    int // NVLinks between the cards
	sameNUMA int // pairs on one NUMA node
	near     int // how close the pairs are on the PCIe bus
	leftMiB  int64
	shares   int64 // allocated there already, in millionths: decides between equal memory
	parked   int64 // MiB that are bound to come back there: decides last
}

func (m merit) plus(o merit) merit {
	return merit{m.links + o.links, m.sameNUMA + o.sameNUMA, m.near + o.near, m.leftMiB + o.leftMiB, m.shares + o.shares, m.parked + o.parked}
}

// chooser picks n of the options, which are ascending by card index.
type chooser struct {
	options []option
	n       int
	spread  bool
	own     []merit // of each option by itself
	pairs   []merit // of each pair of options, row by row; nil where only the fit decides

	picked []int // during the search
	best   []int
	merit  merit
}

// choose picks the best n cards. Of equals it takes the lowest indices.
func choose(options []option, n int, placement Placement) []option {
	if n == len(options) {
		return options // eight of eight: no choice
	}
	c := newChooser(options, n, placement)
	if n < 2 || alike(options) {
		c.fittest()
	} else if c.connect(); combinations(len(options), n) <= maxCombinations {
		c.search(0, merit{})
	} else {
		c.greedy()
	}
	chosen := make([]option, n)
	for i, k := range c.best {
		chosen[i] = options[k]
	}
	return chosen
}

func newChooser(options []option, n int, placement Placement) *chooser {
	c := &chooser{options: options, n: n, spread: placement == Spread, own: make([]merit, len(options))}
	for i := range options {
		// Whole millionths: sums of shares that differ in the last bit are a tie.
		c.own[i] = merit{leftMiB: options[i].leftMiB, shares: int64(math.Round(options[i].slot.shares * 1e6)), parked: options[i].slot.ParkedMiB}
	}
	return c
}

// connect computes how well each pair of cards is connected.
func (c *chooser) connect() {
	c.pairs = make([]merit, 0, len(c.options)*len(c.options))
	for i := range c.options {
		for k := range c.options {
			c.pairs = append(c.pairs, connection(c.options[i].slot, c.options[k].slot))
		}
	}
}

// alike reports that all pairs of cards are connected equally well.
func alike(options []option) bool {
	if !slices.ContainsFunc(options, func(o option) bool {
		return len(o.slot.Links)+len(o.slot.Near) > 0 || o.slot.NUMA != options[0].slot.NUMA
	}) {
		return true // all pairs need not be looked at
	}
	first := connection(options[1].slot, options[0].slot)
	for i := range options {
		for k := range i {
			if connection(options[i].slot, options[k].slot) != first {
				return false
			}
		}
	}
	return true
}

// fittest takes the cards that fit best, each on its own.
func (c *chooser) fittest() {
	order := make([]int, len(c.options))
	for k := range order {
		order[k] = k
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case c.better(c.own[a], c.own[b]):
			return -1
		case c.better(c.own[b], c.own[a]):
			return 1
		}
		return 0
	})
	c.best = order[:c.n]
	slices.Sort(c.best)
}

// connection is how well two cards are connected.
func connection(a, b *slot) (m merit) {
	m.links = max(a.Links[b.Index], b.Links[a.Index])
	if a.NUMA >= 0 && a.NUMA == b.NUMA {
		m.sameNUMA = 1
	}
	m.near = max(a.Near[b.Index], b.Near[a.Index])
	return m
}

// better reports whether a is worth more than b.
func (c *chooser) better(a, b merit) bool {
	switch {
	case a.links != b.links:
		return a.links > b.links
	case a.sameNUMA != b.sameNUMA:
		return a.sameNUMA > b.sameNUMA
	case a.near != b.near:
		return a.near > b.near
	case a.leftMiB != b.leftMiB:
		return (a.leftMiB < b.leftMiB) != c.spread
	case a.shares != b.shares:
		return (a.shares > b.shares) != c.spread
	}
	return a.parked < b.parked
}

// search tries every set in ascending order of indices, so that the first of
// equals is the one with the lowest.
func (c *chooser) search(from int, so merit) {
	if len(c.picked) == c.n {
		c.keep(so)
		return
	}
	missing := c.n - len(c.picked)
	for k := from; k <= len(c.options)-missing; k++ {
		with := so.plus(c.gain(k))
		c.picked = append(c.picked, k)
		c.search(k+1, with)
		c.picked = c.picked[:len(c.picked)-1]
	}
}

// greedy grows a set from each card in turn, always by the card that adds
// most, and keeps the best of them.
func (c *chooser) greedy() {
	total := len(c.options)
	gains, taken := make([]merit, total), make([]bool, total)
	for seed := range c.options {
		copy(gains, c.own)
		clear(taken)
		c.picked = c.picked[:0]
		var so merit
		for pick := seed; ; pick = c.most(gains, taken) {
			so, taken[pick] = so.plus(gains[pick]), true
			c.picked = append(c.picked, pick)
			if len(c.picked) == c.n {
				break
			}
			for k := range gains {
				gains[k] = gains[k].plus(c.pairs[k*total+pick])
			}
		}
		slices.Sort(c.picked)
		c.keep(so)
	}
}

// most is the option that adds most, of those that are not taken.
func (c *chooser) most(gains []merit, taken []bool) int {
	pick := -1
	for k := range gains {
		if !taken[k] && (pick < 0 || c.better(gains[k], gains[pick])) {
			pick = k
		}
	}
	return pick
}

// gain is what option k adds to those picked.
func (c *chooser) gain(k int) merit {
	m := c.own[k]
	for _, other := range c.picked {
		m = m.plus(c.pairs[k*len(c.options)+other])
	}
	return m
}

// keep remembers the picked set if it beats the best so far.
func (c *chooser) keep(m merit) {
	if c.best == nil || c.better(m, c.merit) {
		c.best, c.merit = slices.Clone(c.picked), m
	}
}

// combinations counts the sets of n out of total, or gives a number above
// maxCombinations once it is certain to be one.
func combinations(total, n int) int {
	n = min(n, total-n)
	count := 1
	for i := 1; i <= n; i++ {
		count = count * (total - n + i) / i
		if count > maxCombinations {
			return count
		}
	}
	return count
}
