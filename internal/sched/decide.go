package sched

import (
	"slices"

	"berth/internal/job/reason"
)

// Decide says which jobs start now, on which cards, and which never can; which
// waiting jobs have GPUs reserved, and which running jobs are preempted.
//
// The rule: overdue jobs come first, then priority, then the service class where
// jobs can be parked, then the user with the least usage, then the policy. Each
// job in turn starts if it fits; else running jobs that it outranks are preempted
// for it; else GPUs are reserved for it, if it is one of the first that wait.
// What starts must not delay those for whom GPUs are reserved. Jobs beyond their
// user's share come after all others, and give way to them.
func Decide(s State) Plan {
	d := newDecision(&s)
	d.run(nil)
	d.audit().assertSound()
	return d.plan
}

// run goes through the queue in order, up to but excluding the job `until`, or
// until nothing can be done for any job behind.
func (d *decision) run(until *member) {
	// 1. GPUs of jobs that are being preempted go to the jobs they are preempted for.
	for _, m := range d.running.promised() {
		if until != nil && until.entry.job == m.entry.job {
			return
		}
		d.grantPromised(&m)
	}
	// 2. Overdue jobs go before all others.
	for _, late := range d.state.Queue.overdue(d.state) {
		if !d.goesBefore(&late) {
			continue
		}
		if until != nil && until.entry.job == late.entry.job {
			return
		}
		h := late.class.head(late.entry)
		d.seen[h.job] = true
		d.consider(&h, d.account(&late.member), late.urgency(d.state))
	}
	// 3. All other jobs, one of each class at a time.
	if !limitsAmounts(d.state) {
		d.walk.passes = d.closed.has
	}
	if d.considerAll(until) {
		return
	}
	// 4. Those who would be borrowed.
	if d.mayLend(until) && d.considerAll(until) {
		return
	}
	d.plan.Again = d.again()
}

// considerAll considers one job of each class at a time, and reports whether it came to
// the job `until`.
func (d *decision) considerAll(until *member) bool {
	for next := d.walk.next(); next != nil; next = d.walk.next() {
		if until != nil && d.walk.reached(orderKey{d.account(until), &until.entry}) && (d.running.lending || !d.borrows(until)) {
			return true
		}
		if d.seen[next.job] || d.consider(next, d.walk.account(), ordinary) {
			d.walk.again()
		}
		if d.over() {
			break
		}
	}
	return false
}

// consider does what can be done for a job, and reports whether to look at the next
// of its class too.
func (d *decision) consider(h *head, a *account, u urgency) bool {
	k := &d.outlook(h).candidates
	switch {
	case !d.now.possible(k, &h.amounts):
		d.refuse(func() reason.Reason { return d.now.impossible(k, &h.class.request) })
	case !a.allows(h.class, &h.amounts):
		d.refuse(func() reason.Reason { return a.overLimit(h.class, &h.amounts) })
	case d.blocker != nil || d.full():
	case d.notYet(h, a, u):
	case u == ordinary && d.closed.has(h):
	case u == ordinary && d.knownNotToFit(h):
		d.close(h)
	case d.start(h, a):
		return true
	case d.limits.hold(h.class, &h.amounts, a): // it holds up no job, and nothing is reserved for it
	case d.preempt(h, a, u):
		return true
	default:
		d.want(h, a)
		return d.wait(h, u)
	}
	return false
}

// goesBefore reports whether an overdue job is considered before all others: unless it
// has its cards already, or is refused or borrowed when its turn comes.
func (d *decision) goesBefore(l *lateJob) bool {
	h, a := l.class.head(l.entry), d.account(&l.member)
	return !d.seen[h.job] && d.now.possible(&d.outlook(&h).candidates, &h.amounts) && a.allows(h.class, &h.amounts) && !d.notYet(&h, a, l.urgency(d.state))
}

// start starts the job if it fits and no limit holds it back. Limits come second
// because they cost more to check.
func (d *decision) start(h *head, a *account) bool {
	r, o, reserved := &h.class.request, d.outlook(h), d.reservedNow(h)
	if d.lacksRoom(h) || reserved.host(&h.amounts) != nil || d.limits.hold(h.class, &h.amounts, a) {
		return false
	}
	grant, ok := d.now.grant(&o.candidates, r, reserved.keeps())
	if !ok {
		failed := h.amounts
		if len(reserved.list) == 0 || !d.now.enough(&o.candidates, r, nil) {
			failed.term = anyTerm // there are too few cards even without the reservations
		}
		o.noRoom.put(failed)
		return false
	}
	held := h.granted(d.state, grant, d.state.Now)
	d.plan.Starts = append(d.plan.Starts, Start{Job: h.job, Grant: grant})
	d.started = append(d.started, held)
	d.now.book(held)
	if d.lessPreemptible != nil {
		d.lessPreemptible.book(held)
	}
	for _, r := range d.reservations {
		if r.binds(d.state.Now, h.term) {
			r.machine.book(held)
		}
	}
	d.done(h)
	d.limits.charge(h, a)
	return true
}

