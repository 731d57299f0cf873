package sched

import (
	"fmt"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// spans are few, so that ends coincide.
var spans = []time.Duration{0, 0, time.Minute, 4 * time.Minute, hour, 3 * hour, 50 * hour}

func drawSpan(t *rapid.T, what string) Estimate {
	mid := rapid.SampledFrom(spans).Draw(t, what)
	return Estimate{Low: mid / 2, Mid: mid, High: mid * rapid.SampledFrom([]time.Duration{1, 1, 2}).Draw(t, "at most")}
}

// drawTime adds to a snapshot all that depends on time: since when jobs wait and
// run, what is expected of them, what they had, who gives way and who leaves.
// Most running jobs are old enough to give way.
func drawTime(t *rapid.T, s *State) {
	s.Now = midday
	r := &s.Rules
	r.Policy = rapid.SampledFrom(append(Policies(), "")).Draw(t, "policy")
	r.MaxBypass = rapid.SampledFrom([]time.Duration{0, hour, 2 * hour, DefaultMaxBypass}).Draw(t, "bypass")
	r.MinRun = rapid.SampledFrom([]time.Duration{0, time.Minute, hour}).Draw(t, "least run")
	r.Slice = rapid.Bool().Draw(t, "slice")
	s.ParkMiB = rapid.SampledFrom([]int64{0, 0, -1, 100, 150}).Draw(t, "park")
	if rapid.Bool().Draw(t, "parts of it") {
		s.ParkOfMiB = map[string]int64{"ann": rapid.SampledFrom([]int64{0, 60, 100}).Draw(t, "ann's part"), "bob": 120}
	}
	jobs := s.Queue.First(s.Queue.Len())
	s.Queue = NewQueue()
	s.Queue.SetRules(*r)
	for i := range s.Allocations {
		drawRunning(t, s, &s.Allocations[i], len(jobs))
	}
	for _, p := range jobs {
		p.Since = midday.Add(-rapid.SampledFrom([]time.Duration{0, 0, time.Minute, hour, 2 * hour, 4 * hour, 99 * hour}).Draw(t, "waits"))
		p.RanBefore = rapid.SampledFrom([]time.Duration{0, 0, 0, freshService, hour, 2 * hour}).Draw(t, "served")
		if before := rapid.SampledFrom([]time.Duration{-1, 0, hour, 9 * hour}).Draw(t, "waited before"); before >= 0 {
			p.Submitted = p.Since.Add(-p.RanBefore - before)
		}
		p.Run = drawSpan(t, "expected")
		p.Limit = rapid.SampledFrom(spans).Draw(t, "limit")
		p.Preempt.Mode = rapid.SampledFrom([]PreemptMode{"", Park, Requeue}).Draw(t, "would give way")
		p.Preempt.Saves = p.Preempt.Mode == Requeue && rapid.Bool().Draw(t, "would save")
		s.Queue.Add(p)
	}
	s.Queue.Tick(midday)
}

func drawRunning(t *rapid.T, s *State, h *Allocation, jobs int) {
	if h.Other {
		return
	}
	h.User = rapid.SampledFrom(users).Draw(t, "whose")
	h.Priority = rapid.SampledFrom([]int{0, 0, -1, 1}).Draw(t, "its priority")
	h.Rank, h.Seq = rapid.Int64Range(0, 4).Draw(t, "its rank"), rapid.Int64Range(-2, 12).Draw(t, "its seq")
	h.Started = midday.Add(-rapid.SampledFrom([]time.Duration{0, time.Minute, 4 * time.Minute, 14 * time.Minute, 3 * hour, 99 * hour, -hour}).Draw(t, "ran"))
	h.Submitted = h.Started
	h.RanBefore = rapid.SampledFrom([]time.Duration{0, 0, freshService, hour}).Draw(t, "had")
	h.Waited = rapid.SampledFrom([]time.Duration{0, 0, hour, 2 * hour, 99 * hour}).Draw(t, "waited")
	h.Run, h.Limit = drawSpan(t, "it is expected"), rapid.SampledFrom(spans).Draw(t, "its limit")
	h.MemMiB = rapid.SampledFrom([]int64{0, 0, 50}).Draw(t, "held mem")
	h.Preempt = Preempt{
		Mode:       rapid.SampledFrom([]PreemptMode{"", Requeue, Park, Park}).Draw(t, "gives way"),
		StopTime:   rapid.SampledFrom([]time.Duration{0, 10 * time.Second, 20 * time.Second}).Draw(t, "out"),
		ResumeTime: rapid.SampledFrom([]time.Duration{0, 20 * time.Second}).Draw(t, "back"),
		MemMiB:     rapid.SampledFrom([]int64{0, 60, 120}).Draw(t, "parked"),
	}
	if h.Preempt.Mode == Requeue && rapid.Bool().Draw(t, "saves") {
		h.Preempt.Saves, h.Preempt.SavesEvery = true, rapid.SampledFrom([]time.Duration{0, 90 * time.Second, time.Hour}).Draw(t, "every")
	}
	if h.Preempt.Mode != "" && rapid.IntRange(0, 3).Draw(t, "leaves") == 0 {
		h.BeingPreempted, h.FreeBy = true, midday.Add(rapid.SampledFrom([]time.Duration{-time.Minute, 0, h.Preempt.StopTime}).Draw(t, "by"))
		h.PreemptedFor = fmt.Sprint("j", rapid.IntRange(0, jobs).Draw(t, "for"))
	}
}

// drawAny draws any snapshot, as a rule one with times in it.
func drawAny(t *rapid.T) State {
	s := drawState(t)
	if rapid.IntRange(0, 3).Draw(t, "timed") > 0 {
		drawTime(t, &s)
	}
	return s
}

// requeued is the same queue with the same memory of who waited, built anew in
// another order.
func requeued(t *rapid.T, s State) *Queue {
	q := NewQueue()
	q.SetRules(s.Rules)
	for _, p := range rapid.Permutation(s.Queue.First(s.Queue.Len())).Draw(t, "jobs in another order") {
		q.Add(p)
	}
	if !s.Now.IsZero() {
		q.Tick(s.Now)
	}
	return q
}

// TestAPlanIsStable carries a plan out but for its time: what starts runs, and what
// is set aside is on its way. Deciding again at once starts nothing and sets nothing
// else aside.
func TestAPlanIsStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawAny(t)
		s.MaxStarts = 0
		if !s.Now.IsZero() && rapid.Bool().Draw(t, "all is known") {
			knowRuns(&s)
		}
		if s.ParkMiB > 0 {
			s.ParkMiB = 0 // the caller counts what leaves
		}
		s = commit(s, Plan{Infeasible: Decide(s).Infeasible}) // the oldest may be one that is refused
		plan := Decide(s)
		next := commit(s, plan)
		again := Decide(next)
		if brief(again) != "" && settled(s) || len(again.Victims) > 0 && (s.Rules.Policy != FIFO || settled(s)) {
			t.Fatalf("decides %s after %s", told(again), told(plan))
		}
		kept := func(p Plan) map[string]bool {
			jobs := map[string]bool{}
			for _, a := range plan.Victims {
				for _, r := range p.Reservations {
					jobs[r.Job] = jobs[r.Job] || r.Job == a.For
				}
			}
			return jobs
		}
		for job, promised := range kept(plan) {
			starts, _ := outcome(again)
			if _, started := starts[job]; promised && !started && !kept(again)[job] {
				t.Fatalf("job %s was made room for and loses it: %s after %s", job, told(again), told(plan))
			}
		}
	})
}

