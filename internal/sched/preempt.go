package sched

import (
	"cmp"
	"slices"
	"time"
)

// preempt takes GPUs from running jobs for a waiting one: all that it needs, or
// none. GPUs that are being vacated already are used first.
func (d *decision) preempt(h *head, a *account, u urgency) bool {
	o := d.outlook(h)
	if !d.preemptible || u == ordinary && o.noVictims.has(&h.amounts) {
		return false
	}
	var failed amounts
	if most := d.withoutPreemptible(); !d.fitsOn(most, h, reservedNone) {
		failed = most.tooMuch(h)
	} else if victims := d.victims(h, u); len(victims) == 0 && len(d.beingPreempted) == 0 {
		failed = amounts{gpus: h.gpus, share: h.share, term: anyTerm}
		if h.gpus == 0 {
			failed.cpus = h.cpus
		}
	} else {
		chosen, m, ok := d.enoughVictims(h, d.leastLoss(victims))
		switch {
		case ok && d.parkingFits(chosen...):
			d.claim(h, a, u, chosen)
			return true
		case ok:
			d.parkingFull = true
			return false
		case d.fitsOn(m, h, reservedNone):
			failed = h.amounts // a shorter job may fit beside the reservations
		default:
			failed = m.tooMuch(h)
		}
	}
	if u == ordinary {
		o.noVictims.put(failed)
	}
	return false
}

// tooMuch is the least of what the job asks for that the machine has no room for,
// however long it lasts. Usually that is the GPUs, whatever it needs of the host.
func (m *machine) tooMuch(h *head) amounts {
	a := h.amounts
	a.term = anyTerm
	if m.hostFits(&a) {
		a.cpus, a.memMiB = 0, 0
	}
	return a
}

// withoutPreemptible is the machine without any job that can be preempted: if a job
// does not fit there, no preemption helps it.
func (d *decision) withoutPreemptible() *machine {
	if d.lessPreemptible == nil {
		d.lessPreemptible = &machine{}
		d.lessPreemptible.copyOf(d.withClaims())
		for _, held := range d.running {
			if d.beingPreempted[held] || held.Preempt.Mode != "" && !held.Other {
				d.lessPreemptible.vacate(held)
			}
		}
	}
	return d.lessPreemptible
}

// victims are the running jobs that can be preempted for the job now. For those
// that have to run on first, the decision is repeated later.
func (d *decision) victims(h *head, u urgency) (now []*Allocation) {
	for _, held := range d.running {
		if !d.outranks(h, held, u) {
			continue
		}
		if from := d.preemptibleFrom(held, h); from.After(d.state.Now) {
			d.wake(from)
		} else {
			now = append(now, held)
		}
	}
	return now
}

// leastLoss sorts victims by what their preemption costs.
func (d *decision) leastLoss(victims []*Allocation) []*Allocation {
	rules, now := &d.state.Rules, d.state.Now
	slices.SortStableFunc(victims, func(a, b *Allocation) int {
		classA, _ := a.class(rules, now)
		classB, _ := b.class(rules, now)
		return cmp.Or(
			cmp.Compare(a.Priority, b.Priority),
			cmp.Compare(a.lost(now), b.lost(now)),
			cmp.Compare(classB, classA),
			cmp.Compare(a.weight(), b.weight()), // the fewer GPUs, the less lies idle meanwhile
			cmp.Compare(d.returns(a), d.returns(b)),
			cmp.Compare(b.Rank, a.Rank), cmp.Compare(b.Seq, a.Seq), cmp.Compare(a.Job, b.Job),
		)
	})
	return victims
}

// returns is how much is bound to come back to the cards of a job that would be
// parked too: they would have to wait for each other.
func (d *decision) returns(h *Allocation) (mib int64) {
	if !h.parks() {
		return 0
	}
	for _, index := range h.Cards {
		if c := d.now.slot(index); c != nil {
			mib += c.ParkedMiB
		}
	}
	return mib
}

// lost is the work that a preemption destroys.
func (h *Allocation) lost(now time.Time) time.Duration {
	if h.Preempt.Mode == Requeue {
		return h.lasted(now)
	}
	return 0
}

