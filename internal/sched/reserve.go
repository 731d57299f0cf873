package sched

import (
	"slices"
	"time"
)

// reservation is the machine as it is expected to be when a job can start that
// waits now, with that job on it. A job that would still run then has to fit on it
// too.
type reservation struct {
	held     *Held // the job on its cards
	at       time.Time
	usual    time.Duration // how long the job lasts from then on, usually; 0: not known
	machine  *machine
	strength strength
	claim    bool // jobs are preempted for it: it is among the decision's claims
}

// strength is which jobs a reservation keeps from starting before it.
type strength int

const (
	// soft keeps those that usually run for longer. Those without an estimate may
	// overtake: MaxBypass says for how long at most.
	soft strength = iota
	// lean keeps those without an estimate too.
	lean
	// firm keeps all but those whose estimate says that they are gone by then.
	firm
	// hard keeps all but those that their time limit ends before.
	hard
)

// binds reports whether a job that starts at a moment and lasts that long has to
// fit beside the one that cards are reserved for.
func (r *reservation) binds(from time.Time, l lasts) bool {
	switch {
	case r.strength == hard:
		return l.limit <= 0 || from.Add(l.limit).After(r.at)
	case l.expected <= 0:
		return r.strength != soft
	case r.strength == firm:
		return from.Add(l.expected).After(r.at)
	}
	return from.Add(l.usual).After(r.at)
}

// on reports whether the job is expected to be on its cards at a moment.
func (r *reservation) on(at time.Time) bool {
	return !r.at.After(at) && (r.usual <= 0 || r.at.Add(r.usual).After(at))
}

// reserved is what is reserved from a job that would start at a moment.
type reserved struct {
	list  []*reservation
	from  time.Time
	lasts lasts
}

var reservedNone reserved

// reservedFrom is for a job that would start now.
func (d *decision) reservedFrom(h *head, from time.Time) reserved {
	return reserved{d.reservations, from, h.lasts}
}

// reservedAt is for a job that would start at a moment, on a machine that has all
// jobs on it that have cards by then.
func (d *decision) reservedAt(h *head, at time.Time) reserved {
	there := func(r *reservation) bool { return r.claim || !r.at.After(at) && at.After(d.state.Now) }
	list := d.reservations
	if slices.ContainsFunc(list, there) {
		list = slices.DeleteFunc(slices.Clone(list), there)
	}
	return reserved{list, at, h.lasts}
}

// but leaves out what is reserved for the job itself.
func (k reserved) but(job string) reserved {
	own := func(r *reservation) bool { return r.held.Job == job }
	if slices.ContainsFunc(k.list, own) {
		k.list = slices.DeleteFunc(slices.Clone(k.list), own)
	}
	return k
}

// by is the reservation that keeps the card from the request, or nil. Cards that
// are not reserved are as free then as they are now.
func (k *reserved) by(c *slot, r *Request) *reservation {
	for _, kept := range k.list {
		if !slices.Contains(kept.held.Cards, c.Index) || !kept.binds(k.from, k.lasts) {
			continue
		}
		if _, obstacle := kept.machine.fit(kept.machine.slot(c.Index), r); obstacle != "" {
			return kept
		}
	}
	return nil
}

// host is the reservation that keeps cpus or memory of the host from the job, or
// nil.
func (k *reserved) host(a *amounts) *reservation {
	for _, kept := range k.list {
		if !kept.machine.hostFits(a) && kept.binds(k.from, k.lasts) {
			return kept
		}
	}
	return nil
}

// reservationDepth is for how many waiting jobs GPUs are reserved.
func (d *decision) reservationDepth() int {
	switch r := &d.state.Rules; {
	case d.parks() || r.Policy == Conservative:
		return reservationsMost
	case r.Policy == Backfill || r.Policy == "":
		return 1
	}
	return 0
}

// parks reports whether jobs take turns by being parked.
func (d *decision) parks() bool {
	if r := &d.state.Rules; !r.slices() && r.Policy != LAS {
		return false
	}
	return slices.ContainsFunc(d.running, func(h *Held) bool { return h.Aside.Mode == Park })
}

