package sched

import (
	"slices"
	"time"

	"berth/internal/job"
	"berth/internal/reason"
)

// Decide says which jobs start now, on which cards, and which never can; for
// which cards are reserved, and which running jobs are preempted.
//
// The rule: overdue jobs come first, then priority, then the service class where
// jobs can be parked, then the user with the least usage, then the policy. Each
// job in turn starts if it fits; else running jobs that it outranks are preempted
// for it; else GPUs are reserved for it, if it is one of the first that wait.
// What starts must not delay those for whom GPUs are reserved.
func Decide(s State) Plan {
	d := newDecision(&s)
	d.run(nil)
	d.assertSound()
	return d.plan
}

// run goes through the queue in order, up to but without the job `until`, or
// until nothing can be done for any job behind.
func (d *decision) run(until *member) {
	// 1. Cards that are being vacated go to the jobs that they are vacated for.
	for _, m := range d.promised() {
		if until != nil && until.entry.job == m.entry.job {
			return
		}
		d.redeem(&m)
	}
	// 2. Overdue jobs come before all others.
	for _, late := range d.state.Queue.overdue(d.state) {
		if until != nil && until.entry.job == late.entry.job {
			return
		}
		d.considerOverdue(&late)
	}
	// 3. Everybody else, one job of each group at a time.
	if !limitsGPUs(d.state) {
		d.walk.passes = d.closed.has
	}
	for next := d.walk.next(); next != nil; next = d.walk.next() {
		if until != nil && d.walk.reached(d.spot(until)) {
			return
		}
		if d.seen[next.job] || d.consider(next, d.walk.account(), ordinary) {
			d.walk.again()
		}
		if d.over() {
			break
		}
	}
	d.plan.Again = d.again()
}

// urgency is how a job comes to be looked at.
type urgency int

const (
	ordinary    urgency = iota // in its turn
	overdue                    // it was overtaken for as long as a job may be
	longOverdue                // for twice as long
)

// consider does what can be done for a job, and reports whether the next of its
// group is to be looked at too.
func (d *decision) consider(h *head, a *account, u urgency) bool {
	k := &d.outlook(h).candidates
	switch {
	case !d.now.possible(k, &h.amounts):
		d.refuse(func() reason.Reason { return d.now.impossible(k, &h.group.request) })
	case !a.allows(&h.amounts):
		d.refuse(func() reason.Reason { return a.overLimit(&h.amounts) })
	case d.blocker != nil || d.full():
	case u == ordinary && d.closed.has(h):
	case u == ordinary && d.helpless(h):
		d.close(h)
	case d.start(h, a):
		return true
	case d.limited(h.group, &h.amounts, a): // in nobody's way, and nothing is reserved for it
	case d.preempt(h, a, u):
		return true
	default:
		return d.wait(h, u)
	}
	return false
}

// decision is a plan in the making.
type decision struct {
	state *State
	plan  Plan
	quiet bool // refusals are not wanted

	walk    *walker
	pooled  map[string]int  // starts of this plan, by limited pool
	seen    map[string]bool // jobs that were looked at out of order
	blocker *Pending        // under FIFO, the job that no other may overtake

	now     *machine       // with what this plan starts
	running []*Held        // in order
	started []*Held        // by this plan
	claims  []*Held        // jobs that others are preempted for, on the cards they will have
	leaving map[*Held]bool // running jobs that are being preempted, by this plan or an earlier one

	reservations    []*reservation
	depth           int  // for how many jobs in their ordinary turn GPUs are reserved
	reserved        int  // for how many that was tried
	reservedOverdue bool // GPUs are reserved for an overdue job

	// What is known not to work.
	closed      closed
	outlooks    []*outlook // by number of the family
	preemptible bool       // a running job can be preempted, or is being
	emptied     *machine   // without the jobs that can be preempted; nil until it is asked for
	parkingFull bool       // a preemption failed for want of host memory
	scratch     machine    // reused
}

func newDecision(s *State) *decision {
	if s.Queue == nil {
		bare := *s
		bare.Queue = NewQueue()
		s = &bare
	}
	d := &decision{
		state: s, walk: s.Queue.walk(s), now: newMachine(s), running: inOrder(s.Held), leaving: map[*Held]bool{},
		seen: map[string]bool{}, closed: newClosed(s.Queue), outlooks: make([]*outlook, len(s.Queue.families.list)),
	}
	for _, h := range d.running {
		if h.Leaving && !h.Other {
			d.leaving[h] = true
		}
		d.preemptible = d.preemptible || !h.Other && (h.Leaving || h.Aside.Mode != "")
	}
	d.depth = d.reservationDepth()
	return d
}

// outlook is what a decision knows of a family of requests.
type outlook struct {
	candidates candidates
	noRoom     frontier // cannot start
	noVictims  unmoved  // nobody can be preempted for these either
}

func (d *decision) outlook(h *head) *outlook { return d.outlookOf(h.family) }

func (d *decision) outlookOf(family *counted[family]) *outlook {
	o := d.outlooks[family.number]
	if o == nil {
		o = &outlook{candidates: newCandidates(d.now, &family.value.request)}
		d.outlooks[family.number] = o
	}
	return o
}

// over reports that nothing can be done for any job behind.
func (d *decision) over() bool {
	if d.blocker != nil || d.full() {
		return !d.mayRefuse()
	}
	return d.closed.open == 0 && d.walk.passes != nil
}

