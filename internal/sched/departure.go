package sched

import (
	"slices"
	"time"
)

// departure is when a job is expected to be off its cards.
type departure struct {
	held *Allocation // nil: a job with a reservation
	at   time.Time
}

// departures are the expected ends of running and reserved jobs, in order, up to
// the horizon if there is one. They are valid until the next call.
func (d *decision) departures(h *head, u urgency, horizon time.Time) []departure {
	list := d.departing[:0]
	for _, held := range d.running.list {
		list = append(list, departure{held, d.running.freeAt(held, h, u)})
	}
	for _, held := range slices.Concat(d.started, d.claims) {
		list = append(list, departure{held, latest(d.state.Now, held.Started).Add(held.rest(d.state.Now))})
	}
	for _, r := range d.reservations {
		if !r.claim && r.usual > 0 {
			list = append(list, departure{nil, r.at.Add(r.usual)})
		}
	}
	if !horizon.IsZero() {
		list = slices.DeleteFunc(list, func(o departure) bool { return o.at.After(horizon) })
	}
	slices.SortStableFunc(list, func(a, b departure) int { return a.at.Compare(b.at) })
	d.departing = list
	return list
}

// freeAt is when a running job is expected to be off its cards, as seen by a
// waiting one.
func (rs *runningJobs) freeAt(held *Allocation, h *head, u urgency) time.Time {
	now := rs.state.Now
	switch {
	case held.BeingPreempted:
		return latest(now, held.FreeBy)
	case rs.beingPreempted[held]:
		return now.Add(held.Preempt.StopTime)
	case rs.outranks(h, held, u):
		return latest(now, rs.preemptibleFrom(held, h)).Add(held.Preempt.StopTime)
	case held.Started.IsZero():
		return now.Add(otherBerthsEstimate)
	}
	return now.Add(held.rest(now))
}

// rest is how much longer a job is expected to run. One that is past its estimate,
// over all its attempts, is expected to run as long again.
func (h *Allocation) rest(now time.Time) time.Duration {
	ran := h.lasted(now)
	rest := h.Run.Left(h.RanBefore+ran, 0).Mid
	if h.Limit > 0 {
		rest = min(rest, max(0, h.Limit-ran))
	}
	return rest
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
