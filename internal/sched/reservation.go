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

// strength is which jobs a reservation keeps from starting before it. Soft and
// strict go by how long a job usually runs, firm by the longest that is expected.
type strength int

const (
	// soft keeps those that would usually still run then. Those without an estimate
	// may overtake: MaxBypass says for how long at most.
	soft strength = iota
	// strict keeps those without an estimate too.
	strict
	// firm keeps all but those that are expected to be gone by then at the latest.
	firm
	// hard keeps all but those that their time limit ends before.
	hard
)

// binds reports whether a job that starts at a moment and lasts that long has to
// fit beside the one that cards are reserved for.
func (r *reservation) binds(from time.Time, l term) bool {
	switch {
	case r.strength == hard:
		return l.limit <= 0 || from.Add(l.limit).After(r.at)
	case l.atMost <= 0:
		return r.strength != soft
	case r.strength == firm:
		return from.Add(l.atMost).After(r.at)
	}
	return from.Add(l.usual).After(r.at)
}

// on reports whether the job is expected to be on its cards at a moment.
func (r *reservation) on(at time.Time) bool {
	return !r.at.After(at) && (r.usual <= 0 || r.at.Add(r.usual).After(at))
}

// reserved is what is reserved from a job that would start at a moment.
type reserved struct {
	list []*reservation
	from time.Time
	term term
}

var reservedNone reserved

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
		if !slices.Contains(kept.held.Cards, c.Index) || !kept.binds(k.from, k.term) {
			continue
		}
		if _, obstacle := kept.machine.fit(kept.machine.slot(c.Index), r); obstacle != "" {
			return kept
		}
	}
	return nil
}

// keeps is by, as a machine asks it.
func (k *reserved) keeps() keeps {
	if len(k.list) == 0 {
		return nil
	}
	return func(c *slot, r *Request) bool { return k.by(c, r) != nil }
}

// host is the reservation that keeps cpus or memory of the host from the job, or
// nil.
func (k *reserved) host(a *amounts) *reservation {
	for _, kept := range k.list {
		if !kept.machine.hostFits(a) && kept.binds(k.from, k.term) {
			return kept
		}
	}
	return nil
}
