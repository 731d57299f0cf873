package sched

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"berth/internal/job"
)

func TestChoice(t *testing.T) {
	spread := func(r *Rules) { r.Placement = Spread }
	fuller := func(foreignMiB ...int64) []Card {
		cards := cardsOf(make([]int64, len(foreignMiB))...)
		for i := range cards {
			cards[i].TotalMiB, cards[i].ForeignMiB = gib24, foreignMiB[i]
		}
		return cards
	}
	linked := func(cards []Card, links int, pairs ...[2]int) []Card {
		for _, p := range pairs {
			if cards[p[0]].Links == nil {
				cards[p[0]].Links = map[int]int{}
			}
			cards[p[0]].Links[p[1]] = links
		}
		return cards
	}
	near := func(cards []Card, how int, pairs ...[2]int) []Card {
		for _, p := range pairs {
			cards[p[0]].Near = map[int]int{p[1]: how}
		}
		return cards
	}
	nodes := func(cards []Card, nodes ...int) []Card {
		for i, n := range nodes {
			cards[i].NUMA = n
		}
		return cards
	}
	// halves are two cards with as much memory in use, of which the second has
	// more of its shares given out.
	halves := []Allocation{
		{Job: "8", Cards: []int{0}, BudgetMiB: []int64{4000}, Share: 0.1},
		{Job: "9", Cards: []int{1}, BudgetMiB: []int64{4000}, Share: 0.7},
	}
	// tenths come to 0.3 on both cards, but for the last bit.
	tenths := []Allocation{
		{Job: "7", Cards: []int{0}, BudgetMiB: []int64{4000}, Share: 0.3},
		{Job: "8", Cards: []int{1}, BudgetMiB: []int64{2000}, Share: 0.1},
		{Job: "9", Cards: []int{1}, BudgetMiB: []int64{2000}, Share: 0.2},
	}
	taken := []Allocation{{Job: "9", Cards: []int{2}, BudgetMiB: []int64{1000}}}
	both := also(share(0.2), func(s *job.Spec) { s.VRAMMiB = 1000 })
	checkRows(t, []row{
		{says: "of as much memory pack takes the card with fewer shares left", cards: fuller(0, 0), held: halves, jobs: asks(share(0.2)), want: "1@1"},
		{says: "the same holds for a share with memory", cards: fuller(0, 0), held: halves, jobs: asks(both), want: "1@1"},
		{says: "memory alone goes where shares are used up", cards: fuller(0, 0), held: halves, jobs: asks(vram(1000)), want: "1@1"},
		{says: "memory comes before shares", cards: fuller(100, 0), held: halves, jobs: asks(share(0.2)), want: "1@0"},
		{says: "of as much memory spread takes the card with more shares left", rules: spread, cards: fuller(0, 0, 24000), held: []Allocation{halves[1], {Job: "7", Cards: []int{0}, BudgetMiB: []int64{4000}, Share: 0.8}}, jobs: asks(share(0.1)), want: "1@1"},
		{says: "sums of shares that differ in the last bit are a tie", cards: fuller(0, 0), held: tenths, jobs: asks(share(0.2)), want: "1@0"},
		{says: "several GPUs are those with fewer shares left, too", cards: fuller(0, 0, 0), held: append(halves[:2:2], Allocation{Job: "7", Cards: []int{2}, BudgetMiB: []int64{4000}, Share: 0.5}), jobs: asks(also(share(0.2), func(s *job.Spec) { s.GPUs = 2 })), want: "1@1,2"},
		{says: "memory opens no idle card where one in use has room", cards: fuller(0, 0, 0), held: taken, jobs: asks(vram(1000), idle(2)), want: "1@2 2@0,1"},
		{says: "a share opens no idle card where one in use has room", cards: fuller(0, 0, 0), held: taken, jobs: asks(share(0.5), idle(2)), want: "1@2 2@0,1"},
		{says: "an undeclared job takes the smallest idle card", cards: cardsOf(48000, gib24, 12000, gib24), held: taken, jobs: asks(idle(1)), want: "1@1"},
		{says: "an undeclared job of several GPUs takes the smallest idle cards", cards: cardsOf(48000, gib24, 12000, gib24), held: taken, jobs: asks(idle(2)), want: "1@1,3"},
		{says: "pack takes the fullest card that fits", cards: fuller(0, 9000, 20000), jobs: asks(vram(10000)), want: "1@1"},
		{says: "spread takes the emptiest", rules: spread, cards: fuller(9000, 0, 20000), jobs: asks(vram(2000)), want: "1@1"},
		{says: "pack goes by what is left, not by what is free", cards: cardsOf(40000, 48000), held: []Allocation{{Job: "9", Cards: []int{1}, BudgetMiB: []int64{7000}}}, jobs: asks(share(0.5)), want: "1@1"},
		{says: "ties go to the lowest index", cards: fuller(500, 500, 500), jobs: asks(vram(100)), want: "1@0"},
		{says: "spread alternates between equal cards", rules: spread, cards: fuller(0, 0), jobs: asks(vram(100), vram(100), vram(100)), want: "1@0 2@1 3@0"},
		{says: "several GPUs are the best fitting ones", cards: fuller(0, 9000, 0, 5000), jobs: asks(vrams(2, 100)), want: "1@1,3"},
		{says: "spread gives several GPUs the emptiest ones", rules: spread, cards: fuller(100, 9000, 0, 5000), jobs: asks(vrams(2, 100)), want: "1@0,2"},
		{says: "NVLink beats the fit", cards: linked(fuller(9000, 9000, 0, 0), 4, [2]int{2, 3}), jobs: asks(vrams(2, 100)), want: "1@2,3"},
		{says: "a link told by one side only counts", cards: linked(fuller(9000, 9000, 0, 0), 4, [2]int{3, 2}), jobs: asks(vrams(2, 100)), want: "1@2,3"},
		{says: "more links beat fewer", cards: linked(linked(fuller(0, 0, 0, 0), 2, [2]int{0, 1}), 12, [2]int{2, 3}), jobs: asks(vrams(2, 100)), want: "1@2,3"},
		{says: "NVLink beats the NUMA node", cards: nodes(linked(fuller(0, 0, 0, 0), 1, [2]int{1, 2}), 0, 0, 1, 1), jobs: asks(vrams(2, 100)), want: "1@1,2"},
		{says: "the NUMA node beats the fit", cards: nodes(fuller(9000, 0, 9000, 0), 0, 1, 2, 1), jobs: asks(vrams(2, 100)), want: "1@1,3"},
		{says: "the PCIe switch beats the fit", cards: near(fuller(9000, 0, 9000, 0), 4, [2]int{1, 3}), jobs: asks(vrams(2, 100)), want: "1@1,3"},
		{says: "one switch beats one host bridge", cards: near(near(fuller(0, 0, 0, 0), 3, [2]int{0, 1}), 4, [2]int{2, 3}), jobs: asks(vrams(2, 100)), want: "1@2,3"},
		{says: "the NUMA node beats the PCIe switch", cards: nodes(near(fuller(0, 0, 0, 0), 4, [2]int{1, 2}), 0, 0, 1, 1), jobs: asks(vrams(2, 100)), want: "1@0,1"},
		{says: "unknown NUMA nodes are not the same one", cards: nodes(fuller(9000, 9000, 0, 0), -1, -1, 1, 1), jobs: asks(vrams(2, 100)), want: "1@2,3"},
		{says: "a well connected card that does not fit is no use", cards: linked(fuller(24000, 0, 0), 4, [2]int{0, 1}), jobs: asks(vrams(2, 9000)), want: "1@1,2"},
	})
}