// reserve reserves the GPUs for a job that it will get first. It reports whether
// that can be done for more jobs.
func (d *decision) reserve(h *head, u urgency) bool {
	if d.reservedOverdue {
		u = ordinary // one at a time: the others are no worse off than before
	}
	strength, horizon := soft, time.Time{}
	switch {
	case u == overdue:
		strength = lean
	case u == longOverdue:
		strength = hard
	case d.reserved >= d.depth:
		return false
	case d.parks():
		strength, horizon = firm, d.state.Now.Add(reservationSoon)
	}
	if u == ordinary {
		d.reserved++
	}
	r := d.foresee(h, u, horizon)
	if r == nil {
		return false
	}
	r.strength = strength
	d.reservedOverdue = d.reservedOverdue || u != ordinary
	d.reservations = append(d.reservations, r)
	d.plan.Reservations = append(d.plan.Reservations, Reservation{Job: h.job, Cards: r.held.Cards, At: r.at, Hard: strength == hard})
	return u == ordinary && d.reserved < d.depth
}

// departure is when a job is expected to be off its cards.
type departure struct {
	held *Held // nil: a job that cards are reserved for
	at   time.Time
}

// foresee finds the first moment at which the job is expected to fit, and nil where
// there is none before the horizon: it lets one job after the other leave the
// machine, and those begin that have reservations.
func (d *decision) foresee(h *head, u urgency, horizon time.Time) *reservation {
	departures := d.departures(h, u, horizon)
	most := len(departures)
	if len(d.reservations) > 0 && u == ordinary {
		most = min(most, reservationMoments)
	}
	m, at, there := d.everybody(), d.state.Now, make([]bool, len(d.reservations))
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
				m.book(r.held)
				there[i] = true
			} else if !on && there[i] {
				m.release(r.held)
				there[i] = false
			}
		}
	}
}

// everybody is the machine now, with those on it too that others are preempted for.
func (d *decision) everybody() *machine {
	d.scratch.copyOf(d.now)
	for _, h := range d.claims {
		d.scratch.book(h)
	}
	return &d.scratch
}

// depart takes a job off a machine.
func (d *decision) depart(m *machine, h *Held) {
	switch {
	case h == nil:
	case slices.Contains(d.claims, h): // it is not on its cards yet
		m.release(h)
	default:
		m.leave(h)
	}
}

// foreseen is the reservation on a machine that has room for the job.
func (d *decision) foreseen(m *machine, h *head, reserved reserved) *reservation {
	grant, ok := m.grant(&d.outlook(h).candidates, &h.group.request, reserved)
	if !ok {
		panic("bug: job " + h.job + " fits and has no cards")
	}
	own := &machine{}
	own.copyOf(m)
	r := &reservation{held: d.granted(h, grant, reserved.from), at: reserved.from, usual: h.lasts.usual, machine: own}
	own.book(r.held)
	return r
}

// departures are the ends that are expected of what runs up to the horizon, if
// there is one, the first ones first.
func (d *decision) departures(h *head, u urgency, horizon time.Time) []departure {
	list := make([]departure, 0, len(d.running)+len(d.started)+len(d.claims)+len(d.reservations))
	for _, held := range d.running {
		list = append(list, departure{held, d.leaves(held, h, u)})
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
	return list
}

// leaves is when a running job is expected to be off its cards, seen by one that
// waits for them.
func (d *decision) leaves(held *Held, h *head, u urgency) time.Time {
	now := d.state.Now
	switch {
	case held.Leaving:
		return latest(now, held.LeavesBy)
	case d.leaving[held]:
		return now.Add(held.Aside.Out)
	case d.outranks(h, held, u):
		return latest(now, d.mayLeave(held, h)).Add(held.Aside.Out)
	case held.Started.IsZero():
		return now.Add(otherBerthsEstimate)
	}
	return now.Add(held.rest(now))
}

// rest is how much longer a run is expected to last. One that has had all that was
// expected, over all its runs, is expected to take as long again.
func (h *Held) rest(now time.Time) time.Duration {
	ran := h.lasted(now)
	rest := h.Run.Left(h.Served+ran, 0).Mid
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
