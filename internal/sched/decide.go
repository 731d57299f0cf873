package sched

import (
	"slices"
	"time"

	"berth/internal/job"
	"berth/internal/reason"
)

// Decide says which jobs start now, on which cards, and which never can; for
// which cards are kept, and which running jobs give way.
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

	held         []*Held         // in order
	given        []*Held         // what this plan starts, and what it made room for
	yields       bool            // something that runs gives way, or does so already
	gone         map[*Held]bool  // what leaves its cards, by this plan or an earlier one
	futures      []*future       // for whom cards are kept
	depth        int             // for how many jobs that just come first cards are kept
	kept         int             // how many of them are for jobs that just came first
	pressed      bool            // cards are kept for one that was passed for too long
	seen         map[string]bool // jobs that were looked at out of order
	powers       []power         // whom nobody gave way to
	ceiling      *ceiling        // nil until it is asked for
	room         *ceiling        // the last one that was asked for
	sizes, kinds settling        // for which nothing can be done
	pause, skips int             // between two looks for these: as a rule, and from now on
	liked        group           // of the kind that is looked at
	asked        []power         // of those who asked whom they outrank
	on           footing         // of whom it was last asked who gives way to them
	yielders     []yielders      // the answers
	all          bool            // the walk has to see every group
	taken        []bool          // of each card: where tooFew counts
	swept        sweep           // reused
	emptied      *ceiling        // the machine without anybody; nil until it is asked for
	leaving      []departure     // reused
	places       map[*Held]int   // reused
	spare        *board          // reused
}

func newDecision(s *State) *decision {
	d := &decision{
		state: s, board: newBoard(s), walk: s.Queue.walk(s), kinships: map[*kin]*kinship{},
		held: inOrder(s.Held), gone: map[*Held]bool{}, seen: map[string]bool{},
	}
	for _, h := range d.held {
		if h.Leaving && !h.Other {
			d.gone[h] = true
		}
		d.yields = d.yields || !h.Other && (h.Leaving || h.Aside.Mode != "")
	}
	d.depth, d.all = d.depthOf(), d.seesAll()
	if q := s.Queue; q != nil {
		d.sizes.all, d.kinds.all, d.kinds.sizes = q.sizes.list, q.kinds.list, &d.sizes
	}
	return d
}

// shapesSeen is up to how many kinds of job it pays to know that none of them
// fits.
const shapesSeen = 1024

// seesAll reports whether a group far behind may have to be refused: then the
// walk does not end before the queue does.
func (d *decision) seesAll() bool {
	q := d.state.Queue
	if q == nil {
		return false
	}
	if len(q.sizes.list) > shapesSeen || d.state.DefaultLimit.GPUs > 0 {
		return true
	}
	for _, limit := range d.state.Limits {
		if limit.GPUs > 0 {
			return true
		}
	}
	for _, s := range q.sizes.list {
		if !d.kinshipOf(s.kin).possible(&s.amounts) {
			return true
		}
	}
	return false
}

// run goes through the queue in order, up to but without the job `until`, or
// until nothing behind can matter. What cards are being left for comes first, and
// then what was passed for too long.
func (d *decision) run(until *member) {
	w := d.walk
	if !d.redeem(until) {
		return
	}
	for _, late := range d.state.Queue.overdue(d.state) {
		if until != nil && until.entry.job == late.entry.job {
			return
		}
		if !d.seen[late.entry.job] {
			d.guard(&late)
		}
	}
	if !d.all {
		w.passes = func(h *head) bool { return d.kinds.has(h.kind) }
	}
	for next := w.next(); next != nil; next = w.next() {
		if until != nil && w.reached(d.spot(until)) {
			return
		}
		if d.seen[next.job] || d.consider(next, w.account(), asUsual) {
			w.again()
		}
		if !d.all && d.idle(next) {
			break
		}
	}
	d.plan.Again = d.again()
}

// guard looks at a job that was passed for too long.
func (d *decision) guard(l *late) {
	h, a := l.group.head(l.entry), d.account(&l.member)
	k := d.kinship(&h)
	if !k.possible(&h.amounts) || !a.allows(&h.amounts) {
		return // it is refused in its own place
	}
	d.seen[h.job] = true
	d.consider(&h, a, l.standing(d.state))
}

