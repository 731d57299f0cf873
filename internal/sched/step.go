package sched

import (
	"maps"
	"slices"
	"time"

	"berth/internal/job"
)

// Bounds of a forecast. Beyond them it is estimated by placeRest.
const (
	// maxStepped is how many jobs a queue has that is stepped forward. A job that is
	// behind them now and starts early all the same makes a forecast inexact.
	maxStepped = 384
	// overtakers and overtakersLeast say how many jobs are stepped where the last
	// one asked for is near the front.
	overtakers, overtakersLeast = 2, 32
	// maxDecisions is how many decisions are made for one of the three durations.
	maxDecisions = 128
)

// measureTime is how long the memory of a share is taken to be unmeasured.
const measureTime = 3 * time.Second

// bound selects one of the three durations of an estimate.
type bound int

const (
	shortest bound = iota
	expected
	longest
)

// steps is a State that is stepped forward by Decide itself: it begins with the
// first jobs of a queue, and time passes to the next end of a job.
type steps struct {
	preview *Preview
	bound   bound
	state   State
	runs    []run            // parallel to state.Allocations
	starts  map[string]start // the first of each job
	ended   map[string]float64
	endedAt time.Time
	settled time.Time   // when shares that started unmeasured are measured
	last    map[int]end // of each card
	vague   bool        // a duration is not known exactly
	done    bool        // every job asked for has started, or nothing more happens
}

// run is when an allocation ends, and what is queued again if it was preempted.
type run struct {
	end     time.Time // zero: never
	pending Pending
}

// start is when a job starts, and the job whose end lets it.
type start struct {
	at    time.Time
	after string // empty: it is not known
}

// end is when the last job left a card.
type end struct {
	at  time.Time
	job string
}

// steps begins at the preview's time.
func (v *Preview) steps(b bound) *steps {
	p := &steps{preview: v, bound: b, state: v.state, starts: map[string]start{}, endedAt: v.state.Now, last: map[int]end{}}
	s := &p.state
	s.Cards = slices.Clone(s.Cards)
	s.Allocations = slices.Clone(s.Allocations)
	s.ArrayRuns, s.InUse, s.ParkOfMiB = cloned(s.ArrayRuns), cloned(s.InUse), maps.Clone(s.ParkOfMiB)
	s.Groups = maps.Clone(s.Groups)
	s.Queue = v.queue()
	p.ended = cloned(s.Usage)
	for i := range s.Allocations {
		h := &s.Allocations[i]
		p.runs = append(p.runs, run{end: p.until(v.left(h)), pending: h.requeued(&s.Rules)})
		if _, counted := p.ended[h.User]; counted && !h.Other {
			p.ended[h.User] = max(0, p.ended[h.User]-p.charge(h))
		}
	}
	return p
}

func cloned[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return maps.Clone(m)
}

// run steps forward until all these jobs have started, nothing more happens, or a
// bound is reached.
func (p *steps) run(jobs []string) {
	for range maxDecisions {
		again := p.decide()
		jobs = slices.DeleteFunc(jobs, func(job string) bool { _, started := p.starts[job]; return started })
		next := p.next(again)
		if p.done = len(jobs) == 0 || next.IsZero(); p.done {
			return
		}
		p.passTo(next)
	}
}

// decide makes the decision of this moment, and returns when it wants to be made
// again.
func (p *steps) decide() time.Time {
	s := &p.state
	for {
		s.Queue.Tick(s.Now)
		p.updateUsage()
		d := newDecision(s)
		d.run(nil)
		for i, start := range d.plan.Starts {
			p.start(d.started[i], start.Grant)
		}
		for _, victim := range d.plan.Victims {
			p.preempt(victim)
		}
		for _, refusal := range d.plan.Infeasible {
			s.Queue.Remove(refusal.Job)
		}
		if len(d.plan.Starts) == 0 || !d.full() {
			return d.plan.Again
		}
	}
}

