package sched

import (
	"slices"
	"time"

	"berth/internal/job"
)

// decision is a plan in the making.
type decision struct {
	state *State
	plan  Plan
	quiet bool // record no refusals

	walk        *walker
	arrayStarts map[string]int         // starts of this plan, by limited array
	groupStarts map[GroupName][]string // and by limited group
	seen        map[string]bool        // jobs considered out of order
	blocker     *Pending               // under FIFO, the job that no other may overtake

	now            *machine             // with the jobs that this plan starts
	running        []*Allocation        // in order
	started        []*Allocation        // by this plan
	claims         []*Allocation        // jobs that others are preempted for, on their future cards
	byLoss         []*Allocation        // the running jobs by what their preemption costs; nil until needed
	beingPreempted map[*Allocation]bool // running jobs that are being preempted, by this plan or an earlier one
	parkedMiB      int64                // host memory for the jobs that this plan parks
	parkedOfMiB    map[string]int64     // the same by user

	reservations      []*reservation
	reservationsMax   int  // how many jobs may have a reservation in their ordinary turn
	reservationsTried int  // how many were tried
	reservedOverdue   bool // an overdue job has a reservation

	shares  bool                 // some user has a share
	lending bool                 // those are considered who would be borrowed, after all others
	wanted  []string             // by place: the first job within its user's share that waits for the card; nil: none does
	lent    map[*Allocation]bool // running jobs that are borrowed; nil until needed

	// What is known not to work.
	closed          closed
	closings        int         // calls of closeLarger
	refuses         *bool       // a job may have to be refused; nil until needed
	outlooks        []*outlook  // by the family's number
	preemptible     bool        // a running job can be preempted, or is being
	lessPreemptible *machine    // without the jobs that can be preempted; nil until needed
	empty           *machine    // without any job; nil until needed
	parkingFull     bool        // a preemption failed for lack of host memory
	scratch, trial  machine     // reused
	departing       []departure // likewise
}

func newDecision(s *State) *decision {
	if s.Queue == nil {
		bare := *s
		bare.Queue = NewQueue()
		s = &bare
	}
	running := inOrder(s.Allocations)
	d := &decision{
		state: s, walk: s.Queue.walk(s), now: newMachine(&s.Rules, s.Host, s.Cards, s.Unreadable, running), running: running, beingPreempted: map[*Allocation]bool{}, parkedOfMiB: map[string]int64{},
		seen: map[string]bool{}, closed: newClosed(s.Queue), outlooks: make([]*outlook, len(s.Queue.families.list)),
	}
	for _, h := range d.running {
		if h.BeingPreempted && !h.Other {
			d.beingPreempted[h] = true
		}
		d.preemptible = d.preemptible || !h.Other && (h.BeingPreempted || h.Preempt.Mode != "")
	}
	d.reservationsMax = d.reservationDepth()
	d.shares = s.hasShares()
	return d
}

// reservationDepth is how many waiting jobs get a reservation.
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
	if r := &d.state.Rules; !r.TakesTurns() && r.Policy != LAS {
		return false
	}
	return slices.ContainsFunc(d.running, func(h *Allocation) bool { return h.Preempt.keepsWork() })
}

// outlook is what a decision knows about a family of requests.
type outlook struct {
	candidates candidates
	waits      bool      // one within its user's share
	noRoom     frontier  // cannot start
	noVictims  notHelped // nobody can be preempted for these either
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

// full reports that the plan has all the starts it may have.
func (d *decision) full() bool {
	return d.state.MaxStarts > 0 && len(d.plan.Starts) >= d.state.MaxStarts
}

// account returns the account of the job's user.
func (d *decision) account(m *member) *account { return d.walk.accountOf(m.class.userQueue) }

// orderKey is a waiting job's place in the order at this point of the decision.
func (d *decision) orderKey(m *member) orderKey { return orderKey{d.account(m), &m.entry} }

// granted is what a job holds from a time on with this grant.
func (d *decision) granted(h *head, grant job.Grant, from time.Time) *Allocation {
	r, m := &h.class.request, d.state.Queue.jobs[h.job]
	return &Allocation{
		Job: h.job, Cards: grant.GPUs, BudgetMiB: CardBudgets(grant, r.VRAMMiB, d.state.Cards),
		Share: grant.Share, Alone: grant.Alone, Exclusive: grant.Exclusive,
		CPUs: r.CPUs, MemMiB: r.MemMiB,
		Started: from, RanBefore: m.served, Run: m.run, Limit: h.term.limit,
	}
}

// lacksRoom reports that the job is known not to fit.
func (d *decision) lacksRoom(h *head) bool {
	return !d.now.host.fits(&h.amounts) || h.gpus > 0 && (d.now.unreadable != "" || d.outlook(h).noRoom.has(&h.amounts))
}
