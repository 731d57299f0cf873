package sched

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// drawCrowd draws a full machine whose jobs give way, and a queue of many kinds
// behind it.
func drawCrowd(t *rapid.T) State {
	s := State{Now: sundayNoon, Rules: DefaultRules(), FairQuantum: FairQuantum, Usage: map[string]float64{}}
	s.Rules.Policy = rapid.SampledFrom(Policies()).Draw(t, "policy")
	s.Rules.Fair, s.Rules.Slice = rapid.Bool().Draw(t, "fair"), rapid.Bool().Draw(t, "slice")
	for i := range 8 {
		s.Cards = append(s.Cards, cardOf(i, 1000))
	}
	age := rapid.SampledFrom([]time.Duration{0, 30 * time.Second, 70 * time.Second, 2 * time.Minute, 5 * time.Minute, time.Hour})
	span := rapid.SampledFrom([]Estimate{{}, aboutLong(time.Minute), aboutLong(10 * time.Minute), aboutLong(time.Hour)})
	served := rapid.SampledFrom([]time.Duration{0, 0, 4 * time.Minute, time.Hour})
	mode := rapid.SampledFrom([]PreemptMode{Park, Park, Park, Requeue, ""})
	for card := 0; card < 8; {
		n := rapid.SampledFrom([]int{1, 2, 3, 3, 4, 8}).Draw(t, "holds")
		h := Allocation{
			Job: fmt.Sprint(len(s.Allocations)), Seq: int64(len(s.Allocations)), Alone: true, Priority: rapid.IntRange(0, 1).Draw(t, "priority"),
			Started: s.Now.Add(-age.Draw(t, "ran")), RanBefore: served.Draw(t, "served"), Run: span.Draw(t, "held run"),
		}
		for ; n > 0 && card < 8; n-- {
			h.Cards = append(h.Cards, card)
			card++
		}
		if rapid.IntRange(0, 4).Draw(t, "free") == 0 {
			continue
		}
		if h.Preempt.Mode = mode.Draw(t, "mode"); h.Preempt.Mode == Park {
			h.Preempt.StopTime, h.Preempt.ResumeTime = 10*time.Second, 10*time.Second
		}
		s.Allocations = append(s.Allocations, h)
	}
	if rapid.IntRange(0, 2).Draw(t, "users have shares") == 0 {
		s.DefaultLimit.Share, s.Rules.BorrowTime = rapid.SampledFrom([]float64{1, 2, 4}).Draw(t, "share"), time.Hour
		s.InUse = map[string]Use{}
		for i := range s.Allocations {
			h := &s.Allocations[i]
			h.User = rapid.SampledFrom([]string{"ann", "bob", "cid"}).Draw(t, "whose")
			use := s.InUse[h.User]
			use.Add(h)
			s.InUse[h.User] = use
		}
	}
	s.Queue = NewQueue()
	s.Queue.SetRules(s.Rules)
	for i := range rapid.IntRange(1, 60).Draw(t, "queued") {
		p := Pending{
			Job: fmt.Sprint(100 + i), User: rapid.SampledFrom([]string{"ann", "bob", "cid"}).Draw(t, "user"), Seq: int64(100 + i),
			Priority: rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "priority"),
			Request:  Request{GPUs: rapid.SampledFrom([]int{1, 1, 2, 2, 4, 8, 8, 8}).Draw(t, "needs")},
			Since:    s.Now.Add(-age.Draw(t, "waited")), RanBefore: served.Draw(t, "served"), Run: span.Draw(t, "run"),
		}
		p.Preempt.Mode = mode.Draw(t, "would give way")
		if rapid.IntRange(0, 3).Draw(t, "shares") == 0 {
			p.Request.Share = 0.5
		}
		s.Queue.Add(p)
	}
	s.Queue.Tick(s.Now)
	return s
}

// aheadOf queues more jobs than cards are kept for, none of which can be helped.
func aheadOf(s *State, jobs ...Pending) {
	s.Queue = NewQueue()
	s.Queue.SetRules(s.Rules)
	for i := range reservationsMost + 1 {
		s.Queue.Add(Pending{Job: fmt.Sprint("big", i), User: fmt.Sprint("user", i), Seq: int64(i), Request: Request{GPUs: 8}, Since: s.Now})
	}
	for i, p := range jobs {
		p.Seq, p.Since = int64(100+i), s.Now
		s.Queue.Add(p)
	}
	s.Queue.Tick(s.Now)
}

