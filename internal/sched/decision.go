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

	walk    *walker
	limits  limits
	seen    map[string]bool // jobs considered out of order
	blocker *Pending        // under FIFO, the job that no other may overtake

	now     *machine // with the jobs that this plan starts
	running runningJobs
	started []*Allocation // by this plan
	claims  []*Allocation // jobs that others are preempted for, on their future cards
	wanted  []string      // by place: the first job within its user's share that waits for the card; nil: none does

	reservations      []*reservation
	reservationsMax   int  // how many jobs may have a reservation in their ordinary turn
	reservationsTried int  // how many were tried
	reservedOverdue   bool // an overdue job has a reservation
	quiet             bool // record no refusals
	judged            bool // refuses is known
	refuses           bool // a job may have to be refused

	// What is known not to work.
	closed          closed
	closings        int         // calls of closeLarger
	outlooks        []*outlook  // by the family's number
	lessPreemptible *machine    // without the jobs that can be preempted; nil until needed
	empty           *machine    // without any job; nil until needed
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
	now := newMachine(&s.Rules, s.Host, s.Cards, s.Unreadable, running)
	d := &decision{
		state: s, walk: s.Queue.walk(s), limits: limits{state: s}, now: now,
		running: runningJobs{state: s, now: now, list: running, beingPreempted: map[*Allocation]bool{}, parkedOfMiB: map[string]int64{}, shares: s.hasShares()},
		seen:    map[string]bool{}, closed: newClosed(s.Queue), outlooks: make([]*outlook, len(s.Queue.families.list)),
	}
	for _, h := range running {
		if h.BeingPreempted && !h.Other {
			d.running.beingPreempted[h] = true
		}
		d.running.preemptible = d.running.preemptible || !h.Other && (h.BeingPreempted || h.Preempt.Mode != "")
	}
	d.reservationsMax = d.running.reservationDepth()
	return d
}

// reservationDepth is how many waiting jobs get a reservation.
func (rs *runningJobs) reservationDepth() int {
	switch r := &rs.state.Rules; {
	case rs.parks() || r.Policy == Conservative:
		return reservationsMost
	case r.Policy == Backfill || r.Policy == "":
		return 1
	}
	return 0
}

// parks reports whether jobs take turns by being parked.
func (rs *runningJobs) parks() bool {
	if r := &rs.state.Rules; !r.TakesTurns() && r.Policy != LAS {
		return false
	}
	return slices.ContainsFunc(rs.list, func(h *Allocation) bool { return h.Preempt.keepsWork() })
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

// granted is what a job holds from a time on with this grant.
func (h *head) granted(s *State, grant job.Grant, from time.Time) *Allocation {
	r, m := &h.class.request, s.Queue.jobs[h.job]
	return &Allocation{
		Job: h.job, Cards: grant.GPUs, BudgetMiB: CardBudgets(grant, r.VRAMMiB, s.Cards),
		Share: grant.Share, Alone: grant.Alone, Exclusive: grant.Exclusive,
		CPUs: r.CPUs, MemMiB: r.MemMiB,
		Started: from, RanBefore: m.served, Run: m.run, Limit: h.term.limit,
	}
}

// lacksRoom reports that the job is known not to fit.
func (d *decision) lacksRoom(h *head) bool {
	return !d.now.host.fits(&h.amounts) || h.gpus > 0 && (d.now.unreadable != "" || d.outlook(h).noRoom.has(&h.amounts))
}
