package sched

import (
	"cmp"
	"fmt"
	"slices"

	"berth/internal/job/reason"
)

// audit is what is checked of a finished decision.
type audit struct {
	state        *State
	plan         *Plan
	now          *machine
	running      *runningJobs
	reservations []*reservation
}

func (d *decision) audit() audit { return audit{d.state, &d.plan, d.now, &d.running, d.reservations} }

// assertSound checks the finished plan against its snapshot by adding everything up
// afresh. A plan that books a card twice is a bug in berth and must not be carried
// out.
func (u audit) assertSound() {
	bookings := map[int][]*Allocation{}
	for i := range u.state.Allocations {
		for _, index := range u.state.Allocations[i].Cards {
			bookings[index] = append(bookings[index], &u.state.Allocations[i])
		}
	}
	added := map[int]float64{} // shares that the plan adds, by card
	seen := map[string]bool{}
	for i := range u.state.Allocations {
		if !u.state.Allocations[i].Other {
			seen[u.state.Allocations[i].Job] = true
		}
	}
	for _, start := range u.plan.Starts {
		assert(!seen[start.Job], "job %s is started while it runs", start.Job)
		seen[start.Job] = true
		h := u.holding(start)
		own := map[int]bool{}
		for _, index := range h.Cards {
			assert(!own[index], "job %s is given gpu%d twice", start.Job, index)
			own[index] = true
			added[index] += h.Share
			bookings[index] = append(bookings[index], h)
		}
	}
	for i := range u.now.slots {
		c := &u.now.slots[i]
		if share, started := added[c.Index]; started {
			assertCard(c, c.closed, bookings[c.Index], share)
		}
	}
	u.assertLimits()
	u.assertKept()
	u.assertVictims()
}

// assertKept checks that every reservation is for a waiting job, with as many cards
// as it asked for.
func (u audit) assertKept() {
	seen := map[string]bool{}
	for _, start := range u.plan.Starts {
		seen[start.Job] = true
	}
	for _, r := range u.plan.Reservations {
		assert(!seen[r.Job], "cards are reserved for job %s, which has some already", r.Job)
		seen[r.Job] = true
		p, found := u.state.Queue.Get(r.Job)
		assert(found, "cards are reserved for job %s, which is not queued", r.Job)
		assert(len(r.Cards) == p.Request.GPUs, "job %s asked for %d GPUs and %d are reserved", r.Job, p.Request.GPUs, len(r.Cards))
		assert(!r.At.Before(u.state.Now), "cards are reserved for job %s until %s, which is past", r.Job, r.At)
		own := map[int]bool{}
		for _, index := range r.Cards {
			c := u.now.slot(index)
			assert(c != nil && !own[index] && c.shut() == "", "gpu%d is reserved for job %s, which cannot have it", index, r.Job)
			own[index] = true
		}
	}
}

// assertVictims checks the victims, and that the jobs they are preempted for fit
// beside one another and beside all other jobs.
func (u audit) assertVictims() {
	if len(u.plan.Victims) == 0 && len(u.running.beingPreempted) == 0 {
		return
	}
	leaves := map[string]bool{}
	kept := map[string]bool{}
	for _, r := range u.plan.Reservations {
		kept[r.Job] = true
	}
	for _, a := range u.plan.Victims {
		i, _ := slices.BinarySearchFunc(u.running.list, a.Job, func(h *Allocation, job string) int { return cmp.Compare(h.Job, job) })
		for i < len(u.running.list) && u.running.list[i].Other {
			i++
		}
		assert(i < len(u.running.list) && u.running.list[i].Job == a.Job, "job %s is preempted and does not run", a.Job)
		h := u.running.list[i]
		assert(!h.BeingPreempted && !leaves[a.Job], "job %s is preempted twice", a.Job)
		assert(a.Mode != "" && h.Preempt.Mode == a.Mode, "job %s is preempted by %q and allows %q", a.Job, a.Mode, h.Preempt.Mode)
		assert(kept[a.For], "job %s is preempted for job %s, which has no cards", a.Job, a.For)
		leaves[a.Job] = true
	}
	var stays []*Allocation
	for i := range u.state.Allocations {
		if h := &u.state.Allocations[i]; h.Other || !h.BeingPreempted && !leaves[h.Job] {
			stays = append(stays, h)
		}
	}
	for _, f := range u.reservations {
		if f.claim {
			u.assertClaim(f, stays)
		}
	}
}