// gangOf is a machine on which so many cards give way that have run for so long.
func gangOf(cards int, ran time.Duration) State {
	s := State{Now: sundayNoon, Rules: DefaultRules()}
	gang := Allocation{Job: "gang", Alone: true, Started: s.Now.Add(-ran), RanBefore: time.Hour, Preempt: Preempt{Mode: Park}}
	rest := Allocation{Job: "rest", Alone: true, Started: s.Now.Add(-time.Hour)} // and as long again
	for i := range 8 {
		s.Cards = append(s.Cards, cardOf(i, 1000))
		if i < cards {
			gang.Cards = append(gang.Cards, i)
		} else {
			rest.Cards = append(rest.Cards, i)
		}
	}
	s.Allocations = []Allocation{gang, rest}
	return s
}

func TestOneFarBehindIsAwaitedByWhenAGangGivesWayToIt(t *testing.T) {
	s := gangOf(2, 70*time.Second)
	other := s.Allocations[0]
	other.Job, other.Cards, other.Started = "other", []int{2, 3}, s.Now.Add(-5*time.Second)
	s.Allocations = append(s.Allocations, other)
	s.Allocations[1].Cards = []int{4, 5, 6, 7}
	aheadOf(&s, Pending{Job: "large", User: "bob", Request: Request{GPUs: 4}}, Pending{Job: "behind", User: "cid", Request: Request{GPUs: 1}})
	// To four cards each gang gives way after a minute, and the second has 55
	// seconds to go; to one card after two, and the first has 50.
	if got, want := Decide(s).Again, s.Now.Add(50*time.Second); !got.Equal(want) {
		t.Errorf("asked again at %v, not at %v", got, want)
	}
}

func TestWhatAGangLeavesBesideItsHeirIsFoundByThoseBehind(t *testing.T) {
	s := gangOf(3, 130*time.Second)
	one, two := Request{GPUs: 1}, Request{GPUs: 2}
	aheadOf(&s,
		Pending{Job: "small 1", User: "ann", Request: one}, Pending{Job: "small 2", User: "bob", Request: one},
		Pending{Job: "small 3", User: "dan", Request: one}, Pending{Job: "large", User: "cid", Request: Request{GPUs: 8}},
		Pending{Job: "heir", User: "bob", Request: two, Preempt: Preempt{Mode: Park}}, Pending{Job: "behind", User: "cid", Request: one})
	plan := Decide(s)
	kept := slices.ContainsFunc(plan.Reservations, func(r Reservation) bool { return r.Job == "behind" })
	if len(plan.Victims) != 1 || plan.Victims[0].For != "heir" || !kept {
		t.Errorf("%+v", plan)
	}
}

func TestAQueueKnowsWhichSizesWait(t *testing.T) {
	q := NewQueue()
	q.Add(Pending{Job: "1", Request: Request{GPUs: 1}, Run: aboutLong(time.Minute)})
	q.Add(Pending{Job: "2", Request: Request{GPUs: 1}, Run: aboutLong(time.Hour)})
	q.Add(Pending{Job: "3", Request: Request{GPUs: 2}})
	if len(q.sizes.of) != 2 || len(q.shapes.of) != 3 {
		t.Errorf("%d sizes and %d classes", len(q.sizes.of), len(q.shapes.of))
	}
	q.Remove("1")
	if len(q.sizes.of) != 2 || len(q.shapes.of) != 2 {
		t.Errorf("with one gone, %d sizes and %d classes", len(q.sizes.of), len(q.shapes.of))
	}
	q.Remove("2")
	q.Remove("3")
	if len(q.sizes.of) != 0 || len(q.shapes.of) != 0 {
		t.Errorf("with all gone, %d sizes and %d classes", len(q.sizes.of), len(q.shapes.of))
	}
}

// TestAWalkThroughThousandsOfKindsEnds where nothing is free: how long each is
// expected to run is all one then.
func TestAWalkThroughThousandsOfKindsEnds(t *testing.T) {
	s := gangOf(0, 0)
	s.Allocations = s.Allocations[1:]
	s.Queue = NewQueue()
	for i := range 2000 {
		run := time.Duration(math.Pow(1.01, float64(i)) * float64(time.Second))
		s.Queue.Add(Pending{
			Job: fmt.Sprint(i), User: fmt.Sprint("user", i%7), Seq: int64(i), Request: Request{GPUs: 1 + i%8},
			Run: Estimate{Mid: run, High: time.Duration(1+i%9) * run}, Since: s.Now,
		})
	}
	s.Queue.Tick(s.Now)
	if len(s.Queue.shapes.of) <= 1000 {
		t.Fatalf("%d classes", len(s.Queue.shapes.of))
	}
	d := newDecision(&s)
	d.run(nil)
	if len(d.walk.merged) == 0 || len(d.plan.Reservations) != 1 {
		t.Errorf("it went to the end: %+v", d.plan)
	}
}
