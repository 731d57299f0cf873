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
	kinships map[*kin]*kinship
	plan     Plan
	quiet    bool     // refusals are not wanted
	blocker  *Pending // under FIFO, the job that nothing may pass
}

func newDecision(s *State) *decision {
	return &decision{state: s, board: newBoard(s), kinships: map[*kin]*kinship{}}
}

// run goes through the queue in order, up to but without the job `until`, or
// to its end. After a block it goes on without starting anything: a job that
// can never fit is refused at once, wherever it stands.
func (d *decision) run(until *entry) {
	if d.state.Queue == nil {
		return
	}
	w := d.state.Queue.walk()
	for {
		next, ok := w.next()
		if !ok || until != nil && compareEntries(next.entry, *until) >= 0 {
			return
		}
		k := d.kinship(&next)
		switch {
		case !k.possible(&next.amounts):
			d.refuse(w, k)
		case d.blocker != nil || d.spent():
		case d.start(&next, k):
			w.again()
		case d.state.Rules.Policy == FIFO:
			p := next.group.pending(next.entry)
			d.blocker = &p
		}
	}
}

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
func (d *decision) refuse(w *walker, k *kinship) {
	if d.quiet {
		return
	}
	jobs := w.rest()
	reason := k.impossible(&w.last.group.request)
	d.plan.Infeasible = slices.Grow(d.plan.Infeasible, len(jobs))
	for _, id := range jobs {
		d.plan.Infeasible = append(d.plan.Infeasible, Refusal{Job: id, Reason: reason})
	}
}

// start places the job if it fits, and takes what it gets off the board.
func (d *decision) start(h *head, k *kinship) bool {
	if !d.fits(h, k) {
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
