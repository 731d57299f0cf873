package sched

import (
	"slices"
	"time"

	"berth/internal/job/reason"
)

// Expect says when a waiting job is expected to start. It lays out the jobs in
// front of it in their order, each where it can start soonest, three times: with
// the shortest, the usual and the longest durations.
func Expect(s State, job string) reason.Forecast {
	if _, queued := s.Queue.Get(job); !queued {
		return reason.Forecast{Now: s.Now, None: reason.NoneNotQueued}
	}
	plan := Decide(s)
	front, position := inFront(&s, job)
	return expect(&s, job, Explain(s, job), &plan, front, position)
}

// Ends visits the jobs that are expected to end, running ones and waiting ones, as
// far as their duration is known from earlier runs. It lays out the whole queue once,
// with the usual durations, so that all ends cost less than one Expect.
func Ends(s State, visit func(job string, at time.Time)) {
	learnt := func(run Estimate, limit time.Duration, left Estimate) bool {
		var b reason.Basis
		return countRun(&b, run, limit, left) && b.Limit == 0
	}
	for i := range s.Allocations {
		h := &s.Allocations[i]
		if left := h.left(s.Now); !h.Other && !h.BeingPreempted && learnt(h.Run, h.Limit, left) {
			visit(h.Job, s.Now.Add(left.Mid))
		}
	}
	front, _ := inFront(&s, "")
	known := knowledge(&s, front, nil)
	l := known.newLayout(&s, asRule)
	for i, a := range front {
		start := l.placeFront(i, a).start
		end := later(start, l.length(a.left))
		// One that could start now, and does not, waits for something without a known end.
		if start > 0 && end < never && learnt(a.run, a.class.term.limit, a.left) {
			visit(a.entry.job, s.Now.Add(time.Duration(end)))
		}
	}
}

// keeps is the job's reservation, or nil.
func (p *Plan) keeps(job string) *Reservation {
	for i := range p.Reservations {
		if p.Reservations[i].Job == job {
			return &p.Reservations[i]
		}
	}
	return nil
}

// expect is Expect for a caller that has the reason, the decision and the jobs in
// front already.
func expect(s *State, job string, why reason.Reason, plan *Plan, front []*ahead, position int) reason.Forecast {
	f := reason.Forecast{Now: s.Now, None: noneOf(why)}
	if f.None != "" {
		return f
	}
	if why.Kind == reason.StartsNow || why.Kind == reason.WaitsForTurn {
		f.Low, f.Mid, f.High = s.Now, s.Now, s.Now
		return f
	}
	if why.Kind == reason.WaitsBehind { // no job overtakes that one, whenever it starts
		ahead, at := inFront(s, why.Job)
		if f.None = expect(s, why.Job, *why.Because, plan, ahead, at).None; f.None != "" {
			return f
		}
	}
	f.Beyond = position > len(front)+1
	for i := range front {
		front[i].kept = len(plan.Reservations) > 0 && plan.keeps(front[i].entry.job) != nil
	}
	self := s.Queue.jobs[job]
	lay(&f, s, front, &self)
	if !f.High.IsZero() && !f.High.After(s.Now) {
		f.Mid, f.High = time.Time{}, time.Time{} // the obstacle, such as a card's load, has no known end
	}
	if kept := plan.keeps(job); kept != nil {
		hold(&f, kept.At)
	}
	if at, some := roomMade(s, plan, job); some {
		f.None, f.Behind, f.Low, f.Mid, f.High = "", "", at, at, at
	}
	return f
}

// roomMade is when the last victim of this plan is gone for a job.
func roomMade(s *State, plan *Plan, job string) (at time.Time, some bool) {
	for _, a := range plan.Victims {
		if a.For != job {
			continue
		}
		some = true
		for i := range s.Allocations {
			if h := &s.Allocations[i]; h.Job == a.Job && !h.Other {
				at = latest(at, s.Now.Add(h.Preempt.StopTime))
			}
		}
	}
	return at, some
}

// hold uses the start that the plan itself expects: it knows the job's victims.
func hold(f *reason.Forecast, at time.Time) {
	if at = latest(at, f.Now); !f.Mid.IsZero() && !at.Before(f.Mid) {
		return
	}
	if f.None, f.Mid = "", at; f.Low.IsZero() || f.Low.After(at) {
		f.Low, f.High = at, at // no known end is that early: jobs are preempted for it
	}
}

// noneOf is why a job with this reason has no expected start.
func noneOf(why reason.Reason) reason.NoForecast {
	switch {
	case why.Kind.Infeasible():
		return reason.NoneInfeasible
	case why.Kind == reason.WaitsForLimit:
		return reason.NoneLimit
	case why.Kind == reason.WaitsForArray:
		return reason.NoneArray
	case why.Kind == reason.WaitsForGroup:
		return reason.NoneGroup
	case why.Kind == reason.WaitsForResume:
		return reason.NonePaused
	case why.Kind == reason.WaitsForReadings:
		return reason.NoneUnreadable
	case why.Kind == reason.NotQueued:
		return reason.NoneNotQueued
	}
	return ""
}

