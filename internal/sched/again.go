package sched

import "time"

// wake asks for another decision at that time.
func (d *decision) wake(at time.Time) {
	if at.After(d.state.Now) && (d.plan.Again.IsZero() || at.Before(d.plan.Again)) {
		d.plan.Again = at
	}
}

// again is when time alone changes the decision. Times noted on the way are in the
// plan already.
func (d *decision) again() time.Time {
	q, rules, now := d.state.Queue, &d.state.Rules, d.state.Now
	if q.Len() <= len(d.plan.Starts) {
		return time.Time{}
	}
	if b, some := q.boosts.at(listPos{}); some {
		d.wake(b.at)
	}
	if bypass := rules.MaxBypass; bypass > 0 {
		d.wake(q.overtaken(now, bypass))
		d.wake(q.overtaken(now, 2*bypass))
	}
	for _, h := range d.running {
		if h.Preempt.Mode == "" || h.Other {
			continue
		}
		d.wake(h.protectedUntil(rules))
		if h.Preempt.keepsWork() {
			_, until := h.class(rules, now)
			d.wake(until)
		}
	}
	for _, r := range d.reservations {
		if !r.claim {
			d.wake(r.at) // if it does not start then, a job ran longer than expected
		}
	}
	return d.plan.Again
}
