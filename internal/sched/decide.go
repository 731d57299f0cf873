package sched

import "berth/internal/job"

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
		r := &next.group.request
		k := d.kinship(next.group)
		switch {
		case !k.possible(r):
			d.refuse(w.rest(), k.impossible(r))
		case d.blocker != nil || d.spent():
		case d.start(next.job, k, r):
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

func (d *decision) kinship(g *group) *kinship {
	k, found := d.kinships[g.kin]
	if !found {
		k = newKinship(d.board, &g.request)
		d.kinships[g.kin] = k
	}
	return k
}

func (d *decision) refuse(jobs []string, reason Reason) {
	for _, id := range jobs {
		d.plan.Infeasible = append(d.plan.Infeasible, Refusal{Job: id, Reason: reason})
	}
}

// start places the job if it fits, and takes what it gets off the board.
func (d *decision) start(id string, k *kinship, r *Request) bool {
	grant, ok := d.place(k, r)
	if !ok {
		return false
	}
	d.plan.Starts = append(d.plan.Starts, Start{Job: id, Grant: grant})
	d.board.book(&Held{
		Job: id, Cards: grant.GPUs, BudgetMiB: CardBudgets(grant, r.VRAMMiB, d.state.Cards),
		Share: grant.Share, Alone: grant.Alone, Exclusive: grant.Exclusive,
		CPUs: r.CPUs, MemMiB: r.MemMiB,
	})
	return true
}

// place is the whole question of whether a request fits now.
func (d *decision) place(k *kinship, r *Request) (job.Grant, bool) {
	switch {
	case !d.board.hostFits(r):
		return job.Grant{}, false
	case r.GPUs == 0:
		return job.Grant{}, true
	case d.board.unreadable != "" || k.hopeless(r):
		return job.Grant{}, false
	}
	grant, ok := k.grant(r)
	if !ok {
		k.fail(r)
	}
	return grant, ok
}