// settled reports whether one plan can know all that follows from it. Where runs are
// not known, those that pass put off what is kept for others, and then more may pass;
// who was passed for too long relies on no guess, and another may have become the
// oldest; and a user's later job may use
// up the limit of one for whom cards are kept.
func settled(s State) bool {
	known := len(s.Limits) == 0 && s.DefaultLimit == Limit{}
	for _, p := range s.Queue.First(s.Queue.Len()) {
		known = known && p.Run.Mid > 0 && p.RanBefore == 0 && p.ArrayLimit == 0
	}
	return known && s.Rules.MaxBypass <= 0
}

// knowRuns makes all runs known, and none that lasts for longer than was expected.
func knowRuns(s *State) {
	for _, p := range s.Queue.First(s.Queue.Len()) {
		p.Limit = 0
		if p.RanBefore = 0; p.Run.Mid <= 0 {
			p.Run = Estimate{Low: 4 * hour, Mid: 4 * hour, High: 4 * hour}
		}
		s.Queue.Add(p)
	}
	for i := range s.Allocations {
		if h := &s.Allocations[i]; !h.Other && s.Now.Sub(h.Started)+h.RanBefore >= h.Run.Mid {
			h.Run = Estimate{Low: 200 * hour, Mid: 200 * hour, High: 200 * hour}
		}
		if !s.Allocations[i].Other {
			s.Allocations[i].Limit = 0
		}
	}
	s.Queue.Tick(s.Now)
}

