package sched

import (
	"math"
	"time"
)

// serviceClass orders jobs that can be parked: lower goes first. They move up
// through the classes as they receive service, so that short jobs end soon although
// nobody knows that they are short.
type serviceClass int8

// The classes under Rules.Slice. A boosted job goes before all but those with
// hardly any service.
const (
	classFresh serviceClass = iota
	classBoosted
	classLong
)

// lasEnd is a hundred years in seconds: no job reaches a LAS bound beyond it.
const lasEnd = 100 * 365 * 24 * 3600.0

// TakesTurns reports whether jobs are ordered by the service they have received.
func (r *Rules) TakesTurns() bool {
	return r.Slice && r.Policy != LAS && r.Policy != FIFO && r.Policy != Shortest
}

// rank is a waiting job's service class, and the policy's order within it.
func (r *Rules) rank(p *Pending) (serviceClass, float64) {
	switch {
	case r.Policy == Shortest:
		return classFresh, p.need()
	case r.Policy == LAS:
		return lasClass(p.RanBefore, p.Request.weight()), 0
	case r.TakesTurns():
		return sliceClass(p.RanBefore), 0
	}
	return classFresh, 0
}

// need is the GPU time that the job is expected to take, in seconds. A job without
// an estimate goes behind those that are expected to take no longer than a boost.
func (p *Pending) need() float64 {
	left := p.Run.Left(p.RanBefore, 0).Mid
	if p.Run.Mid <= 0 {
		left = boostLeast
		if p.Limit > 0 {
			left = p.Limit
		}
	}
	return math.Max(0, left.Seconds()) * math.Max(cpuWeight, p.Request.weight())
}

func sliceClass(served time.Duration) serviceClass {
	if served < freshService {
		return classFresh
	}
	return classLong
}

func lasClass(served time.Duration, gpus float64) serviceClass {
	service := served.Seconds() * gpus
	if service < lasBase {
		return 0
	}
	// A comparison, not a logarithm: the border is where Again says it is.
	c := serviceClass(1)
	for border := lasBase * lasGrowth; service >= border && c < math.MaxInt8; border *= lasGrowth {
		c++
	}
	return c
}

// boostOf is when a waiting job becomes boosted, if that changes its place.
func (r *Rules) boostOf(m *member) (boost, bool) {
	if !r.TakesTurns() || m.entry.service <= classBoosted {
		return boost{}, false
	}
	return boost{m.due(m.since), m.entry.job}, true
}

// longWait is how long a job waits for a boost after this much service.
func longWait(served time.Duration) time.Duration {
	return boostWaitTimes * min(served, boostWaitMost/boostWaitTimes)
}

// due is when the job is due for a boost, if it waits from then on.
func (m *member) due(from time.Time) time.Time { return from.Add(longWait(m.served)) }

// early reports whether the job counts as not having used up a boost yet.
func (m *member) early() bool { return m.served < boostFirst }

// boostSize orders the boosted jobs, which may be weeks of work. Jobs that have not
// used up a boost go first, by when they became due: most need only one. The others
// go by when they would have been due without their earlier waits, which is mostly
// the order of submission, so that one is finished after the other. Boosting them
// in turn would end all of them late.
func (m *member) boostSize() float64 {
	if m.early() {
		return float64(m.due(m.since).UnixMilli()) - boostApart
	}
	from := m.since
	if !m.submitted.IsZero() {
		from = m.submitted.Add(m.served)
	}
	return float64(m.due(from).UnixMilli())
}

// boostApart exceeds any difference of two times in milliseconds, and keeps
// milliseconds exact in a float64.
const boostApart = 1 << 52

// holdsFast reports a job with several GPUs that gives none of them back until it ends.
// It takes turns with nobody, so the time it has received says nothing about it: it
// would keep the rank of a fresh job for ever. A job with one GPU keeps that rank.
// It takes little from the others, and many of these jobs are short.
func (p *Pending) holdsFast() bool { return p.Request.GPUs > 1 && !p.Preempt.keepsWork() }

// neverBorrows reports a job that may not run beyond its user's share: it can neither
// give way nor is it sure to end soon.
func (r *Rules) neverBorrows(p *Pending) bool {
	return r.BorrowTime != 0 && p.Preempt.Mode == "" && (p.Limit <= 0 || p.Limit > r.BorrowTime+r.BorrowTime/borrowGrace)
}

// inTurn reports whether fair share applies within the class. Jobs beyond the first
// class go by time alone.
func (r *Rules) inTurn(c serviceClass) bool { return c == classFresh || !r.TakesTurns() }

// lasted is how long this attempt has run, without the time to resume it; 0 if its
// start is not known.
func (h *Allocation) lasted(now time.Time) time.Duration {
	if h.Started.IsZero() {
		return 0
	}
	return max(0, now.Sub(h.Started)-h.resumeTime())
}

// resumeTime is how long this attempt does not run, because it comes back first.
func (h *Allocation) resumeTime() time.Duration {
	if h.RanBefore > 0 {
		return h.Preempt.ResumeTime
	}
	return 0
}

// service is how long the job has run without losing the work.
func (h *Allocation) service(now time.Time) time.Duration { return h.RanBefore + h.lasted(now) }

// class is a running job's service class, and when it leaves that class if it runs
// on; zero: never.
func (h *Allocation) class(r *Rules, now time.Time) (c serviceClass, until time.Time) {
	had := h.service(now)
	in := func(d time.Duration) time.Time { return now.Add(max(d, time.Millisecond)) }
	switch {
	case r.Policy == LAS:
		gpus := h.weight()
		c = lasClass(had, gpus)
		if gpus <= 0 {
			return c, time.Time{}
		}
		border := lasBase * math.Pow(lasGrowth, float64(c)) / gpus
		if border > lasEnd {
			return c, time.Time{}
		}
		return c, in(time.Duration(border*float64(time.Second)) - had + time.Millisecond)
	case !r.TakesTurns():
		return classFresh, time.Time{}
	}
	if c = sliceClass(had); c == classFresh {
		return c, in(freshService - had)
	}
	if end := h.Started.Add(h.boost()); h.Waited >= longWait(h.RanBefore) && now.Before(end) {
		return classBoosted, end
	}
	return c, time.Time{}
}

// boost is how long the boost lasts that follows a wait.
func (h *Allocation) boost() time.Duration {
	length := boostLeast
	if !h.Submitted.IsZero() {
		length = max(length, (h.Started.Sub(h.Submitted)-h.RanBefore)/boostPart)
	}
	return length
}

// minRun is how long a job runs before it is preempted for one that needs so many
// GPUs. Preempting a gang of eight for the sake of one card costs eight times what
// the card is worth, so it runs eight times as long first.
func (h *Allocation) minRun(r *Rules, gpus float64) time.Duration {
	least := minRun
	if r.MinRun > 0 {
		least = r.MinRun
	}
	least = max(least, minRunCosts*(h.Preempt.StopTime+h.Preempt.ResumeTime))
	if own := h.weight(); own > gpus && gpus > 0 {
		least = time.Duration(float64(least) * own / gpus)
	}
	if h.Preempt.Saves && h.Preempt.SavesEvery > 0 {
		least = max(least, h.resumeTime()+h.Preempt.SavesEvery) // each attempt saves something
	}
	return least
}
