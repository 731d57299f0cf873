package sched

import (
	"slices"
	"time"
)

// reservation is the machine as it is expected to be when a waiting job can start,
// with that job on it. Any other job that would still run then has to fit on it
// too.
type reservation struct {
	held     *Allocation // the job on its cards
	at       time.Time
	usual    time.Duration // how long the job usually lasts from then on; 0: not known
	margin   int64         // in MiB; has to stay free on its cards until then
	machine  *machine
	strength strength
	claim    bool // jobs are preempted for it: it is one of the decision's claims
}

// strength says which jobs a reservation keeps from overtaking, by the bound on
// their run time that it trusts.
type strength int

const (
	// byUsual stops jobs that would usually still run by then. Jobs without an
	// estimate may overtake: MaxBypass bounds that.
	byUsual strength = iota
	// byUsualKnown stops those without an estimate too.
	byUsualKnown
	// byLongest stops all but those that are expected to have ended by then even if they
	// run long.
	byLongest
	// byLimit stops all but those whose time limit ends before.
	byLimit
)

// binds reports whether a job that starts then and lasts that long has to fit
// beside the reserved one.
func (r *reservation) binds(from time.Time, l term) bool {
	switch {
	case r.strength == byLimit:
		return l.limit <= 0 || from.Add(l.limit).After(r.at)
	case l.atMost <= 0:
		return r.strength != byUsual
	case r.strength == byLongest:
		return from.Add(l.atMost).After(r.at)
	}
	return from.Add(l.usual).After(r.at)
}

// on reports whether the job is expected to be on its cards at a time.
func (r *reservation) on(at time.Time) bool {
	return !r.at.After(at) && (r.usual <= 0 || r.at.Add(r.usual).After(at))
}

// reserved is the reservations that a job starting at a time has to respect.
type reserved struct {
	list []*reservation
	from time.Time
	term term
}

var reservedNone reserved

// but omits the job's own reservation.
func (k reserved) but(job string) reserved {
	own := func(r *reservation) bool { return r.held.Job == job }
	if slices.ContainsFunc(k.list, own) {
		k.list = slices.DeleteFunc(slices.Clone(k.list), own)
	}
	return k
}

// by is the reservation that keeps the request off the card, or nil. Cards without
// a reservation are as free then as now.
func (k *reserved) by(c *slot, r *Request) *reservation {
	for _, kept := range k.list {
		if !slices.Contains(kept.held.Cards, c.Index) || !kept.binds(k.from, k.term) {
			continue
		}
		if _, obstacle := kept.machine.fit(kept.machine.slot(c.Index), r); obstacle != "" {
			return kept
		}
	}
	return nil
}

// keeps is by in the form that a machine needs.
func (k *reserved) keeps() keeps {
	if len(k.list) == 0 {
		return nil
	}
	return func(c *slot, r *Request) bool { return k.by(c, r) != nil }
}

// host is the reservation that keeps CPUs or memory of the host from the job, or
// nil.
func (k *reserved) host(a *amounts) *reservation {
	for _, kept := range k.list {
		if !kept.machine.host.fits(a) && kept.binds(k.from, k.term) {
			return kept
		}
	}
	return nil
}