// optionsOf are options with ties, links and nodes drawn at random.
func optionsOf(t *rapid.T, n int) []option {
	options := make([]option, n)
	for i := range options {
		c := cardOf(i, gib24)
		c.NUMA = rapid.IntRange(-1, 1).Draw(t, "numa")
		c.Links, c.Near = map[int]int{}, map[int]int{}
		for k := range n {
			if rapid.IntRange(0, 3).Draw(t, "linked") == 0 {
				c.Links[k] = rapid.IntRange(1, 2).Draw(t, "links")
			}
			c.Near[k] = rapid.IntRange(0, 2).Draw(t, "near")
		}
		options[i] = option{slot: &slot{Card: &c, shares: rapid.SampledFrom([]float64{0, 0.3, 0.1 + 0.2}).Draw(t, "shares")}, leftMiB: rapid.Int64Range(0, 3).Draw(t, "left")}
	}
	return options
}

func (c *chooser) worth(set []int) merit {
	c.picked = nil
	var m merit
	for _, k := range set {
		m = m.plus(c.gain(k))
		c.picked = append(c.picked, k)
	}
	return m
}

// TestChoiceIsTheBestSet compares the search with every set there is.
func TestChoiceIsTheBestSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.IntRange(1, 7).Draw(t, "total")
		n := rapid.IntRange(1, total).Draw(t, "n")
		placement := rapid.SampledFrom([]Placement{Pack, Spread}).Draw(t, "placement")
		options := optionsOf(t, total)
		if rapid.Bool().Draw(t, "alike") {
			for i := range options {
				*options[i].slot.Card = cardOf(i, gib24)
			}
		}
		judge := newChooser(options, n, placement)
		judge.connect()
		var best []int
		for bits := range 1 << total {
			var set []int
			for k := range total {
				if bits&(1<<k) != 0 {
					set = append(set, k)
				}
			}
			if len(set) != n {
				continue
			}
			if best == nil || judge.better(judge.worth(set), judge.worth(best)) ||
				!judge.better(judge.worth(best), judge.worth(set)) && slices.Compare(set, best) < 0 {
				best = set
			}
		}
		var got []int
		for _, o := range choose(options, n, placement) {
			got = append(got, o.slot.Index)
		}
		if !slices.Equal(got, best) {
			t.Fatalf("chose %v, the best is %v", got, best)
		}
	})
}

func TestManyCardsAreChosenGreedily(t *testing.T) {
	options := make([]option, 32)
	for i := range options {
		c := cardOf(i, gib24)
		c.NUMA = i / 16
		c.Links = map[int]int{}
		if i >= 20 && i < 28 {
			for k := 20; k < 28; k++ {
				c.Links[k] = 2
			}
		}
		// The fit speaks for the high indices, so that they are picked first.
		options[i] = option{slot: &slot{Card: &c}, leftMiB: int64(100 - i)}
	}
	if combinations(32, 8) <= maxCombinations {
		t.Fatal("this is meant to be too much for the search")
	}
	var got []int
	for _, o := range choose(options, 8, Pack) {
		got = append(got, o.slot.Index)
	}
	if want := []int{20, 21, 22, 23, 24, 25, 26, 27}; !slices.Equal(got, want) {
		t.Errorf("chose %v, want the linked %v", got, want)
	}
}

func TestCombinations(t *testing.T) {
	for _, c := range []struct{ total, n, want int }{{8, 1, 8}, {8, 4, 70}, {8, 8, 1}, {16, 8, 12870}, {5, 2, 10}, {3, 0, 1}} {
		if got := combinations(c.total, c.n); got != c.want {
			t.Errorf("%d of %d: %d, want %d", c.n, c.total, got, c.want)
		}
	}
	for n := 8; n <= 120; n++ {
		if combinations(128, n) <= maxCombinations {
			t.Errorf("%d of 128 is said to be few", n)
		}
	}
}