// enoughVictims are the first victims without which the job fits, less those that
// turn out not to be needed, the greatest loss first. If the job does not fit, the
// machine is the one without all of them.
func (d *decision) enoughVictims(h *head, victims []*Allocation) (chosen []*Allocation, m *machine, ok bool) {
	reserved := d.reservedAt(h, d.state.Now)
	m = d.without(nil)
	for ; !d.fitsOn(m, h, reserved); m.vacate(chosen[len(chosen)-1]) {
		if len(chosen) == len(victims) {
			return nil, m, false
		}
		chosen = victims[:len(chosen)+1]
	}
	chosen = slices.Clone(chosen)
	for i := len(chosen) - 1; i >= 0; i-- {
		if fewer := slices.Delete(slices.Clone(chosen), i, i+1); d.fitsOn(d.without(fewer), h, reserved) {
			chosen = fewer
		}
	}
	return chosen, m, true
}

// without is the machine without the jobs that are being preempted, and without
// these.
func (d *decision) without(victims []*Allocation) *machine {
	m := d.withClaims()
	for _, held := range d.running {
		if d.beingPreempted[held] || slices.Contains(victims, held) {
			m.vacate(held)
		}
	}
	return m
}

// claim preempts the victims and reserves their GPUs for the job, together with
// those that are being vacated already.
func (d *decision) claim(h *head, a *account, u urgency, victims []*Allocation) {
	r := d.foreseen(d.without(victims), h, d.reservedAt(h, d.state.Now))
	r.strength, r.claim = byLongest, true
	for _, held := range victims {
		d.beingPreempted[held] = true
		d.plan.Victims = append(d.plan.Victims, Victim{Job: held.Job, For: h.job, Mode: held.Preempt.Mode})
	}
	hostFits := d.now.hostFits(&h.amounts)
	for _, held := range d.running {
		if d.beingPreempted[held] && (!hostFits || overlaps(held.Cards, r.held.Cards)) {
			r.at = latest(r.at, d.freeAt(held, h, u))
		}
	}
	r.held.Started = r.at
	d.claims = append(d.claims, r.held)
	if d.lessPreemptible != nil {
		d.lessPreemptible.bookLater(r.held, r.margin)
	}
	for _, other := range d.reservations {
		other.machine.bookLater(r.held, r.margin)
	}
	d.reservations = append(d.reservations, r)
	d.plan.Reservations = append(d.plan.Reservations, Reservation{Job: h.job, Cards: r.held.Cards, At: r.at})
	d.reopen()
	d.charge(h, a)
}

// reopen discards what is known not to work: other jobs may use the new room too.
func (d *decision) reopen() {
	d.closed.reopen(d.state.Queue)
	d.walk.reopen()
	for _, o := range d.outlooks {
		if o != nil {
			o.noVictims = nil
		}
	}
}

// promised are the waiting jobs that others are being preempted for, in order.
func (d *decision) promised() (list []member) {
	for _, held := range d.running {
		m, queued := d.state.Queue.member(held.PreemptedFor)
		known := func(other member) bool { return other.entry.job == m.entry.job }
		if d.beingPreempted[held] && queued && !slices.ContainsFunc(list, known) {
			list = append(list, m)
		}
	}
	slices.SortFunc(list, func(a, b member) int { return compareEntries(a.entry, b.entry) })
	return list
}

// grantPromised gives the vacated GPUs to the job they are vacated for, before any other
// job is considered: a job in front of it may not have been entitled to them.
func (d *decision) grantPromised(m *member) {
	h, a := m.class.head(m.entry), d.account(m)
	if !d.now.possible(&d.outlook(&h).candidates, &h.amounts) || !a.allows(&h.amounts) || d.full() {
		return
	}
	if d.start(&h, a) {
		d.seen[h.job] = true
		return
	}
	if d.limited(h.class, &h.amounts, a) {
		return
	}
	if _, _, ok := d.enoughVictims(&h, nil); ok {
		d.claim(&h, a, ordinary, nil)
		d.seen[h.job] = true
	}
}

func overlaps(a, b []int) bool {
	return slices.ContainsFunc(a, func(index int) bool { return slices.Contains(b, index) })
}
