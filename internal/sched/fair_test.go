package sched

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"berth/internal/job/reason"
)

// drawFair draws a shared snapshot in which users take turns.
func drawFair(t *rapid.T) State {
	s := drawPlain(t)
	drawLab(t, &s)
	s.Rules.Fair = true
	return s
}

// alone reports whether the job would start in this state with nobody else
// waiting.
func alone(s State, p Pending) bool {
	s.MaxStarts, s.Queue = 0, NewQueue()
	s.Queue.Add(p)
	return len(Decide(s).Starts) == 1
}

// borrows reports a job beyond its user's share: all others come first.
func borrows(s State, p Pending) bool {
	return (&oracle{s: s, use: s.InUse}).beyondShare(&p, ordinary)
}

// TestNoStartPassesWhoHadLess looks at each start in the moment it is made.
// Nobody of equal or higher priority who had less by then, turns of this plan
// included, has a job within their share waiting that could start in its place.
func TestNoStartPassesWhoHadLess(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawFair(t)
		for _, start := range Decide(s).Starts {
			given, _ := s.Queue.Get(start.Job)
			for _, p := range s.Queue.First(s.Queue.Len()) {
				if p.Priority >= given.Priority && s.Usage[p.User] < s.Usage[given.User] && !borrows(s, p) && alone(s, p) {
					t.Fatalf("job %s of %s starts with %g, job %s of %s could and has %g",
						given.Job, given.User, s.Usage[given.User], p.Job, p.User, s.Usage[p.User])
				}
			}
			s = commit(s, Plan{Starts: []Start{start}})
		}
	})
}

// TestWhoHadLessIsNotLeftOut says the same of the outcome. If a user gets
// nothing while one who had more gets something, it is not for what the other
// got: without the starts of all who had more, the user's job would still not
// start.
func TestWhoHadLessIsNotLeftOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawFair(t)
		plan := Decide(s)
		served := map[string]bool{}
		for _, start := range plan.Starts {
			p, _ := s.Queue.Get(start.Job)
			served[p.User] = true
		}
		for _, p := range s.Queue.First(s.Queue.Len()) {
			if served[p.User] || borrows(s, p) {
				continue
			}
			var others []Start
			for _, start := range plan.Starts {
				o, _ := s.Queue.Get(start.Job)
				if o.Priority > p.Priority || s.Usage[o.User] <= s.Usage[p.User] {
					others = append(others, start)
				}
			}
			if len(others) < len(plan.Starts) && alone(commit(s, Plan{Starts: others}), p) {
				t.Fatalf("job %s of %s could start, but for who had more: %s", p.Job, p.User, brief(plan))
			}
		}
	})
}

// TestUsersGetEquallyMany has room for some of many equal jobs.
func TestUsersGetEquallyMany(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := State{Rules: DefaultRules(), Queue: NewQueue(), FairQuantum: 3600}
		s.Rules.Fair = true
		s.Rules.Policy = rapid.SampledFrom([]Policy{Backfill, FIFO}).Draw(t, "policy")
		for i := range rapid.IntRange(1, 12).Draw(t, "cards") {
			s.Cards = append(s.Cards, cardOf(i, 1000))
		}
		request := rapid.SampledFrom([]Request{{GPUs: 1}, {GPUs: 2}, {GPUs: 1, Share: 1.0 / 3}, {CPUs: 1}}).Draw(t, "request")
		s.Host.CPUs = 7
		const each = 12
		for i, user := range users {
			for k := range each {
				// The first user was there first with everything.
				s.Queue.Add(Pending{Job: fmt.Sprintf("%s%d", user, k), User: user, Seq: int64(each*i + k), Request: request})
			}
		}
		got := map[string]int{}
		for _, start := range Decide(s).Starts {
			p, _ := s.Queue.Get(start.Job)
			got[p.User]++
		}
		if most, least := max(got["ann"], got["bob"], got["cay"]), min(got["ann"], got["bob"], got["cay"]); most-least > 1 {
			t.Fatalf("equal users get %v", got)
		}
	})
}

// TestOrderTakesTurns compares with a search among all that are left.
func TestOrderTakesTurns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawState(t)
		model := &oracle{s: s, turn: copied(s.Usage)}
		var want []string
		for left := s.Queue.First(s.Queue.Len()); len(left) > 0; {
			next := slices.MinFunc(left, model.order)
			left = slices.DeleteFunc(left, func(p Pending) bool { return p.Job == next.Job })
			model.turn[next.User] += s.FairQuantum * next.Request.FairWeight(s.Host.Scale(len(s.Cards)))
			want = append(want, next.Job)
		}
		n := rapid.IntRange(-1, len(want)+1).Draw(t, "n")
		if got, want := Order(s, n), want[:min(max(n, 0), len(want))]; !slices.Equal(got, want) {
			t.Fatalf("first %d are %v, want %v", n, got, want)
		}
		for i, id := range want {
			if got := Position(s, id); got != i+1 {
				t.Fatalf("job %s is at %d, want %d", id, got, i+1)
			}
		}
		if Position(s, "absent") != 0 || Position(State{}, "absent") != 0 || Order(State{}, 3) != nil {
			t.Fatal("a job that is not queued has a place")
		}
	})
}

// TestOrderIsTheOrderOfStarts has jobs that no limit keeps, and FIFO. Those
// that start are the first in Order, and the next is the one that blocks.
func TestOrderIsTheOrderOfStarts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawFair(t)
		s.DefaultLimit, s.Limits, s.ArrayRuns, s.Groups, s.Allocations, s.Host, s.MaxStarts, s.Unreadable = Limit{}, nil, nil, nil, nil, Host{}, 0, ""
		s.Cards = cardsOf(1000, 1000, 1000)
		s.Rules.Policy = FIFO
		for _, p := range s.Queue.First(s.Queue.Len()) {
			p.Request = Request{GPUs: rapid.IntRange(1, 2).Draw(t, "GPUs"), Share: rapid.SampledFrom([]float64{0.1, 0.3, 0.6}).Draw(t, "share of each")}
			p.Array, p.ArrayLimit = "", 0
			s.Queue.Add(p)
		}
		order, plan := Order(s, s.Queue.Len()), Decide(s)
		for i, start := range plan.Starts {
			if start.Job != order[i] {
				t.Fatalf("job %s starts as number %d, job %s is there in order", start.Job, i+1, order[i])
			}
		}
		for i := len(plan.Starts) + 1; i < len(order); i++ {
			if why := Explain(s, order[i]); why.Kind != reason.WaitsBehind || why.Job != order[len(plan.Starts)] {
				t.Fatalf("job %s %s, job %s blocks", order[i], why, order[len(plan.Starts)])
			}
		}
	})
}

func TestUsageDecays(t *testing.T) {
	had := map[string]float64{"ann": 1000, "bob": 0.0015}
	for _, row := range []struct {
		says          string
		age, halfLife time.Duration
		ann, bob      float64
	}{
		{"half is left after the half-life, and what is next to nothing goes", time.Hour, time.Hour, 500, 0},
		{"a quarter after two", 2 * time.Hour, time.Hour, 250, 0},
		{"nothing is forgotten at once", 0, time.Hour, 1000, 0.0015},
		{"a clock that was set back makes nothing grow", -time.Hour, time.Hour, 1000, 0.0015},
		{"without a half-life nothing is forgotten", time.Hour, 0, 1000, 0.0015},
	} {
		if left := Decayed(had, row.age, row.halfLife); left["ann"] != row.ann || left["bob"] != row.bob {
			t.Errorf("%s: %v", row.says, left)
		}
	}
}
