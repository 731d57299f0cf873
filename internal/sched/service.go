package sched

import (
	"math"
	"time"
)

// serviceClass is a class of service: the lower, the sooner. Jobs that can be parked
// move on through the classes as they get service, so that what is short is
// done soon without anybody knowing that it is short.
type serviceClass int8

// The classes under Rules.Slice. What waited for long goes before all but what
// had hardly anything.
const (
	classFresh serviceClass = iota
	classBoosted
	classLong
)

// lasEnd is a hundred years in seconds: no run reaches a border of a class of LAS
// that is further away.
const lasEnd = 100 * 365 * 24 * 3600.0

// slices reports whether jobs go by what service they had.
func (r *Rules) slices() bool {
	return r.Slice && r.Policy != LAS && r.Policy != FIFO && r.Policy != Shortest
}

// rank is where the rules put a waiting job: its class, and what the policy
// goes by within it.
func (r *Rules) rank(p *Pending) (serviceClass, float64) {
	switch {
	case r.Policy == Shortest:
		return classFresh, p.need()
	case r.Policy == LAS:
		return lasClass(p.Served, p.Request.FairWeight()), 0
	case r.slices():
		return sliceClass(p.Served), 0
	}
	return classFresh, 0
}

// need is the GPU time that the job is expected to take, in seconds. One without
// an estimate comes behind those that are expected to be no longer than a boost.
func (p *Pending) need() float64 {
	left := p.Run.Left(p.Served, 0).Mid
	if p.Run.Mid <= 0 {
		left = boostLeast
		if p.Limit > 0 {
			left = p.Limit
		}
	}
	return math.Max(0, left.Seconds()) * math.Max(cpuWeight, p.Request.FairWeight())
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

// boostOf is when a waiting job will have waited for long, if it will and that
// changes anything.
func (r *Rules) boostOf(m *member) (boost, bool) {
	if !r.slices() || m.entry.service <= classBoosted {
		return boost{}, false
	}
	return boost{m.due(m.since), m.entry.job}, true
}

// longWait is how long a job has to wait, by what it had, to have waited for
// long.
func longWait(served time.Duration) time.Duration {
	return boostWaitTimes * min(served, boostWaitMost/boostWaitTimes)
}

// due is when the job will have waited for long, if it waits from then on.
func (m *member) due(from time.Time) time.Time { return from.Add(longWait(m.served)) }

// early reports whether the job may be taken not to have had a while yet.
func (m *member) early() bool { return m.served < boostFirst }

// boostSize orders what waited for long, which may be weeks of work. Who has not
// had a while yet comes first, by when it was due: most need no more than one. If
// the others went by that too, all would have a while in turn, so that all end late
// and who needs most whiles last of all. They go by when they would have been due
// had they never waited before: as a rule who came first, until it is done.
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

// boostApart is more milliseconds than lie between any two moments, and few
// enough that each of them is still told from the next.
const boostApart = 1 << 52

// inTurn reports whether users take turns within the class. Jobs that had more
// than the first class go by the time alone.
func (r *Rules) inTurn(c serviceClass) bool { return c == classFresh || !r.slices() }

// lasted is how long this run has lasted, bringing it back not counted. Of one
// that nobody knows the beginning of it is not known.
func (h *Held) lasted(now time.Time) time.Duration {
	if h.Started.IsZero() {
		return 0
	}
	ran := now.Sub(h.Started)
	if h.Served > 0 {
		ran -= h.Preempt.Back
	}
	return max(0, ran)
}

// service is what the job had so far and kept.
func (h *Held) service(now time.Time) time.Duration { return h.Served + h.lasted(now) }

// class is the class that a running job is in now, and when it leaves that
// class if it goes on running; zero: never.
func (h *Held) class(r *Rules, now time.Time) (c serviceClass, until time.Time) {
	had := h.service(now)
	in := func(d time.Duration) time.Time { return now.Add(max(d, time.Millisecond)) }
	switch {
	case r.Policy == LAS:
		gpus := h.FairWeight()
		c = lasClass(had, gpus)
		if gpus <= 0 {
			return c, time.Time{}
		}
		border := lasBase * math.Pow(lasGrowth, float64(c)) / gpus
		if border > lasEnd {
			return c, time.Time{}
		}
		return c, in(time.Duration(border*float64(time.Second)) - had + time.Millisecond)
	case !r.slices():
		return classFresh, time.Time{}
	}
	if c = sliceClass(had); c == classFresh {
		return c, in(freshService - had)
	}
	if end := h.Started.Add(h.boost()); h.Waited >= longWait(h.Served) && now.Before(end) {
		return classBoosted, end
	}
	return c, time.Time{}
}

// boost is how long a job is boosted that had waited for long.
func (h *Held) boost() time.Duration {
	length := boostLeast
	if !h.Submitted.IsZero() {
		length = max(length, (h.Started.Sub(h.Submitted)-h.Served)/boostPart)
	}
	return length
}

// minRun is how long a job runs before it gives way to one that needs so many
// GPUs. Setting a gang of eight aside for the sake of one card costs eight times
// what the card is worth, so that it runs for eight times as long before.
func (h *Held) minRun(r *Rules, gpus float64) time.Duration {
	least := minRun
	if r.MinRun > 0 {
		least = r.MinRun
	}
	least = max(least, minRunCosts*(h.Preempt.Out+h.Preempt.Back))
	if own := h.FairWeight(); own > gpus && gpus > 0 {
		least = time.Duration(float64(least) * own / gpus)
	}
	return least
}