// TestRoomThatIsMadeIsRoom lets all that leaves be gone and starts those for whom
// room was made on the cards that were kept for them: nothing is overbooked.
func TestRoomThatIsMadeIsRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawAny(t)
		s.MaxStarts = 0
		plan := Decide(s)
		gone := map[string]bool{}
		for _, a := range plan.Victims {
			gone[a.Job] = true
		}
		later := commit(s, plan)
		later.Allocations = slices.DeleteFunc(later.Allocations, func(h Allocation) bool { return !h.Other && (h.BeingPreempted || gone[h.Job]) })
		for _, a := range plan.Victims {
			p, queued := later.Queue.Get(a.For)
			i := slices.IndexFunc(plan.Reservations, func(r Reservation) bool { return r.Job == a.For })
			if i < 0 || !queued {
				if i < 0 {
					t.Fatalf("job %s is set aside for job %s, which gets nothing", a.Job, a.For)
				}
				continue
			}
			alone := later
			alone.Queue = NewQueue()
			alone.Queue.Add(p)
			alone.Rules.MaxBypass, alone.Rules.LoadThreshold, alone.Rules.MemThreshold = 0, 0, 0
			// What passes until then is gone then.
			alone.Allocations = slices.DeleteFunc(slices.Clone(later.Allocations), func(h Allocation) bool {
				return h.Started.Equal(s.Now) && h.Job[0] == 'j' && h.Run.High > 0 && !s.Now.Add(termOf(h.Run, h.RanBefore, h.Limit).atMost).After(plan.Reservations[i].At)
			})
			if got := Decide(alone); len(got.Starts) != 1 {
				t.Fatalf("job %s does not start when all is gone: %s\n%s", p.Job, told(plan), Explain(alone, p.Job))
			}
		}
	})
}

// TestPlansChangeWhenTheySay decides again at a moment before the plan wants to be
// asked, with nothing changed but the time: nothing starts that did not, and nobody
// is set aside. Runs that outlast what was expected of them let others pass a little
// earlier than that, which is why none does so here.
func TestPlansChangeWhenTheySay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawState(t)
		drawTime(t, &s)
		s.MaxStarts = 0
		knowRuns(&s)
		s = commit(s, Plan{Infeasible: Decide(s).Infeasible})
		next := commit(s, Decide(s))
		plan := Decide(next)
		for range s.Queue.Len() {
			next = commit(next, plan)
			plan = Decide(next)
		}
		latest := plan.Again
		if latest.IsZero() {
			latest = s.Now.Add(100 * hour)
		}
		between := time.Duration(float64(latest.Sub(s.Now)) * rapid.SampledFrom([]float64{0.01, 0.5, 0.99}).Draw(t, "when"))
		next.Now = s.Now.Add(between)
		next.Queue.Tick(next.Now)
		if later := Decide(next); brief(later) != "" || len(later.Victims) > 0 {
			t.Fatalf("%s after %s, with %s to come at %s", told(later), between, told(plan), plan.Again)
		}
		if !plan.Again.IsZero() && !plan.Again.After(s.Now) {
			t.Fatalf("it is to be decided again %s ago", s.Now.Sub(plan.Again))
		}
	})
}

