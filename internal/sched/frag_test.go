package sched

import (
	"cmp"
	"slices"
	"testing"
)

// Fragmentation-aware placement, as a yardstick for best fit and no part of the
// program: docs/studies/best-fit.md says what came of it. A job goes where what is free
// and of no use to the mix of requests grows least (Weng et al., "Beware of
// Fragmentation", USENIX ATC 2023).

// wish is a kind of request, and how many cards are wanted for it.
type wish struct {
	request Request
	weight  int64
}

// maxWishes bounds the kinds that a score looks at: the commonest count.
const maxWishes = 64

// mixOf counts requests by kind, the commonest first. A gang counts as so many
// single cards.
func mixOf(requests []Request) []wish {
	counts := map[Request]int64{}
	for _, r := range requests {
		cards := int64(r.GPUs)
		r.GPUs = 1
		counts[r] += cards
	}
	mix := make([]wish, 0, len(counts))
	for r, n := range counts {
		mix = append(mix, wish{r, n})
	}
	slices.SortFunc(mix, func(a, b wish) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.request.VRAMMiB, b.request.VRAMMiB), cmp.Compare(a.request.Share, b.request.Share))
	})
	return mix[:min(len(mix), maxWishes)]
}

// roomMiB is what is free on the card, by the scarcer of memory and shares.
func (c *slot) roomMiB() int64 {
	if c.alone || c.exclusive {
		return 0
	}
	return max(0, min(c.headroomMiB, int64((1-c.shares)*float64(c.TotalMiB))))
}

// unusable is what is free on the card, counted once for each wish that it is of
// no use to.
func (b *machine) unusable(c *slot, mix []wish) (sum int64) {
	room := c.roomMiB()
	for i := range mix {
		if _, obstacle := b.fit(c, &mix[i].request); obstacle != "" {
			sum += mix[i].weight * room
		}
	}
	return sum
}

// growth is by how much that grows when the request is put there.
func (b *machine) growth(o option, r *Request, mix []wish) int64 {
	after := *o.slot
	after.holds = []holding{{job: &Allocation{Job: "it"}}}
	after.alone, after.exclusive = r.undeclared(), r.Exclusive
	after.shares += r.Share
	after.headroomMiB -= o.budgetMiB
	return b.unusable(&after, mix) - b.unusable(o.slot, mix)
}

func TestGrowthOfWhatIsOfNoUse(t *testing.T) {
	// gpu0 has 0.3 left, gpu1 0.5, gpu2 everything.
	held := []Allocation{
		{Job: "8", Cards: []int{0}, BudgetMiB: []int64{shareBudget(0.7, gib24)}, Share: 0.7},
		{Job: "9", Cards: []int{1}, BudgetMiB: []int64{shareBudget(0.5, gib24)}, Share: 0.5},
	}
	whole, third, half := Request{GPUs: 1}, Request{GPUs: 1, Share: 0.3}, Request{GPUs: 1, Share: 0.5}
	fifth := Request{GPUs: 1, Share: 0.2}
	for _, c := range []struct {
		says    string
		request Request
		mix     []Request
		best    int
	}{
		{"an idle card is kept for those who want a whole one", fifth, []Request{whole, whole, whole, half}, 0},
		{"a hole that is filled is the best", third, []Request{whole, half, half}, 0},
		{"a card that stays of use to everybody is the best", fifth, []Request{third, third, third, half}, 2},
	} {
		b := (&State{Rules: DefaultRules(), Cards: cardsOf(gib24, gib24, gib24), Allocations: held}).machine()
		best, least := -1, int64(0)
		for i := range b.slots {
			s := &b.slots[i]
			budgetMiB, obstacle := b.fit(s, &c.request)
			if obstacle != "" {
				t.Fatalf("%s: gpu%d: %s", c.says, i, obstacle)
			}
			if grows := b.growth(option{slot: s, budgetMiB: budgetMiB}, &c.request, mixOf(c.mix)); best < 0 || grows < least {
				best, least = i, grows
			}
		}
		if best != c.best {
			t.Errorf("%s: gpu%d, want gpu%d", c.says, best, c.best)
		}
	}
}