// lay fills in the forecast from three layouts.
func lay(f *reason.Forecast, s *State, front []*ahead, self *member) {
	known := knowledge(s, front, self.class)
	f.Basis = known.basis
	asks, left := known.asks[self.class], self.left()
	if countRun(&reason.Basis{}, self.run, self.class.term.limit, left); left.High <= 0 {
		left.Mid = 0
	}
	low := known.layout(s, front, asks, left, atLeast)
	mid := known.layout(s, front, asks, left, asRule)
	high := known.layout(s, front, asks, left, atMost)
	if mid.binds.front >= 0 {
		f.Behind = front[mid.binds.front].entry.job
	}
	if mid.closed {
		f.None = reason.NoneClosed
		return
	}
	// Layouts are greedy, so shorter durations may by chance give a later start.
	lowest := min(low.start, mid.start, high.start)
	f.Low = s.Now.Add(time.Duration(lowest))
	if f.Beyond {
		return
	}
	if mid.start < never {
		f.Mid = s.Now.Add(time.Duration(mid.start))
	}
	if highest := max(mid.start, high.start); highest < never {
		f.High = s.Now.Add(time.Duration(highest))
	}
}

// known is what is known about durations.
type known struct {
	slots   []*slot
	asks    map[*class]*ask
	alike   map[Request]*ask // by request
	runs    []*Allocation    // running, in an order independent of the caller's
	held    []Estimate       // remaining time of each
	typical time.Duration    // assumed for a job without an estimate; 0: no job has one
	least   least
	basis   reason.Basis
}

// knowledge collects the estimates of the jobs running and in front, and notes them
// with those in front. Without a job itself, the front is the whole queue.
func knowledge(s *State, front []*ahead, self *class) known {
	k := known{slots: slotsOf(s.machine()), runs: inOrder(s.Allocations), held: make([]Estimate, len(s.Allocations)), asks: map[*class]*ask{}, alike: map[Request]*ask{}}
	if self != nil {
		k.ask(s, self)
	}
	usual := make([]time.Duration, 0, len(s.Allocations)+len(front))
	for i, h := range k.runs {
		k.held[i] = h.left(s.Now)
		k.basis.Running++
		countRun(&k.basis, h.Run, h.Limit, k.held[i])
		if h.Started.IsZero() && k.held[i].High <= 0 {
			k.held[i].Mid = 0 // not even its start is known
			continue
		}
		usual = append(usual, h.ran(s.Now)+k.held[i].Mid)
	}
	for _, a := range front {
		a.ask = k.ask(s, a.class)
		k.basis.InFront++
		if countRun(&k.basis, a.run, a.class.term.limit, a.left) {
			usual = append(usual, a.left.Mid)
		} else {
			a.left.Mid = 0
		}
	}
	k.least = leastOf(k.alike)
	if len(usual) > 0 {
		slices.Sort(usual)
		k.typical = usual[len(usual)/2]
	}
	return k
}

func slotsOf(m *machine) []*slot {
	slots := make([]*slot, len(m.slots))
	for i := range m.slots {
		slots[i] = &m.slots[i]
	}
	return slots
}

// ask is what a group asks for, worked out once per request.
func (k *known) ask(s *State, g *class) *ask {
	a := k.asks[g]
	if a != nil {
		return a
	}
	same := k.alike[g.request]
	if same == nil {
		same = askOf(s, k.slots, g)
		k.alike[g.request] = same
	}
	own := *same
	own.class, a = g, &own
	if g.parked {
		a.user.use[0], a.user.room[0] = 0, 0 // its user's limit counts it already
	}
	k.asks[g] = a
	return a
}

// countRun counts a job by what is known about its duration, and reports whether
// anything is.
func countRun(b *reason.Basis, run Estimate, limit time.Duration, left Estimate) bool {
	switch {
	case left.High <= 0 && limit <= 0:
		b.Unknown++
		return false
	case limit > 0 && (run == Estimate{} || run.Low == 0 && run.High >= limit):
		b.Limit++
	case run.Guess:
		b.Guessed++
	default:
		b.History++
	}
	return true
}

// ran is how long the job has run, earlier service included.
func (h *Allocation) ran(now time.Time) time.Duration {
	if h.Started.IsZero() {
		return h.RanBefore
	}
	return h.service(now)
}

// left is how much longer the job is expected to run. A job that is being preempted
// is gone when it said it would be.
func (h *Allocation) left(now time.Time) Estimate {
	if h.BeingPreempted && !h.FreeBy.IsZero() {
		rest := max(0, h.FreeBy.Sub(now))
		return Estimate{Low: rest, Mid: rest, High: max(rest, time.Second)}
	}
	limit := h.Limit
	if limit > 0 {
		limit += h.RanBefore // the limit is for this attempt only
	}
	return h.Run.Left(h.ran(now), limit)
}

// left is how long the job runs once it starts.
func (m *member) left() Estimate {
	limit := m.class.term.limit
	if limit > 0 {
		limit += m.served
	}
	return m.run.Left(m.served, limit)
}