// TestTickingAgainChangesNothing, and rules that are changed are as if they had
// always been so.
func TestTickingAgainChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawState(t)
		drawTime(t, &s)
		want := Decide(s)
		order := s.Queue.First(s.Queue.Len())
		s.Queue.Tick(s.Now)
		if diff := gocmp.Diff(order, s.Queue.First(s.Queue.Len())); diff != "" {
			t.Fatalf("ticking twice reorders:\n%s", diff)
		}
		if diff := gocmp.Diff(want, Decide(s)); diff != "" {
			t.Fatalf("ticking twice decides otherwise:\n%s", diff)
		}
		other := s.Rules
		other.Policy, other.Slice = rapid.SampledFrom(Policies()).Draw(t, "another policy"), rapid.Bool().Draw(t, "other slice")
		other.BorrowTime = rapid.SampledFrom([]time.Duration{-1, 0, hour, 4 * hour}).Draw(t, "another time to borrow")
		s.Queue.SetRules(other)
		s.Queue.Tick(s.Now)
		fresh := s
		fresh.Rules, s.Rules = other, other
		fresh.Queue = requeued(t, fresh)
		if diff := gocmp.Diff(fresh.Queue.First(s.Queue.Len()), s.Queue.First(s.Queue.Len())); diff != "" {
			t.Fatalf("changed rules order otherwise than new ones:\n%s", diff)
		}
		if was, is := len(fresh.Queue.classes), len(s.Queue.classes); was != is {
			t.Fatalf("changed rules leave %d classes, new ones make %d", is, was)
		}
		if diff := gocmp.Diff(Decide(fresh), Decide(s)); diff != "" {
			t.Fatalf("changed rules decide otherwise than new ones:\n%s", diff)
		}
	})
}

// TestJobsDoNotTradePlaces lets two jobs of equal priority and class have one card in
// turn for a long time: neither sets the other aside more often than its classes
// and its whiles allow.
func TestJobsDoNotTradePlaces(t *testing.T) {
	for _, mode := range []PreemptMode{Requeue, Park} {
		for _, policy := range []Policy{Backfill, LAS, Conservative, Shortest, FIFO} {
			rules := DefaultRules()
			rules.Policy = policy
			n := trade(rules, mode, 24*hour)
			// Each crosses one border, or a dozen under las, and is boosted no more
			// than once an hour: it waits for four times what it had, or a day.
			most := map[PreemptMode]int{Requeue: 0, Park: 2*12 + 24}[mode]
			if n > most {
				t.Errorf("%s, %s: set aside %d times within a day", policy, mode, n)
			}
			if n == 0 && mode == Park && policy == Backfill {
				t.Error("nobody gives way: this is no test")
			}
		}
	}
}

// trade runs two jobs without an end on one card and counts who gives way.
func trade(rules Rules, mode PreemptMode, length time.Duration) (n int) {
	q := NewQueue()
	q.SetRules(rules)
	served := map[string]time.Duration{}
	seq := map[string]int64{"a": 1, "b": 2}
	pending := func(id string, since time.Time) Pending {
		return Pending{Job: id, User: id, Seq: seq[id], Since: since, RanBefore: served[id], Request: Request{GPUs: 1}}
	}
	now := midday
	q.Add(pending("b", now))
	since := map[string]time.Time{"a": now, "b": now}
	held := Allocation{Job: "a", User: "a", Seq: 1, Cards: []int{0}, Alone: true, Started: now, Submitted: now, Preempt: Preempt{Mode: mode}}
	for now.Before(midday.Add(length)) {
		q.Tick(now)
		plan := Decide(State{Now: now, Rules: rules, Cards: cardsOf(gib24), Allocations: []Allocation{held}, Queue: q})
		if len(plan.Victims) > 0 {
			n++
			out, in := held.Job, plan.Victims[0].For
			if mode == Park {
				served[out] = held.service(now)
			}
			q.Remove(in)
			since[out] = now
			q.Add(pending(out, now))
			held = Allocation{Job: in, User: in, Seq: seq[in], Cards: []int{0}, Alone: true, Started: now, Submitted: midday,
				RanBefore: served[in], Waited: now.Sub(since[in]), Preempt: Preempt{Mode: mode}}
			continue
		}
		if plan.Again.IsZero() {
			return n
		}
		now = plan.Again
	}
	return n
}
