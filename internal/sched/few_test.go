package sched

import (
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"berth/internal/reason"
)

// TestWhereCardsAreTooFewTheJobDoesNotFit holds the count against the machine as it
// would be, whoever is gone from it and for whomever cards are kept.
func TestWhereCardsAreTooFewTheJobDoesNotFit(t *testing.T) {
	told := 0
	rapid.Check(t, func(t *rapid.T) {
		s := drawTimed(t)
		d := newDecision(&s)
		d.run(nil)
		left := map[*Held]bool{}
		for _, held := range d.held {
			left[held] = rapid.Bool().Draw(t, "is gone")
		}
		gone := func(held *Held) bool { return left[held] }
		at := s.Now
		if n := len(d.futures); n > 0 && rapid.Bool().Draw(t, "then") {
			at = d.futures[rapid.IntRange(0, n-1).Draw(t, "whose")].at
		}
		for _, p := range s.Queue.First(s.Queue.Len()) {
			m, _ := s.Queue.member(p.Job)
			h := m.group.head(m.entry)
			if !d.tooFew(&h, gone, at) {
				continue
			}
			told++
			b := d.boardWithout(gone, at)
			if grant, ok := newKinship(b, &h.group.request).grant(&h.group.request, keeper{}); ok {
				t.Fatalf("job %s fits on %v where cards are said to be too few", p.Job, grant.GPUs)
			}
		}
	})
	if told < 100 {
		t.Errorf("cards were too few %d times: nothing is shown by that", told)
	}
}

func TestTooFewCountsWhoTakesNoNeighbour(t *testing.T) {
	alone := Held{Job: "a", Cards: []int{0, 1}, Alone: true}
	single := Held{Job: "b", Cards: []int{0}, Exclusive: true}
	shared := Held{Job: "c", Cards: []int{0}, Share: 0.5}
	for _, tt := range []struct {
		name string
		held []Held
		asks Request
		gone bool
		want bool
	}{
		{"one card of two is left beside one that is exclusive", []Held{single}, Request{GPUs: 1, Share: 0.5}, false, false},
		{"two cards are not", []Held{single}, Request{GPUs: 2, Share: 0.5}, false, true},
		{"a card is shared by those that share", []Held{shared}, Request{GPUs: 2, Share: 0.5}, false, false},
		{"and not by one that takes whole cards", []Held{shared}, Request{GPUs: 2}, false, true},
		{"nor by one that is exclusive", []Held{shared}, Request{GPUs: 2, Share: 0.5, Exclusive: true}, false, true},
		{"a card that two hold is one card", []Held{shared, single}, Request{GPUs: 1}, false, false},
		{"nobody joins one that is alone", []Held{alone}, Request{GPUs: 1, Share: 0.5}, false, true},
		{"who is gone is in nobody's way", []Held{alone}, Request{GPUs: 2}, true, false},
		{"a job without cards has enough", []Held{alone}, Request{CPUs: 1}, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := State{Cards: []Card{cardOf(0, 1000), cardOf(1, 1000)}, Held: tt.held, Rules: DefaultRules()}
			d := newDecision(&s)
			h := head{group: &group{groupKey: groupKey{request: tt.asks}}}
			if got := d.tooFew(&h, func(*Held) bool { return tt.gone }, s.Now); got != tt.want {
				t.Errorf("got %v", got)
			}
			var leave []departure
			for _, held := range d.held {
				if tt.gone {
					leave = append(leave, departure{held, s.Now})
				}
			}
			if got := d.sweep(&h, leave).tooFew(len(leave)); got != tt.want {
				t.Errorf("counted on, %v", got)
			}
		})
	}
}

func TestHowManyHaveToLeave(t *testing.T) {
	at := func(minutes int) time.Time { return sundayNoon.Add(time.Duration(minutes) * time.Minute) }
	for _, tt := range []struct {
		name   string
		leaves []int // after how many minutes each of three leaves its card
		gpus   int
		n      int
		ever   bool
	}{
		{"nobody for the one card that is free", []int{1, 2, 3}, 1, 0, true},
		{"the first two for three cards", []int{1, 2, 3}, 3, 2, true},
		{"the first of those that leave at once", []int{1, 2, 2}, 4, 2, true},
		{"and of all", []int{1, 1, 1}, 4, 1, true},
		{"more than all for more cards than there are", []int{1, 2, 3}, 5, 0, false},
		{"and than those that leave", []int{1, 2}, 4, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := State{Now: at(0), Cards: cardsOf(1000, 1000, 1000, 1000), Rules: DefaultRules()}
			for i := range 3 {
				s.Held = append(s.Held, Held{Job: string(rune('a' + i)), Cards: []int{i}, Alone: true})
			}
			d := newDecision(&s)
			var leave []departure
			for i, minutes := range tt.leaves {
				leave = append(leave, departure{d.held[i], at(minutes)})
			}
			h := head{group: &group{groupKey: groupKey{request: Request{GPUs: tt.gpus}}}}
			if n, ever := d.sweep(&h, leave).firstEnough(); n != tt.n || ever != tt.ever {
				t.Errorf("%d, %v", n, ever)
			}
		})
	}
}

