package sched

import (
	"slices"
	"time"
)

// reservedNow is what is reserved from a job that would start now.
func (d *decision) reservedNow(h *head) reserved {
	return reserved{d.reservations, d.state.Now, h.term}
}

// reservedAt is the same for a start at a later time, on a machine that already has
// all jobs on it that start by then.
func (d *decision) reservedAt(h *head, at time.Time) reserved {
	there := func(r *reservation) bool { return r.claim || !r.at.After(at) && at.After(d.state.Now) }
	list := d.reservations
	if slices.ContainsFunc(list, there) {
		list = slices.DeleteFunc(slices.Clone(list), there)
	}
	return reserved{list, at, h.term}
}

// fitsOn reports whether the job has room on a machine beside the reservations.
func (d *decision) fitsOn(m *machine, h *head, reserved reserved) bool {
	switch {
	case !m.host.fits(&h.amounts) || reserved.host(&h.amounts) != nil:
		return false
	case h.gpus == 0:
		return true
	}
	return m.unreadable == "" && m.enough(&d.outlook(h).candidates, &h.class.request, reserved.keeps())
}

// reserve reserves the GPUs that the job can get first. It reports whether the next
// of its class may have a reservation too.
func (d *decision) reserve(h *head, u urgency) bool {
	if d.reservedOverdue {
		u = ordinary // one at a time
	}
	strength, horizon := byUsual, time.Time{}
	switch {
	case u == overdue:
		strength = byUsualKnown
	case u == longOverdue:
		strength = byLimit
	case d.reservationsTried >= d.reservationsMax:
		return false
	case d.running.parks():
		strength, horizon = byLongest, d.state.Now.Add(reservationSoon)
	}
	if !d.fitsOn(d.withoutJobs(), h, reservedNone) {
		return false // it waits for something other than jobs: a paused GPU, an external process
	}
	if u == ordinary {
		d.reservationsTried++
	}
	r := d.foresee(h, u, horizon)
	if r == nil {
		return false
	}
	r.strength = strength
	d.reservedOverdue = d.reservedOverdue || u != ordinary
	d.reservations = append(d.reservations, r)
	d.plan.Reservations = append(d.plan.Reservations, Reservation{Job: h.job, Cards: r.held.Cards, At: r.at, ByLimit: strength == byLimit})
	return u == ordinary && d.reservationsTried < d.reservationsMax
}

// foresee finds the first time at which the job is expected to fit, or nil if that
// is beyond the horizon: it lets one job after the other leave the machine, and
// lets reserved jobs start.
func (d *decision) foresee(h *head, u urgency, horizon time.Time) *reservation {
	departures := d.departures(h, u, horizon)
	most := len(departures)
	if len(d.reservations) > 0 && u == ordinary {
		most = min(most, reservationMoments)
	}
	m, at, there := d.withClaims(), d.state.Now, make([]bool, len(d.reservations))
	for n := 0; ; {
		if reserved := d.reservedAt(h, at); d.fitsOn(m, h, reserved) {
			return d.foreseen(m, h, reserved)
		}
		if n >= most {
			return nil
		}
		for at = departures[n].at; n < len(departures) && departures[n].at.Equal(at); n++ {
			d.depart(m, departures[n].held)
		}
		for i, r := range d.reservations {
			if on := !r.claim && at.After(d.state.Now) && r.on(at); on && !there[i] {
				m.bookLater(r.held, r.margin)
				there[i] = true
			} else if !on && there[i] {
				m.unbook(r.held)
				there[i] = false
			}
		}
	}
}

// withClaims is the machine now, plus the jobs that others are preempted for.
func (d *decision) withClaims() *machine {
	d.scratch.copyOf(d.now, nil)
	for _, r := range d.reservations {
		if r.claim {
			d.scratch.bookLater(r.held, r.margin)
		}
	}
	return &d.scratch
}

// withoutJobs is the machine without any berth job.
func (d *decision) withoutJobs() *machine {
	if d.empty == nil {
		gone := make(map[*Allocation]bool, len(d.running.list)+len(d.started))
		for _, held := range slices.Concat(d.running.list, d.started) {
			gone[held] = true
		}
		d.empty = &machine{}
		d.empty.copyOf(d.now, gone)
	}
	return d.empty
}

// depart takes a job off a machine.
func (d *decision) depart(m *machine, h *Allocation) {
	switch {
	case h == nil:
	case slices.Contains(d.claims, h): // it is not on its cards yet
		m.unbook(h)
	default:
		m.vacate(h)
	}
}

// foreseen is the reservation on a machine that has room for the job.
func (d *decision) foreseen(m *machine, h *head, reserved reserved) *reservation {
	grant, ok := m.grant(&d.outlook(h).candidates, &h.class.request, reserved.keeps())
	if !ok {
		panic("bug: job " + h.job + " fits and has no cards")
	}
	own := &machine{}
	own.copyOf(m, nil)
	r := &reservation{held: h.granted(d.state, grant, reserved.from), at: reserved.from, usual: h.term.usual, machine: own}
	r.margin = m.marginFor(&h.class.request)
	own.bookLater(r.held, r.margin)
	return r
}