// start moves a job from the queue to its cards.
func (p *steps) start(h *Allocation, grant job.Grant) {
	s := &p.state
	pending, _ := s.Queue.Get(h.Job)
	s.Queue.Remove(h.Job)
	own := *h
	own.User, own.Priority, own.Rank, own.Seq = pending.User, pending.Priority, pending.Rank, pending.Seq
	own.Submitted, own.Waited, own.Preempt = pending.Submitted, max(0, s.Now.Sub(pending.Since)), pending.Preempt
	if pending.ArrayLimit > 0 {
		own.Array = pending.Array
		s.ArrayRuns[own.Array]++
	}
	use := s.InUse[own.User]
	if use.add(own.CountedGPUs(), own.CPUs, own.MemMiB); pending.Parked {
		use.Parked = max(0, use.Parked-1)
		p.parkMiB(&own, pending.Preempt.MemMiB)
	} else {
		use.Jobs++
	}
	if pending.Unproven {
		use.Unmeasured += max(0, float64(len(own.Cards))-own.CountedGPUs())
		p.settled = s.Now.Add(measureTime)
	}
	s.InUse[own.User] = use
	p.joinGroup(GroupName{pending.User, pending.Group}, own.Job)
	until := p.until(knownLeft(pending.Run, pending.Limit, pending.RanBefore))
	if pending.RanBefore > 0 && !until.IsZero() {
		until = until.Add(pending.Preempt.ResumeTime)
	}
	if _, before := p.starts[own.Job]; !before {
		p.starts[own.Job] = start{at: s.Now, after: p.lastOn(grant.GPUs)}
	}
	s.Allocations = append(s.Allocations, own)
	p.runs = append(p.runs, run{end: until, pending: pending})
}

// lastOn is the job that left these cards last.
func (p *steps) lastOn(cards []int) string {
	var last end
	for _, index := range cards {
		if e, some := p.last[index]; some && !e.at.Before(last.at) {
			last = e
		}
	}
	return last.job
}

func (p *steps) joinGroup(name GroupName, job string) {
	if of, set := p.state.Groups[name]; set {
		of.Running = append(slices.Clip(of.Running), job)
		p.state.Groups[name] = of
	}
}

// preempt has a running job leave its cards.
func (p *steps) preempt(v Victim) {
	s := &p.state
	i := slices.IndexFunc(s.Allocations, func(h Allocation) bool { return h.Job == v.Job && !h.Other })
	h, r := &s.Allocations[i], &p.runs[i]
	r.pending = h.back(r.pending, s.Now)
	h.BeingPreempted, h.PreemptedFor, h.FreeBy = true, v.For, s.Now.Add(h.Preempt.StopTime)
	r.end = h.FreeBy
	if r.pending.Parked {
		p.parkMiB(h, -h.Preempt.MemMiB)
	}
}

// parkMiB changes how much host memory parked jobs may still take.
func (p *steps) parkMiB(h *Allocation, byMiB int64) {
	s := &p.state
	if s.ParkMiB != 0 {
		if s.ParkMiB = max(0, s.ParkMiB) + byMiB; s.ParkMiB <= 0 {
			s.ParkMiB = -1
		}
	}
	if left, bounded := s.ParkOfMiB[h.User]; bounded {
		s.ParkOfMiB[h.User] = left + byMiB
	}
}

// back is a running job as it waits once it has been preempted.
func (h *Allocation) back(p Pending, now time.Time) Pending {
	p.Since = now
	if h.Preempt.Saves {
		// What it loses counts as service, and has to be done again.
		p.RanBefore, p.Run = h.service(now), p.Run.Plus(h.lost(now))
	}
	if h.Preempt.Mode == Park {
		p.RanBefore, p.Parked, p.Request.IDs, p.Request.Allow = h.service(now), true, joinIDs(h.Cards), ""
		if p.Limit > 0 {
			p.Limit = max(time.Second, p.Limit-h.lasted(now))
		}
	}
	return p
}

// requeued is a running job as it would wait, as far as its allocation says. What is
// being preempted already is taken to be parked where jobs take turns.
func (h *Allocation) requeued(rules *Rules) Pending {
	p := Pending{
		Job: h.Job, User: h.User, Priority: h.Priority, Rank: h.Rank, Seq: h.Seq,
		Request:   Request{GPUs: len(h.Cards), Share: h.share(), Exclusive: h.Exclusive, CPUs: h.CPUs, MemMiB: h.MemMiB, IDs: joinIDs(h.Cards)},
		Submitted: h.Submitted, RanBefore: h.RanBefore, Run: h.Run, Limit: h.Limit, Preempt: h.Preempt,
	}
	if !h.Alone && p.Request.Share == 0 && len(h.BudgetMiB) > 0 {
		p.Request.VRAMMiB = slices.Max(h.BudgetMiB)
	}
	if !h.BeingPreempted {
		p.Request.IDs = "" // it may come back elsewhere unless it is parked
		return p
	}
	p.Since, p.Parked = h.FreeBy, rules.TakesTurns() || rules.Policy == LAS
	return p
}