// mayRefuse reports that a job somewhere in the queue may have to be refused.
func (d *decision) mayRefuse() bool {
	return limitsGPUs(d.state) || slices.ContainsFunc(d.state.Queue.sizes.list, func(size *counted[requestClass]) bool {
		return size != nil && !d.now.possible(&d.outlookOf(size.value.family).candidates, &size.value.amounts)
	})
}

// limitsGPUs reports that a user's limit may refuse a job of any class: then the
// walk passes over none.
func limitsGPUs(s *State) bool {
	limited := s.DefaultLimit.GPUs > 0
	for _, limit := range s.Limits {
		limited = limited || limit.GPUs > 0
	}
	return limited
}

// full reports that the plan has all the starts it may have.
func (d *decision) full() bool {
	return d.state.MaxStarts > 0 && len(d.plan.Starts) >= d.state.MaxStarts
}

// account is that of a queued job's user.
func (d *decision) account(m *member) *account { return d.walk.accountOf(m.group.line) }

// spot is where a queued job is in the order as the decision stands.
func (d *decision) spot(m *member) spot { return spot{d.account(m), &m.entry} }

// refuse turns down the job that came up last, and with it its whole group.
func (d *decision) refuse(why func() reason.Reason) {
	if d.quiet {
		return
	}
	jobs, reason := d.walk.rest(), why()
	d.plan.Infeasible = slices.Grow(d.plan.Infeasible, len(jobs))
	for _, id := range jobs {
		d.plan.Infeasible = append(d.plan.Infeasible, Refusal{Job: id, Reason: reason})
	}
}

// start gives the job its cards if it fits and no limit bars it. The limits come
// second: to look at them costs more.
func (d *decision) start(h *head, a *account) bool {
	r, o, reserved := &h.group.request, d.outlook(h), d.reservedFrom(h, d.state.Now)
	if d.lacksRoom(h) || reserved.host(&h.amounts) != nil || d.limited(h.group, &h.amounts, a) {
		return false
	}
	grant, ok := d.now.grant(&o.candidates, r, reserved)
	if !ok {
		failed := h.amounts
		if len(reserved.list) == 0 || !d.now.enough(&o.candidates, r, reservedNone) {
			failed.lasts = anyLength // mostly there are too few cards, reserved or not
		}
		o.noRoom.put(failed)
		return false
	}
	held := d.granted(h, grant, d.state.Now)
	d.plan.Starts = append(d.plan.Starts, Start{Job: h.job, Grant: grant})
	d.started = append(d.started, held)
	d.now.book(held)
	if d.emptied != nil {
		d.emptied.book(held)
	}
	for _, r := range d.reservations {
		if r.binds(d.state.Now, h.lasts) {
			r.machine.book(held)
		}
	}
	d.charge(h.group, &h.amounts, a)
	return true
}

// lacksRoom reports that it is known that the job does not fit.
func (d *decision) lacksRoom(h *head) bool {
	return !d.now.hostFits(&h.amounts) || h.gpus > 0 && (d.now.unreadable != "" || d.outlook(h).noRoom.has(&h.amounts))
}

// helpless reports that nothing can be done for a job that is known not to fit. It
// saves a look at the limits of each of a hundred thousand.
func (d *decision) helpless(h *head) bool {
	return !d.preemptible && d.reserved >= d.depth && d.state.Rules.Policy != FIFO && d.lacksRoom(h)
}

// granted is what a job holds that is granted so much from a moment on.
func (d *decision) granted(h *head, grant job.Grant, from time.Time) *Held {
	r, m := &h.group.request, d.state.Queue.jobs[h.job]
	return &Held{
		Job: h.job, Cards: grant.GPUs, BudgetMiB: CardBudgets(grant, r.VRAMMiB, d.state.Cards),
		Share: grant.Share, Alone: grant.Alone, Exclusive: grant.Exclusive,
		CPUs: r.CPUs, MemMiB: r.MemMiB,
		Started: from, Served: m.served, Run: m.run, Limit: h.lasts.limit,
	}
}

// fitsOn reports whether the job has room on a machine beside what is reserved.
func (d *decision) fitsOn(m *machine, h *head, reserved reserved) bool {
	switch {
	case !m.hostFits(&h.amounts) || reserved.host(&h.amounts) != nil:
		return false
	case h.gpus == 0:
		return true
	}
	return m.unreadable == "" && m.enough(&d.outlook(h).candidates, &h.group.request, reserved)
}

// wait is what remains for a job that cannot have its cards now: under FIFO no
// other overtakes it, and GPUs may be reserved for it. It reports whether they may
// be for the next of its group too.
func (d *decision) wait(h *head, u urgency) bool {
	if d.state.Rules.Policy == FIFO {
		p := h.group.pending(h.entry)
		d.blocker = &p
	}
	next := d.reserve(h, u)
	if u == ordinary && d.reserved >= d.depth && !d.parkingFull {
		d.close(h)
	}
	return next
}

// close notes that nothing can be done for jobs of the class; where cards are too
// few in any case, not for shorter ones either.
func (d *decision) close(h *head) {
	whatever := *h
	whatever.lasts = anyLength
	if d.lacksRoom(&whatever) && (!d.preemptible || d.outlook(h).noVictims.has(&whatever.amounts)) {
		d.closed.closeSize(h)
	} else {
		d.closed.closeClass(h)
	}
}