// wait is what remains for a job that cannot start now: under FIFO no job overtakes
// it, and GPUs may be reserved for it. It reports whether to consider the next of
// its class too.
func (d *decision) wait(h *head, u urgency) bool {
	if d.state.Rules.Policy == FIFO {
		p := h.class.pending(h.entry)
		d.blocker = &p
	}
	next := d.reserve(h, u)
	if u == ordinary && !d.running.parkingFull && (d.reservationsTried >= d.reservationsMax || !d.fitsOn(d.withoutJobs(), h, reservedNone)) {
		d.close(h)
	}
	return next
}

// close notes that nothing can be done for jobs of the class; where there are too
// few cards in any case, not for shorter ones either.
func (d *decision) close(h *head) {
	whatever := *h
	whatever.term = anyTerm
	if d.lacksRoom(&whatever) && (!d.running.preemptible || d.outlook(h).noVictims.has(&whatever.amounts)) {
		d.closed.close(h.sizeNumber)
		d.closeLarger(h)
	} else {
		d.closed.closeShape(h)
	}
}

// Bounds of closeLarger: how often, and with how many sizes.
const (
	maxCloseLarger = 16
	maxSizes       = 1024
)

// closeLarger closes the larger sizes too, once the order of the remaining jobs no
// longer matters. Going through all sizes is cheaper than going through all classes
// in order.
func (d *decision) closeLarger(h *head) {
	if d.closings >= maxCloseLarger || len(d.state.Queue.sizes.list) > maxSizes || h.gpus == 0 ||
		d.reservationsTried < d.reservationsMax || d.running.parkingFull || d.state.Rules.Policy == FIFO {
		return
	}
	d.closings++
	o := d.outlook(h)
	for _, size := range d.state.Queue.sizes.list {
		if size == nil || d.closed.sizes[size.number] || size.value.family != h.family {
			continue
		}
		a := size.value.amounts
		a.term = anyTerm
		if o.noRoom.has(&a) && (!d.running.preemptible || o.noVictims.has(&a)) && d.now.possible(&o.candidates, &a) {
			d.closed.close(size.number)
		}
	}
}

// knownNotToFit reports that nothing can be done for a job that is known not to fit. It
// saves checking the limits of each of a hundred thousand jobs.
func (d *decision) knownNotToFit(h *head) bool {
	return !d.running.preemptible && d.reservationsTried >= d.reservationsMax && d.state.Rules.Policy != FIFO && d.lacksRoom(h)
}

// over reports that nothing can be done for any job behind.
func (d *decision) over() bool {
	if d.blocker == nil && !d.full() {
		return d.closed.open == 0 && d.walk.passes != nil
	}
	if d.running.lending {
		return true // who is refused was before
	}
	if !d.judged {
		d.judged, d.refuses = true, limitsAmounts(d.state) || slices.ContainsFunc(d.state.Queue.sizes.list, func(size *counted[shape]) bool {
			return size != nil && !d.now.possible(&d.outlookOf(size.value.family).candidates, &size.value.amounts)
		})
	}
	return !d.refuses
}

// limitsAmounts reports that a user's limit may refuse a job of any class: then the
// walk skips none.
func limitsAmounts(s *State) bool {
	limited := s.DefaultLimit.onAmounts()
	for _, limit := range s.Limits {
		limited = limited || limit.onAmounts()
	}
	return limited
}

func (l *Limit) onAmounts() bool { return l.GPUs > 0 || l.Share > 0 || l.CPUs > 0 || l.MemMiB > 0 }

// refuse refuses the job that came up last, and with it its whole class.
func (d *decision) refuse(why func() reason.Reason) {
	if d.quiet || d.running.lending {
		return
	}
	jobs, reason := d.walk.rest(), why()
	d.plan.Infeasible = slices.Grow(d.plan.Infeasible, len(jobs))
	for _, id := range jobs {
		d.plan.Infeasible = append(d.plan.Infeasible, Refusal{Job: id, Reason: reason})
	}
}