// TestACardThatTwoWillShareIsOneCard: both have begun when the job would fit.
func TestACardThatTwoWillShareIsOneCard(t *testing.T) {
	s := State{Now: sundayNoon, Cards: cardsOf(1000, 1000), Rules: DefaultRules(), Held: []Held{{Job: "a", Cards: []int{0}, Alone: true}}}
	d := newDecision(&s)
	later := s.Now.Add(time.Minute)
	for range 2 {
		d.futures = append(d.futures, &future{at: later, held: &Held{Cards: []int{0}, Share: 0.5}, cards: []int{0}})
	}
	h := head{group: &group{groupKey: groupKey{request: Request{GPUs: 1}}}}
	if d.tooFew(&h, func(*Held) bool { return true }, later) || d.sweep(&h, []departure{{d.held[0], later}}).tooFew(1) {
		t.Error("there is said to be none beside it")
	}
}

// TestNobodyFitsBeforeEnoughHaveLeft lets the jobs leave one after the other, some
// at the same moment, and holds both ways to count against each other; and what is
// kept of the cards against a grant.
func TestNobodyFitsBeforeEnoughHaveLeft(t *testing.T) {
	waited, kept := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s := drawCrowd(t)
		d := newDecision(&s)
		d.run(nil)
		var order []departure
		at := s.Now
		for _, held := range rapid.Permutation(d.held).Draw(t, "in which order") {
			at = at.Add(time.Duration(rapid.IntRange(0, 1).Draw(t, "later")) * time.Minute)
			order = append(order, departure{held, at})
		}
		for _, p := range s.Queue.First(10) {
			m, _ := s.Queue.member(p.Job)
			h := m.group.head(m.entry)
			sweep := d.sweep(&h, order)
			first, ever := sweep.firstEnough()
			without := func(n int) func(*Held) bool {
				return func(held *Held) bool {
					return slices.ContainsFunc(order[:n], func(o departure) bool { return o.held == held })
				}
			}
			for n := first; ever && n <= len(order); n++ {
				at, left := d.moment(order, n)
				if got, want := sweep.tooFew(n), d.tooFew(&h, without(left), at); got != want {
					t.Fatalf("job %s: after %d of %d it is said that cards are too few: %v, counted on %v", p.Job, n, len(order), want, got)
				}
			}
			for n := range len(order) + 1 {
				gone := without(n)
				few := d.tooFew(&h, gone, s.Now)
				if before := n < first || !ever; before && !few {
					t.Fatalf("job %s: after %d of %d there are cards enough, and it is said: after %d, %v", p.Job, n, len(order), first, ever)
				} else if before {
					waited++
				}
				k := d.keeperAt(&h, s.Now)
				if few || !d.tooMuchKept(&h, k) {
					continue
				}
				kept++
				if grant, ok := newKinship(d.boardWithout(gone, s.Now), &h.group.request).grant(&h.group.request, k); ok {
					t.Fatalf("job %s fits on %v where too much is said to be kept", p.Job, grant.GPUs)
				}
			}
		}
	})
	if waited < 100 || kept < 100 {
		t.Errorf("%d times too few had left, and %d times too much was kept: nothing is shown by that", waited, kept)
	}
}

// TestABoardThatIsUsedAgainIsBare writes on a board, and has it back.
func TestABoardThatIsUsedAgainIsBare(t *testing.T) {
	s := State{Cards: eight(), Rules: DefaultRules(), Host: Host{CPUs: 8}}
	d := newDecision(&s)
	used := d.bareBoard()
	used.book(&Held{Job: "1", Cards: []int{0, 7}, BudgetMiB: []int64{5, 5}, Share: 0.5, Alone: true, Exclusive: true, CPUs: 3, MemMiB: 4})
	used.slots[1].closed = reason.ObstacleLoad
	d.spare = used
	again := d.bareBoard()
	if again != used || d.bareBoard() == used {
		t.Error("a board is used again once")
	}
	if diff := gocmp.Diff(bareBoard(&s), again, gocmp.AllowUnexported(board{}, slot{}), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("it is not bare (-want +got):\n%s", diff)
	}
}