// assertClaim checks the cards of a claim at the time at which its job starts: the
// remaining jobs are there, earlier claims, and starts of this plan that may last
// until then.
func (u audit) assertClaim(f *reservation, stays []*Allocation) {
	there := slices.Clone(stays)
	for _, start := range u.plan.Starts {
		m, _ := u.state.Queue.member(start.Job)
		if h := u.holding(start); f.binds(u.state.Now, m.class.term) {
			there = append(there, h)
		}
	}
	claims := map[*Allocation]bool{}
	for _, other := range u.reservations {
		if other.claim && !other.at.After(f.at) {
			claims[other.held] = true
			there = append(there, other.held)
		}
	}
	for _, index := range f.held.Cards {
		var holders []*Allocation
		var added float64
		for _, h := range there {
			if !slices.Contains(h.Cards, index) {
				continue
			}
			holders = append(holders, h)
			if claims[h] {
				added += h.Share
			}
		}
		c := u.now.slot(index)
		assertCard(c, c.shut(), holders, added)
	}
}

// assertLimits checks that no start exceeds a limit of a user, an array or a group.
// A user may be over a limit already: limits are lowered while jobs run.
func (u audit) assertLimits() {
	added := map[string]Use{}
	pooled, joined := map[string]int{}, map[GroupName]int{}
	for _, start := range u.plan.Starts {
		p, _ := u.state.Queue.Get(start.Job)
		use := added[p.User]
		if use.add(p.Request.CountedGPUs(), p.Request.CPUs, p.Request.MemMiB); !p.Parked {
			use.Jobs++
		}
		added[p.User] = use
		if p.ArrayLimit > 0 {
			pooled[p.Array]++
			runs := u.state.ArrayRuns[p.Array] + pooled[p.Array]
			assert(runs <= p.ArrayLimit, "%d tasks of array %s run, its limit is %d", runs, p.Array, p.ArrayLimit)
		}
		name := GroupName{p.User, p.Group}
		if of, set := u.state.Groups[name]; set {
			joined[name]++
			runs := len(of.Running) + joined[name]
			assert(of.PausedBy == "" && (of.Limit <= 0 || runs <= of.Limit), "%d jobs of group %s run, its limit is %d, paused by %q", runs, p.Group, of.Limit, of.PausedBy)
		}
	}
	for user, more := range added {
		a := newAccount(u.state, user)
		jobs, gpus := a.use.Jobs+more.Jobs, a.use.GPUs+more.GPUs
		assert(a.limit.Jobs <= 0 || more.Jobs == 0 || jobs <= a.limit.Jobs, "%s runs %d jobs, the limit is %d", user, jobs, a.limit.Jobs)
		assert(a.limit.GPUs <= 0 || more.GPUs == 0 || gpus <= a.limit.GPUs+2*limitTolerance,
			"%s holds %g GPUs, the limit is %g", user, gpus, a.limit.GPUs)
		assert(a.limit.CPUs <= 0 || more.CPUs == 0 || a.use.CPUs+more.CPUs <= a.limit.CPUs,
			"%s holds %d CPUs, the limit is %d", user, a.use.CPUs+more.CPUs, a.limit.CPUs)
		assert(a.limit.MemMiB <= 0 || more.MemMiB == 0 || a.use.MemMiB+more.MemMiB <= a.limit.MemMiB,
			"%s holds %d MiB of host memory, the limit is %d", user, a.use.MemMiB+more.MemMiB, a.limit.MemMiB)
	}
}

// holding is what a planned start will hold.
func (u audit) holding(start Start) *Allocation {
	p, found := u.state.Queue.Get(start.Job)
	assert(found, "job %s is started but not queued", start.Job)
	g := start.Grant
	assert(len(g.GPUs) == p.Request.GPUs, "job %s asked for %d GPUs and is given %d", p.Job, p.Request.GPUs, len(g.GPUs))
	return &Allocation{
		Job: start.Job, Cards: g.GPUs, BudgetMiB: CardBudgets(g, p.Request.VRAMMiB, u.state.Cards),
		Share: g.Share, Alone: g.Alone, Exclusive: g.Exclusive,
	}
}

// assertCard checks one card that a plan starts a job on. What was on it before is
// not the plan's doing: another berth may have taken shares beyond 1.
func assertCard(c *slot, closed reason.Obstacle, holders []*Allocation, added float64) {
	assert(closed == "", "gpu%d is closed (%s) and is given a job", c.Index, closed)
	freeMiB := c.TotalMiB - c.ReservedMiB - c.ForeignMiB
	var shares float64
	onlyAlone := true
	for _, h := range holders {
		assert(len(holders) == 1 || !h.Alone && !h.Exclusive, "job %s is joined on gpu%d", h.Job, c.Index)
		onlyAlone = onlyAlone && h.Alone
		shares += h.share()
		for i, index := range h.Cards {
			if index == c.Index {
				freeMiB -= h.budget(i)
			}
		}
	}
	assert(added == 0 || shares <= 1+2*shareTolerance, "gpu%d is divided into shares of %g", c.Index, shares)
	// A job that is alone has no budget: external use may be anything below the
	// idle threshold.
	assert(freeMiB >= 0 || onlyAlone, "gpu%d is overbooked by %d MiB", c.Index, -freeMiB)
}

func assert(ok bool, format string, args ...any) {
	if !ok {
		panic("bug: " + fmt.Sprintf(format, args...))
	}
}
