package sched

import "time"

// wake asks for another decision at that time, if it is later than now.
func (p *Plan) wake(now, at time.Time) {
	if at.After(now) && (p.Again.IsZero() || at.Before(p.Again)) {
		p.Again = at
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
		d.plan.wake(now, b.at)
	}
	if bypass := rules.MaxBypass; bypass > 0 {
		d.plan.wake(now, q.overtaken(now, bypass))
		d.plan.wake(now, q.overtaken(now, 2*bypass))
	}
	for _, h := range d.running.list {
		if h.Preempt.Mode == "" || h.Other {
			continue
		}
		d.plan.wake(now, h.protectedUntil(rules))
		if h.Preempt.keepsWork() {
			_, until := h.class(rules, now)
			d.plan.wake(now, until)
		}
	}
	for _, r := range d.reservations {
		if !r.claim {
			d.plan.wake(now, r.at) // if it does not start then, a job ran longer than expected
		}
	}
	return d.plan.Again
}
