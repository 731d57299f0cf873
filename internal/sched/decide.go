package sched

import "slices"

// Decide says which jobs start now, on which cards, and which never can.
func Decide(s State) Plan {
	d := newDecision(&s)
	d.run(nil)
	d.assertSound()
	return d.plan
}

// decision is a plan in the making.
type decision struct {
	state    *State
	board    *board
	walk     *walker
	kinships map[*kin]*kinship
	pooled   map[string]int // starts of this plan, by limited pool
	plan     Plan
	quiet    bool     // refusals are not wanted
	blocker  *Pending // under FIFO, the job that nothing may pass
}

func newDecision(s *State) *decision {
	return &decision{state: s, board: newBoard(s), walk: s.Queue.walk(s), kinships: map[*kin]*kinship{}}
}

// run goes through the queue in order, up to but without the job `until`, or
// to its end. After a block it goes on without starting anything: a job that
// can never fit is refused at once, wherever it stands.
func (d *decision) run(until *member) {
	w := d.walk
	for next := w.next(); next != nil; next = w.next() {
		if until != nil && w.reached(d.spot(until)) {
			return
		}
		k, a := d.kinship(next), w.account()
		switch {
		case !k.possible(&next.amounts):
			d.refuse(func() Reason { return k.impossible(&next.group.request) })
		case !a.allows(&next.amounts):
			d.refuse(func() Reason { return a.overLimit(&next.amounts) })
		case d.blocker != nil || d.spent():
		case d.start(next, k, a):
			w.again()
		case d.state.Rules.Policy == FIFO && !d.barred(next.group, &next.amounts, a):
			p := next.group.pending(next.entry)
			d.blocker = &p
		}
	}
}

// account is that of a queued job's user.
func (d *decision) account(m *member) *account { return d.walk.accounts[m.group.line] }

// spot is where a queued job stands as the decision is now.
func (d *decision) spot(m *member) spot { return spot{d.account(m), &m.entry} }

// spent reports that the plan has all the starts it may have.
func (d *decision) spent() bool {
	return d.state.MaxStarts > 0 && len(d.plan.Starts) >= d.state.MaxStarts
}

func (d *decision) kinship(h *head) *kinship {
	k, found := d.kinships[h.kin]
	if !found {
		k = newKinship(d.board, &h.group.request)
		d.kinships[h.kin] = k
	}
	return k
}

// refuse turns down the job that came up last, and with it its whole group.
func (d *decision) refuse(why func() Reason) {
	if d.quiet {
		return
	}
	jobs, reason := d.walk.rest(), why()
	d.plan.Infeasible = slices.Grow(d.plan.Infeasible, len(jobs))
	for _, id := range jobs {
		d.plan.Infeasible = append(d.plan.Infeasible, Refusal{Job: id, Reason: reason})
	}
}

// start places the job if no limit bars it and it fits, and takes what it
// gets off the board. The limits come second: to look at them is dearer.
func (d *decision) start(h *head, k *kinship, a *account) bool {
	if !d.fits(h, k) || d.barred(h.group, &h.amounts, a) {
		return false
	}
	r := &h.group.request
	grant, ok := k.grant(r)
	if !ok {
		k.fail(&h.amounts)
		return false
	}
	d.plan.Starts = append(d.plan.Starts, Start{Job: h.job, Grant: grant})
	d.board.book(&Held{
		Job: h.job, Cards: grant.GPUs, BudgetMiB: CardBudgets(grant, r.VRAMMiB, d.state.Cards),
		Share: grant.Share, Alone: grant.Alone, Exclusive: grant.Exclusive,
		CPUs: r.CPUs, MemMiB: r.MemMiB,
	})
	d.count(h.group, &h.amounts, a)
	return true
}

// fits settles what can be settled without looking at a card.
func (d *decision) fits(h *head, k *kinship) bool {
	switch {
	case !d.board.hostFits(&h.amounts):
		return false
	case h.gpus == 0:
		return true
	}
	return d.board.unreadable == "" && !k.hopeless(&h.amounts)
}
