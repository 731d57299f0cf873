package sched

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// preempt takes GPUs from running jobs for a waiting one: all that it needs, or
// none. GPUs that are being vacated already are used first.
func (d *decision) preempt(h *head, a *account, u urgency) bool {
	o := d.outlook(h)
	if !d.running.preemptible || u == ordinary && o.noVictims.has(&h.amounts) {
		return false
	}
	var failed amounts
	if most := d.withoutPreemptible(); !d.fitsOn(most, h, reservedNone) {
		failed = most.tooMuch(h)
	} else if victims := d.victims(h, u); len(victims) == 0 && len(d.running.beingPreempted) == 0 {
		failed = amounts{gpus: h.gpus, share: h.share, term: anyTerm}
		if h.gpus == 0 {
			failed.cpus = h.cpus
		}
	} else {
		chosen, m, ok := d.enoughVictims(h, victims)
		switch {
		case ok && d.running.parkingFits(chosen...):
			d.claim(h, a, u, chosen, m)
			return true
		case ok:
			d.running.parkingFull = true
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
	if m.host.fits(&a) {
		a.cpus, a.memMiB = 0, 0
	}
	return a
}

// withoutPreemptible is the machine without any job that can be preempted: if a job
// does not fit there, no preemption helps it.
func (d *decision) withoutPreemptible() *machine {
	if d.lessPreemptible == nil {
		gone := make(map[*Allocation]bool, len(d.running.list))
		for _, held := range d.running.list {
			if d.running.beingPreempted[held] || held.Preempt.Mode != "" && !held.Other {
				gone[held] = true
			}
		}
		d.lessPreemptible = &machine{}
		d.lessPreemptible.copyOf(d.withClaims(), gone)
	}
	return d.lessPreemptible
}

// victims are the running jobs that can be preempted for the job now, the least loss
// first. For those that have to run on first, the decision is repeated later.
func (d *decision) victims(h *head, u urgency) (now []*Allocation) {
	for _, held := range d.running.leastLoss() {
		if !d.running.outranks(h, held, u) {
			continue
		}
		if from := d.running.preemptibleFrom(held, h); from.After(d.state.Now) {
			d.plan.wake(d.state.Now, from)
		} else {
			now = append(now, held)
		}
	}
	return now
}

// victim is a running job, and what its preemption costs.
type victim struct {
	*Allocation
	lost    time.Duration
	class   serviceClass
	weight  float64
	returns int64
}

// leastLoss is the running jobs sorted by what their preemption costs. The order is
// the same for every waiting job.
func (rs *runningJobs) leastLoss() []*Allocation {
	if rs.byLoss != nil {
		return rs.byLoss
	}
	list := make([]victim, len(rs.list))
	for i, held := range rs.list {
		list[i] = victim{Allocation: held, lost: held.lost(rs.state.Now), weight: held.weight(), returns: rs.returns(held)}
		list[i].class, _ = held.class(&rs.state.Rules, rs.state.Now)
	}
	slices.SortStableFunc(list, func(a, b victim) int {
		return cmp.Or(
			cmp.Compare(a.Priority, b.Priority),
			cmp.Compare(a.lost, b.lost),
			cmp.Compare(b.class, a.class),
			cmp.Compare(a.weight, b.weight), // the fewer GPUs, the less lies idle meanwhile
			cmp.Compare(a.returns, b.returns),
			cmp.Compare(b.Rank, a.Rank), cmp.Compare(b.Seq, a.Seq), cmp.Compare(a.Job, b.Job),
		)
	})
	rs.byLoss = make([]*Allocation, len(list))
	for i := range list {
		rs.byLoss[i] = list[i].Allocation
	}
	return rs.byLoss
}

// returns is how much is bound to come back to the cards of a job that would be
// parked too: they would have to wait for each other.
func (rs *runningJobs) returns(h *Allocation) (mib int64) {
	if !h.parks() {
		return 0
	}
	for _, index := range h.Cards {
		if c := rs.now.slot(index); c != nil {
			mib += c.ParkedMiB
		}
	}
	return mib
}

// lost is the work that a preemption destroys.
func (h *Allocation) lost(now time.Time) time.Duration {
	switch p := &h.Preempt; {
	case p.Mode != Requeue:
		return 0
	case !p.Saves:
		return h.lasted(now)
	case p.SavesEvery > 0:
		return h.lasted(now) % p.SavesEvery
	}
	return 0
}

// enoughVictims are the first victims without which the job fits, less those that
// turn out not to be needed, the greatest loss first. The machine is the one without
// them; if the job does not fit, without all victims.
func (d *decision) enoughVictims(h *head, victims []*Allocation) (chosen []*Allocation, m *machine, ok bool) {
	t, n := d.newTrial(h), 0
	for ; !t.fits(); n++ {
		if n == len(victims) {
			return nil, t.machine, false
		}
		t.leave(victims[n])
	}
	for i := n - 1; i >= 0; i-- {
		if t.comeBack(victims[i]); !t.fits() {
			t.leave(victims[i])
		}
	}
	for _, held := range victims[:n] {
		if t.gone[held] {
			chosen = append(chosen, held)
		}
	}
	return chosen, t.machine, true
}

// trial is a machine that running jobs leave and return to one by one, and the number
// of cards on which a waiting job fits there. Each move looks only at the job's cards.
type trial struct {
	*machine
	all       *machine             // with all jobs
	gone      map[*Allocation]bool // those that left
	job       *head
	reserved  reserved
	kept      keeps  // of reserved
	candidate []bool // by place: the job may have the card
	roomy     []bool // by place: a candidate with room
	cards     int    // how many of those
}

// newTrial begins without the jobs that are being preempted.
func (d *decision) newTrial(h *head) *trial {
	t := &trial{
		machine: &d.trial, all: d.withClaims(), gone: maps.Clone(d.running.beingPreempted), job: h, reserved: d.reservedAt(h, d.state.Now),
		candidate: make([]bool, len(d.now.slots)), roomy: make([]bool, len(d.now.slots)),
	}
	t.kept = t.reserved.keeps()
	t.copyOf(t.all, t.gone)
	for _, place := range d.outlook(h).candidates.places {
		t.candidate[place] = true
		t.look(place)
	}
	return t
}

// fits is decision.fitsOn for this machine.
func (t *trial) fits() bool {
	a := &t.job.amounts
	return t.host.fits(a) && t.reserved.host(a) == nil && (a.gpus == 0 || t.unreadable == "" && t.cards >= a.gpus)
}

// leave takes a running job off the machine.
func (t *trial) leave(held *Allocation) {
	t.gone[held] = true
	t.move(held, -1)
}

// comeBack undoes leave.
func (t *trial) comeBack(held *Allocation) {
	delete(t.gone, held)
	t.move(held, 1)
}

func (t *trial) move(held *Allocation, sign int) {
	t.host.add(held, sign)
	for _, index := range held.Cards {
		if place := t.place(index); place >= 0 {
			t.slots[place].copyOf(&t.all.slots[place], t.gone)
			t.look(place)
		}
	}
}

// look counts the card if the waiting job fits on it.
func (t *trial) look(place int) {
	if t.roomy[place] {
		t.cards--
	}
	_, fits := t.room(&t.slots[place], &t.job.class.request, t.kept)
	if t.roomy[place] = fits && t.candidate[place]; t.roomy[place] {
		t.cards++
	}
}

// claim preempts the victims and reserves their GPUs for the job, together with
// those that are being vacated already. The machine is the one without both.
func (d *decision) claim(h *head, a *account, u urgency, victims []*Allocation, m *machine) {
	r := d.foreseen(m, h, d.reservedAt(h, d.state.Now))
	r.strength, r.claim = byLongest, true
	for _, held := range victims {
		d.running.beingPreempted[held] = true
		if held.parks() {
			d.running.parkedMiB += held.Preempt.MemMiB
			d.running.parkedOfMiB[held.User] += held.Preempt.MemMiB
		}
		d.plan.Victims = append(d.plan.Victims, Victim{Job: held.Job, For: h.job, Mode: held.Preempt.Mode})
	}
	hostFits := d.now.host.fits(&h.amounts)
	for _, held := range d.running.list {
		if d.running.beingPreempted[held] && (!hostFits || overlaps(held.Cards, r.held.Cards)) {
			r.at = latest(r.at, d.running.freeAt(held, h, u))
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
	d.done(h)
	d.limits.charge(h, a)
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
func (rs *runningJobs) promised() (list []member) {
	for _, held := range rs.list {
		m, queued := rs.state.Queue.member(held.PreemptedFor)
		known := func(other member) bool { return other.entry.job == m.entry.job }
		if rs.beingPreempted[held] && queued && !slices.ContainsFunc(list, known) {
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
	if !d.now.possible(&d.outlook(&h).candidates, &h.amounts) || !a.allows(h.class, &h.amounts) || d.full() {
		return
	}
	if d.start(&h, a) {
		d.seen[h.job] = true
		return
	}
	if d.limits.hold(h.class, &h.amounts, a) {
		return
	}
	if _, m, ok := d.enoughVictims(&h, nil); ok {
		d.claim(&h, a, ordinary, nil, m)
		d.seen[h.job] = true
	}
}

func overlaps(a, b []int) bool {
	return slices.ContainsFunc(a, func(index int) bool { return slices.Contains(b, index) })
}