// until is when a job with this estimate ends if it runs from now on; zero: never.
func (p *steps) until(left Estimate) time.Time {
	d := p.preview.length(left, p.bound)
	p.vague = p.vague || left.Low != d || left.High != d
	if d < forEver {
		return p.state.Now.Add(d)
	}
	return time.Time{}
}

// next is when something happens next; zero: never.
func (p *steps) next(again time.Time) time.Time {
	next := again
	sooner := func(at time.Time) {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	for i := range p.runs {
		sooner(p.runs[i].end)
	}
	sooner(p.settled)
	return next
}

// passTo lets time pass, and ends the jobs that end by then.
func (p *steps) passTo(at time.Time) {
	s := &p.state
	s.Now = latest(s.Now, at)
	if !p.settled.IsZero() && !p.settled.After(s.Now) {
		p.settled = time.Time{}
		for user, use := range s.InUse {
			use.Unmeasured = 0
			s.InUse[user] = use
		}
	}
	kept := 0
	for i := range p.runs {
		if end := p.runs[i].end; !end.IsZero() && !end.After(s.Now) {
			p.end(&s.Allocations[i], p.runs[i].pending)
			continue
		}
		s.Allocations[kept], p.runs[kept] = s.Allocations[i], p.runs[i]
		kept++
	}
	s.Allocations, p.runs = s.Allocations[:kept], p.runs[:kept]
}

// end takes a job off its cards, whose measurements no longer hold. A preempted one
// waits again.
func (p *steps) end(h *Allocation, pending Pending) {
	s := &p.state
	for i := range s.Cards {
		if c := &s.Cards[i]; slices.Contains(h.Cards, c.Index) {
			c.UtilPct, c.UsedMiB = 0, 0
			p.last[c.Index] = end{s.Now, h.Job}
		}
	}
	if h.Other {
		return
	}
	use := s.InUse[h.User]
	use.add(-h.CountedGPUs(), -h.CPUs, -h.MemMiB)
	if h.BeingPreempted && pending.Parked {
		use.Parked++
	} else {
		use.Jobs--
	}
	s.InUse[h.User] = use
	if h.Array != "" {
		s.ArrayRuns[h.Array]--
	}
	for name, of := range s.Groups {
		if i := slices.Index(of.Running, h.Job); i >= 0 {
			of.Running = slices.Delete(slices.Clone(of.Running), i, i+1)
			s.Groups[name] = of
		}
	}
	if s.Rules.Fair {
		p.ended, p.endedAt = Decayed(p.ended, s.Now.Sub(p.endedAt), s.HalfLife), s.Now
		p.ended[h.User] += h.FairWeight(p.preview.scale) * h.since(s.Now).Seconds()
	}
	if h.BeingPreempted {
		s.Queue.Add(pending)
	}
}

// updateUsage is each user's usage as of now, as an engine counts it.
func (p *steps) updateUsage() {
	s := &p.state
	if !s.Rules.Fair {
		return
	}
	s.Usage = Decayed(p.ended, s.Now.Sub(p.endedAt), s.HalfLife)
	for i := range s.Allocations {
		if h := &s.Allocations[i]; !h.Other {
			s.Usage[h.User] += p.charge(h)
		}
	}
}

// charge is what a running job adds to its user's usage.
func (p *steps) charge(h *Allocation) float64 {
	return h.FairWeight(p.preview.scale) * (h.since(p.state.Now).Seconds() + p.state.FairQuantum)
}

// since is how long this attempt has had its cards.
func (h *Allocation) since(now time.Time) time.Duration {
	if h.Started.IsZero() {
		return 0
	}
	return max(0, now.Sub(h.Started))
}