// standing is how a job comes to be looked at.
type standing int

const (
	asUsual standing = iota
	passedTooLong
	passedForEver
)

// consider does what can be done for a job: it starts, or room is made for it,
// or cards are kept for it. It reports whether the next of its group is to be
// looked at too.
func (d *decision) consider(h *head, a *account, s standing) bool {
	k := d.kinship(h)
	switch {
	case !k.possible(&h.amounts):
		d.refuse(func() reason.Reason { return k.impossible(&h.group.request) })
	case !a.allows(&h.amounts):
		d.refuse(func() reason.Reason { return a.overLimit(&h.amounts) })
	case d.blocker != nil || d.spent():
	case d.start(h, k, a):
		return true
	case d.all && s == asUsual && d.helpless():
	case d.barred(h.group, &h.amounts, a):
	case d.makeRoom(h, k, a, s):
		return true
	default:
		if d.state.Rules.Policy == FIFO {
			p := h.group.pending(h.entry)
			d.blocker = &p
		}
		next := d.keep(h, s)
		if !d.all && s == asUsual && d.kept >= d.depth {
			d.kinds.add(h.kind)
		}
		return next
	}
	return false
}

// helpless reports that nothing can be done for a job that does not fit. It saves
// looking at each of a hundred thousand.
func (d *decision) helpless() bool {
	return !d.yields && d.kept >= d.depth && d.state.Rules.Policy != FIFO
}

// account is that of a queued job's user.
func (d *decision) account(m *member) *account { return d.walk.accountOf(m.group.line) }

// spot is where a queued job stands as the decision is now.
func (d *decision) spot(m *member) spot { return spot{d.account(m), &m.entry} }

// spent reports that the plan has all the starts it may have.
func (d *decision) spent() bool {
	return d.state.MaxStarts > 0 && len(d.plan.Starts) >= d.state.MaxStarts
}

func (d *decision) kinship(h *head) *kinship { return d.kinshipOf(h.kin) }

func (d *decision) kinshipOf(of *kin) *kinship {
	k, found := d.kinships[of]
	if !found {
		k = newKinship(d.board, &of.request)
		d.kinships[of] = k
	}
	return k
}

// refuse turns down the job that came up last, and with it its whole group.
func (d *decision) refuse(why func() reason.Reason) {
	if d.quiet {
		return
	}
	jobs, refused := d.walk.rest(), why()
	d.plan.Infeasible = slices.Grow(d.plan.Infeasible, len(jobs))
	for _, id := range jobs {
		d.plan.Infeasible = append(d.plan.Infeasible, Refusal{Job: id, Reason: refused})
	}
}

// start places the job if no limit bars it and it fits, and takes what it
// gets off the board. The limits come second: to look at them is dearer.
func (d *decision) start(h *head, k *kinship, a *account) bool {
	if !d.fits(h, k) || d.barred(h.group, &h.amounts, a) {
		return false
	}
	grant, ok := k.grant(&h.group.request, d.keeper(h))
	if !ok {
		k.failNow(&h.group.request, &h.amounts)
		return false
	}
	d.plan.Starts = append(d.plan.Starts, Start{Job: h.job, Grant: grant})
	held := d.give(h, grant)
	d.board.book(held)
	d.book(held)
	for _, f := range d.futures {
		if f.binds(d.state.Now, h.lasts) {
			f.board.book(held)
		}
	}
	d.count(h.group, &h.amounts, a)
	return true
}

// give notes that a job gets its cards, now or as soon as they are free.
func (d *decision) give(h *head, grant job.Grant) *Held {
	held := d.granted(h, grant, d.state.Now)
	d.given = append(d.given, held)
	return held
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

// fits settles what can be settled without looking at a card.
func (d *decision) fits(h *head, k *kinship) bool {
	switch {
	case !d.board.hostFits(&h.amounts) || d.keeper(h).host(&h.amounts) != nil:
		return false
	case h.gpus == 0:
		return true
	}
	return d.board.unreadable == "" && !k.hopeless(&h.amounts)
}
