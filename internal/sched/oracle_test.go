package sched

import (
	"cmp"
	"math"
	"slices"
	"time"

	"berth/internal/job"
)

// oracle is the rule of Decide written a second time, as slowly and plainly as
// it can be: it looks at every job by itself, works everything out afresh each
// time, and knows no index. It shares with Decide the types of a State, the
// tuned constants, the arithmetic of estimates, and what the queue remembers: its
// jobs, and since when each user's oldest waits (queue_test.go holds Tick to that).
type oracle struct {
	s       State
	waiting []Pending // queued jobs that were not looked at yet
	running []*Allocation
	started []*Allocation // by this plan
	given   []*Allocation // the same, and jobs that this plan preempts others for
	leaving map[*Allocation]bool
	margins map[*Allocation]int64 // of jobs that are to start later

	reservations []*oracleReservation
	reserved     int  // reservations that were tried for jobs in their ordinary turn
	overdueKept  bool // an overdue job has a reservation

	turn   map[string]float64 // usage, with what this plan gives
	use    map[string]Use
	pools  map[string]int
	joined map[GroupName]int
	failed map[classKey]bool // jobs that ask for the same have nothing to hope for
	block  string            // under FIFO: the job that no other may overtake
	lends  bool              // those are considered who are beyond their share
	wanted map[int]bool      // cards that somebody below their share waits for
	plan   Plan
}

// oracleReservation is the machine as it will be when a waiting job starts.
type oracleReservation struct {
	job      *Allocation
	at       time.Time
	usual    time.Duration
	strength strength
	claim    bool
	machine  oracleMachine
}

// oracleMachine is who holds the cards, and which are closed to everybody.
type oracleMachine struct {
	holders []*Allocation
	closed  map[int]bool
}

// consult is what Decide has to say, in plan.
func consult(s State) *oracle {
	o := &oracle{
		s: s, leaving: map[*Allocation]bool{}, margins: map[*Allocation]int64{}, turn: copied(s.Usage), use: copied(s.InUse), pools: copied(s.ArrayRuns), joined: map[GroupName]int{}, failed: map[classKey]bool{}, wanted: map[int]bool{},
		waiting: s.Queue.First(s.Queue.Len()), running: inOrder(s.Allocations),
	}
	for _, h := range o.running {
		o.leaving[h] = h.BeingPreempted && !h.Other
	}
	// 1. Cards that are being vacated go to the jobs that they are vacated for.
	for _, p := range o.promised() {
		if !o.refused(&p) && !o.full() && (o.start(&p) || !o.limited(&p) && o.claim(&p, ordinary, nil)) {
			o.done(&p)
		}
	}
	// 2. Overdue jobs come before all others.
	for _, late := range o.overdue() {
		if o.waits(late.p.Job) && !o.refused(&late.p) && !o.beyondShare(&late.p, late.urgency) {
			o.done(&late.p)
			o.consider(&late.p, late.urgency)
		}
	}
	// 3. Everybody else, the first in order first.
	all := slices.Clone(o.waiting)
	o.inOrder()
	// 4. Those who are beyond their share, the same way.
	if o.block == "" {
		o.lends, o.failed, o.waiting = true, map[classKey]bool{}, slices.DeleteFunc(all, func(p Pending) bool {
			return slices.ContainsFunc(o.given, func(h *Allocation) bool { return h.Job == p.Job })
		})
		o.inOrder()
	}
	o.plan.Again = o.again()
	return o
}

func (o *oracle) inOrder() {
	for len(o.waiting) > 0 {
		p := slices.MinFunc(o.waiting, o.order)
		o.done(&p)
		if key := o.keyOf(&p); !o.failed[key] && !o.consider(&p, ordinary) {
			o.failed[key] = true
		}
	}
}

func (o *oracle) keyOf(p *Pending) classKey {
	key := classKey{neverBorrows: o.neverBorrows(p), user: p.User, priority: p.Priority, request: p.Request, group: p.Group, term: termOf(p.Run, p.RanBefore, p.Limit), unproven: p.Unproven, parked: p.Parked, fixed: p.Request.GPUs > 1 && !oracleKeeps(&p.Preempt)}
	if p.ArrayLimit > 0 {
		key.array, key.arrayLimit = p.Array, p.ArrayLimit
	}
	return key
}

func (o *oracle) waits(job string) bool {
	return slices.ContainsFunc(o.waiting, func(p Pending) bool { return p.Job == job })
}

func (o *oracle) done(p *Pending) {
	o.waiting = slices.DeleteFunc(o.waiting, func(other Pending) bool { return other.Job == p.Job })
}

// order is priority, service class, usage, policy, submission.
func (o *oracle) order(a, b Pending) int {
	classA, sizeA := o.rank(&a)
	classB, sizeB := o.rank(&b)
	byUsage := 0
	if timeless := o.slices() && (classA == classBoosted || classA == classLong); o.s.Rules.Fair && !timeless {
		byUsage = cmp.Compare(o.turn[a.User], o.turn[b.User])
	}
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(classA, classB), byUsage,
		cmp.Compare(sizeA, sizeB), bySubmission(a, b))
}

func bySubmission(a, b Pending) int {
	return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Job, b.Job))
}

func (o *oracle) slices() bool {
	return o.s.Rules.Slice && (o.s.Rules.Policy == Backfill || o.s.Rules.Policy == Conservative || o.s.Rules.Policy == "")
}

// rank is a waiting job's service class, and what the policy orders by within it.
func (o *oracle) rank(p *Pending) (serviceClass, float64) {
	switch {
	case o.s.Rules.Policy == Shortest:
		left := p.Run.Left(p.RanBefore, 0).Mid
		if p.Run.Mid <= 0 && p.Limit > 0 {
			left = p.Limit
		} else if p.Run.Mid <= 0 {
			left = boostLeast
		}
		return 0, max(0, left.Seconds()) * max(cpuWeight, oracleWeight(p.Request.GPUs, p.Request.Share, p.Request.CPUs))
	case o.s.Rules.Policy == LAS:
		return oracleLAS(p.RanBefore, oracleWeight(p.Request.GPUs, p.Request.Share, p.Request.CPUs)), 0
	case !o.slices():
		return 0, 0
	}
	c := oracleClass(p.RanBefore)
	due := p.Since.Add(oracleLongWait(p.RanBefore))
	if c == classFresh || o.s.Now.Before(due) {
		return c, 0
	}
	if p.RanBefore < boostFirst {
		return classBoosted, float64(due.UnixMilli()) - boostApart // before all that had more
	}
	if !p.Submitted.IsZero() {
		due = p.Submitted.Add(p.RanBefore).Add(oracleLongWait(p.RanBefore))
	}
	return classBoosted, float64(due.UnixMilli())
}

func oracleClass(served time.Duration) serviceClass {
	if served < freshService {
		return classFresh
	}
	return classLong
}

func oracleLAS(served time.Duration, gpus float64) (c serviceClass) {
	for border := lasBase; served.Seconds()*gpus >= border && c < math.MaxInt8; border *= lasGrowth {
		c++
	}
	return c
}

func oracleLongWait(served time.Duration) time.Duration {
	return min(boostWaitTimes*min(served, boostWaitMost), boostWaitMost)
}

// oracleWeight is how many GPUs a job counts as.
func oracleWeight(gpus int, share float64, cpus int) float64 {
	switch {
	case gpus == 0:
		return cpuWeight * float64(cpus)
	case share > 0:
		return share * float64(gpus)
	}
	return float64(gpus)
}

// fairWeight is the largest part of the machine that the job takes, in GPUs.
func (o *oracle) fairWeight(r *Request) float64 {
	gpus, parts := float64(max(1, len(o.s.Cards))), []float64{o.counted(r)}
	if o.s.Host.CPUs > 0 {
		parts = append(parts, gpus/float64(o.s.Host.CPUs)*float64(r.CPUs))
	} else {
		parts = append(parts, cpuWeight*float64(r.CPUs))
	}
	if o.s.Host.MemMiB > 0 {
		parts = append(parts, gpus/float64(o.s.Host.MemMiB)*float64(r.MemMiB))
	}
	return slices.Max(parts)
}

// promised are the queued jobs that running ones leave for.
func (o *oracle) promised() (list []Pending) {
	for _, p := range o.waiting {
		if slices.ContainsFunc(o.running, func(h *Allocation) bool { return o.leaving[h] && h.PreemptedFor == p.Job }) {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b Pending) int {
		classA, sizeA := o.rank(&a)
		classB, sizeB := o.rank(&b)
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(classA, classB), cmp.Compare(sizeA, sizeB), bySubmission(a, b))
	})
	return list
}

type overdueJob struct {
	p       Pending
	since   time.Time
	urgency urgency
}

// overdue are the users' oldest jobs that were overtaken for as long as a job
// may be. Under FIFO a job counts only if no older one waits that is not overdue.
func (o *oracle) overdue() (list []overdueJob) {
	bound := o.s.Rules.MaxBypass
	if bound <= 0 {
		return nil
	}
	for _, oldest := range NewSnapshot(o.s).Oldest {
		waited := o.s.Now.Sub(oldest.Since)
		if p, queued := o.s.Queue.Get(oldest.Job); queued && waited >= bound {
			u := overdue
			if waited >= 2*bound {
				u = longOverdue
			}
			list = append(list, overdueJob{p, oldest.Since, u})
		}
	}
	if o.s.Rules.Policy != FIFO {
		slices.SortFunc(list, func(a, b overdueJob) int { return cmp.Or(a.since.Compare(b.since), bySubmission(a.p, b.p)) })
		return list
	}
	slices.SortFunc(list, func(a, b overdueJob) int { return bySubmission(a.p, b.p) })
	all := slices.SortedFunc(slices.Values(o.s.Queue.First(o.s.Queue.Len())), bySubmission)
	n := 0
	for n < len(list) && all[n].Job == list[n].p.Job {
		n++
	}
	return list[:n]
}

// consider does for a job what can be done: start it, preempt for it, or reserve
// GPUs for it. It reports whether a job that asks for the same may fare better.
func (o *oracle) consider(p *Pending, u urgency) bool {
	switch {
	case o.refused(p):
		if !o.lends {
			o.refuse(p)
		}
	case o.block != "" || o.full():
	case o.beyondShare(p, u) != o.lends:
	case o.lends && slices.ContainsFunc(o.candidates(&p.Request), func(c *Card) bool { return o.wanted[c.Index] }):
	case o.start(p):
		return true
	case o.limited(p):
	case o.preempt(p, u):
		return true
	default:
		if o.s.Rules.Policy == FIFO {
			o.block = p.Job
		}
		o.want(p)
		return o.reserve(p, u)
	}
	return false
}

// want notes for which cards a job waits, unless they are paused or the like.
func (o *oracle) want(p *Pending) {
	if _, ok := o.place(p, o.without(func(*Allocation) bool { return true }, o.s.Now), o.s.Now, nil); ok && !o.lends {
		for _, c := range o.candidates(&p.Request) {
			o.wanted[c.Index] = true
		}
	}
}

// neverBorrows reports a job that may not be borrowed: it does not give way, and may last.
func (o *oracle) neverBorrows(p *Pending) bool {
	soon := p.Limit > 0 && p.Limit <= o.s.Rules.BorrowTime+o.s.Rules.BorrowTime/borrowGrace
	return o.s.Rules.BorrowTime != 0 && p.Preempt.Mode == "" && !soon
}

// beyondShare reports a job that would be borrowed. One that could never run
// otherwise is not held up by that for ever.
func (o *oracle) beyondShare(p *Pending, u urgency) bool {
	share, held := o.limit(p.User).Share, o.use[p.User]
	if u != ordinary && o.counted(&p.Request) > share+limitTolerance {
		return false
	}
	return share > 0 && p.Request.GPUs > 0 && held.GPUs+held.Unmeasured+o.adds(p) > share+limitTolerance
}

// adds is what a job adds to the GPUs of its user. The first share may start; another
// counts as whole GPUs until that one is measured.
func (o *oracle) adds(p *Pending) float64 {
	if p.Unproven && o.use[p.User].Unmeasured > 0 {
		return float64(p.Request.GPUs)
	}
	return o.counted(&p.Request)
}

// borrowed reports a running job beyond its user's share. Those that would lose most
// by giving way are within it.
func (o *oracle) borrowed(h *Allocation) bool {
	share := o.limit(h.User).Share
	var own []*Allocation
	for _, other := range o.running {
		if other.User == h.User && !other.Other && !other.BeingPreempted {
			own = append(own, other)
		}
	}
	if share <= 0 || !slices.Contains(own, h) {
		return false
	}
	slices.SortStableFunc(own, o.lessLoss)
	slices.Reverse(own)
	gives := func(h *Allocation) bool { return h.Preempt.Mode != "" }
	own = slices.Concat(slices.DeleteFunc(slices.Clone(own), gives), slices.DeleteFunc(own, func(h *Allocation) bool { return !gives(h) }))
	within := 0.0
	for _, other := range own {
		gpus := oracleWeight(len(other.Cards), max(0, other.Share), 0) + other.OverGPUs
		beyond := within+gpus > share+limitTolerance
		if other == h {
			return beyond
		}
		if !beyond {
			within += gpus
		}
	}
	return false
}

// refuse turns a job down, and with it all that ask for the same.
func (o *oracle) refuse(p *Pending) {
	same := []Pending{*p}
	for _, other := range o.waiting {
		if o.keyOf(&other) == o.keyOf(p) {
			same = append(same, other)
		}
	}
	for i := range same {
		o.plan.Infeasible = append(o.plan.Infeasible, Refusal{Job: same[i].Job})
	}
}

// refused reports that the job can never run: the machine is too small for it, or
// its user's limit.
func (o *oracle) refused(p *Pending) bool {
	r, host := &p.Request, o.s.Host
	limit := o.limit(p.User)
	switch {
	case host.CPUs > 0 && r.CPUs > host.CPUs, host.MemMiB > 0 && r.MemMiB > host.MemMiB:
		return true
	case limit.GPUs > 0 && o.counted(r) > limit.GPUs+limitTolerance:
		return true
	case limit.Share > 0 && o.neverBorrows(p) && o.counted(r) > limit.Share+limitTolerance:
		return true
	case limit.CPUs > 0 && r.CPUs > limit.CPUs, limit.MemMiB > 0 && r.MemMiB > limit.MemMiB:
		return true
	case r.GPUs == 0 || o.s.Unreadable != "" && len(o.s.Cards) == 0:
		return false
	}
	n := 0
	for _, c := range o.candidates(r) {
		room, margin := c.TotalMiB-c.ReservedMiB, int64(0)
		if r.VRAMMiB > 0 {
			margin = o.s.Rules.MarginMiB
		}
		if r.Share <= 1+shareTolerance && (o.undeclared(r) || o.budget(r, c)+margin <= room) {
			n++
		}
	}
	return n < r.GPUs
}

func (o *oracle) undeclared(r *Request) bool { return r.VRAMMiB == 0 && r.Share == 0 }

func (o *oracle) counted(r *Request) float64 {
	if r.GPUs == 0 {
		return 0
	}
	return oracleWeight(r.GPUs, r.Share, r.CPUs)
}

func (o *oracle) budget(r *Request, c *Card) int64 {
	if r.VRAMMiB > 0 || r.Share == 0 {
		return r.VRAMMiB
	}
	return max(1, int64(math.Floor(r.Share*shareOfCard*float64(c.TotalMiB)+rounding)))
}

// candidates are the cards that the job's ids, type and list admit.
func (o *oracle) candidates(r *Request) (list []*Card) {
	if r.GPUs == 0 {
		return nil
	}
	if r.IDs != "" {
		ids := splitIDs(r.IDs)
		for i, id := range ids {
			for k := range o.s.Cards {
				if c := &o.s.Cards[k]; c.Index == id && !slices.Contains(ids[:i], id) && r.allows(c) {
					list = append(list, c)
				}
			}
		}
		return list
	}
	for i := range o.s.Cards {
		if r.allows(&o.s.Cards[i]) {
			list = append(list, &o.s.Cards[i])
		}
	}
	slices.SortFunc(list, func(a, b *Card) int { return cmp.Compare(a.Index, b.Index) })
	return list
}

func (o *oracle) limit(user string) Limit {
	if own, some := o.s.Limits[user]; some {
		return own
	}
	return o.s.DefaultLimit
}

// limited reports that a limit of the user, of the array or of the group keeps the
// job, or that its group is paused.
func (o *oracle) limited(p *Pending) bool {
	name := GroupName{p.User, p.Group}
	if of, set := o.s.Groups[name]; set && (of.PausedBy != "" || of.Limit > 0 && len(of.Running)+o.joined[name] >= of.Limit) {
		return true
	}
	limit, use, more := o.limit(p.User), o.use[p.User], o.adds(p)
	if share := limit.Share; share > 0 && (o.neverBorrows(p) || p.Unproven && use.Unmeasured > 0) && (limit.GPUs <= 0 || share < limit.GPUs) {
		limit.GPUs = share // it may not be borrowed, or it is not known what it takes
	}
	return p.ArrayLimit > 0 && o.pools[p.Array] >= p.ArrayLimit ||
		limit.Jobs > 0 && use.Jobs >= limit.Jobs && !p.Parked ||
		limit.GPUs > 0 && p.Request.GPUs > 0 && use.GPUs+use.Unmeasured+more > limit.GPUs+limitTolerance ||
		limit.CPUs > 0 && p.Request.CPUs > 0 && use.CPUs+p.Request.CPUs > limit.CPUs ||
		limit.MemMiB > 0 && p.Request.MemMiB > 0 && use.MemMiB+p.Request.MemMiB > limit.MemMiB
}

func (o *oracle) full() bool { return o.s.MaxStarts > 0 && len(o.plan.Starts) >= o.s.MaxStarts }

// charge puts a job down to its user and its array.
func (o *oracle) charge(p *Pending) {
	use := o.use[p.User]
	if !p.Parked {
		use.Jobs++
	}
	use.GPUs += o.counted(&p.Request)
	use.CPUs += p.Request.CPUs
	use.MemMiB += p.Request.MemMiB
	if p.Unproven {
		use.Unmeasured += float64(p.Request.GPUs) - o.counted(&p.Request)
	}
	o.use[p.User] = use
	if o.s.Rules.Fair {
		o.turn[p.User] += o.s.FairQuantum * o.fairWeight(&p.Request)
	}
	if p.ArrayLimit > 0 {
		o.pools[p.Array]++
	}
	o.joined[GroupName{p.User, p.Group}]++
}

// start gives the job its cards if there are any.
func (o *oracle) start(p *Pending) bool {
	now := o.s.Now
	grant, ok := o.place(p, o.now(), now, o.reservations)
	if !ok || o.limited(p) {
		return false
	}
	h := o.holding(p, grant, now)
	o.plan.Starts = append(o.plan.Starts, Start{Job: p.Job, Grant: grant})
	o.started, o.given = append(o.started, h), append(o.given, h)
	for _, r := range o.reservations {
		if r.binds(now, termOf(p.Run, p.RanBefore, p.Limit)) {
			r.machine.holders = append(r.machine.holders, h)
		}
	}
	o.charge(p)
	return true
}

func (o *oracle) holding(p *Pending, g job.Grant, from time.Time) *Allocation {
	return &Allocation{
		Job: p.Job, Cards: g.GPUs, BudgetMiB: CardBudgets(g, p.Request.VRAMMiB, o.s.Cards), Share: g.Share, Alone: g.Alone, Exclusive: g.Exclusive,
		CPUs: p.Request.CPUs, MemMiB: p.Request.MemMiB, Started: from, RanBefore: p.RanBefore, Run: p.Run, Limit: p.Limit,
	}
}

// awaited is a job that is to start later: its margin has to stay free until then.
func (o *oracle) awaited(p *Pending, g job.Grant, from time.Time) *Allocation {
	h := o.holding(p, g, from)
	if p.Request.VRAMMiB > 0 {
		o.margins[h] = o.s.Rules.MarginMiB
	}
	return h
}

// now is the machine at this moment.
func (o *oracle) now() oracleMachine {
	m := oracleMachine{holders: slices.Concat(o.running, o.started), closed: map[int]bool{}}
	for i := range o.s.Cards {
		c, r := &o.s.Cards[i], &o.s.Rules
		taken := slices.ContainsFunc(o.running, func(h *Allocation) bool { return slices.Contains(h.Cards, c.Index) })
		memory := r.MemThreshold > 0 && c.TotalMiB > 0 && float64(c.UsedMiB)/float64(c.TotalMiB) > r.MemThreshold
		load := r.LoadThreshold > 0 && (r.LoadAlways || !taken) && c.UtilPct/100 > r.LoadThreshold
		m.closed[c.Index] = out(c) || memory || load
	}
	return m
}

// out reports a card that takes no jobs.
func out(c *Card) bool { return c.Stale || c.Paused || c.Health != HealthOK }

// without is the machine at a moment when some jobs have left, and those are on it
// that have reservations until then.
func (o *oracle) without(gone func(*Allocation) bool, at time.Time) oracleMachine {
	m, now := oracleMachine{closed: map[int]bool{}}, o.now()
	for _, h := range slices.Concat(o.running, o.given) {
		if !gone(h) {
			m.holders = append(m.holders, h)
		}
	}
	for _, r := range o.reservations {
		if over := r.usual > 0 && !r.at.Add(r.usual).After(at); !r.claim && at.After(o.s.Now) && !r.at.After(at) && !over {
			m.holders = append(m.holders, r.job)
		}
	}
	for i := range o.s.Cards {
		c := &o.s.Cards[i]
		freed := slices.ContainsFunc(now.holders, func(h *Allocation) bool { return slices.Contains(h.Cards, c.Index) && gone(h) })
		m.closed[c.Index] = out(c) || now.closed[c.Index] && !freed
	}
	return m
}

// place finds the best cards for the job on a machine, beside the reservations.
func (o *oracle) place(p *Pending, m oracleMachine, from time.Time, kept []*oracleReservation) (job.Grant, bool) {
	r, length := &p.Request, termOf(p.Run, p.RanBefore, p.Limit)
	binding := slices.DeleteFunc(slices.Clone(kept), func(k *oracleReservation) bool { return !k.binds(from, length) })
	if r.GPUs > 0 && o.s.Unreadable != "" || !o.hostFits(m, r) {
		return job.Grant{}, false
	}
	for _, k := range binding {
		if !o.hostFits(k.machine, r) {
			return job.Grant{}, false
		}
	}
	var options []*Card
	for _, c := range o.candidates(r) {
		free := o.fits(m, c, r)
		for _, k := range binding {
			free = free && (!slices.Contains(k.job.Cards, c.Index) || o.fits(k.machine, c, r))
		}
		if free {
			options = append(options, c)
		}
	}
	if len(options) < r.GPUs {
		return job.Grant{}, false
	}
	alone := r.GPUs > 0 && o.undeclared(r)
	if whole := func(c *Card) bool { return !c.Part }; alone && r.IDs == "" && slices.ContainsFunc(options, whole) {
		options = slices.DeleteFunc(options, func(c *Card) bool { return c.Part })
	}
	g := job.Grant{Share: r.Share, Alone: alone, Exclusive: r.Exclusive}
	for _, c := range o.best(m, options, r) {
		g.GPUs, g.UUIDs = append(g.GPUs, c.Index), append(g.UUIDs, c.UUID)
		if !alone {
			g.BudgetMiB = max(g.BudgetMiB, o.budget(r, c))
		}
	}
	return g, true
}

func (o *oracle) hostFits(m oracleMachine, r *Request) bool {
	cpus, mem := r.CPUs, r.MemMiB
	for _, h := range m.holders {
		cpus, mem = cpus+h.CPUs, mem+h.MemMiB
	}
	host := o.s.Host
	return (host.CPUs == 0 || r.CPUs == 0 || cpus <= host.CPUs) && (host.MemMiB == 0 || r.MemMiB == 0 || mem <= host.MemMiB)
}

// on is what a card has: the jobs there, free memory and shares given out.
func (m oracleMachine) on(c *Card) (jobs []*Allocation, freeMiB int64, shares float64) {
	freeMiB = c.TotalMiB - c.ReservedMiB - c.ForeignMiB
	for _, h := range m.holders {
		for i, index := range h.Cards {
			if index != c.Index {
				continue
			}
			jobs, shares = append(jobs, h), shares+max(0, h.Share)
			if !h.Alone && i < len(h.BudgetMiB) {
				freeMiB -= max(0, h.BudgetMiB[i])
			}
		}
	}
	return jobs, freeMiB, shares
}

func (o *oracle) fits(m oracleMachine, c *Card, r *Request) bool {
	jobs, freeMiB, shares := m.on(c)
	single := func(h *Allocation) bool { return h.Alone || h.Exclusive }
	margin := int64(0)
	if r.VRAMMiB > 0 {
		margin = o.s.Rules.MarginMiB
	}
	for _, h := range jobs {
		margin = max(margin, o.margins[h])
	}
	switch {
	case m.closed[c.Index] || slices.ContainsFunc(jobs, single):
		return false
	case len(jobs) > 0 && (r.Exclusive || o.undeclared(r)):
		return false
	case o.undeclared(r):
		return c.IdleForeignMiB < o.s.Rules.IdleThresholdMiB
	case r.Share > 0 && shares+r.Share > 1+shareTolerance:
		return false
	}
	return freeMiB-margin >= o.budget(r, c)
}

// best is the best set of cards, of equals the one with the lowest numbers. A job
// that names its cards gets them in its own order.
func (o *oracle) best(m oracleMachine, options []*Card, r *Request) (best []*Card) {
	if len(options) == r.GPUs {
		return options
	}
	var try func(set, rest []*Card)
	try = func(set, rest []*Card) {
		if len(set) == r.GPUs {
			if best == nil || slices.Compare(o.worth(m, set, r), o.worth(m, best, r)) > 0 {
				best = slices.Clone(set)
			}
			return
		}
		for i, c := range rest {
			try(append(slices.Clone(set), c), rest[i+1:])
		}
	}
	try(nil, options)
	return best
}

// worth of a set of cards: how well they are connected, then how they fit.
func (o *oracle) worth(m oracleMachine, set []*Card, r *Request) []int64 {
	var links, numa, near, left, given, returns int64
	for i, a := range set {
		returns += a.ParkedMiB
		_, freeMiB, shares := m.on(a)
		if !o.undeclared(r) {
			freeMiB -= o.budget(r, a)
		}
		left, given = left+freeMiB, given+int64(math.Round(shares*1e6))
		for _, b := range set[:i] {
			links += int64(max(a.Links[b.Index], b.Links[a.Index]))
			near += int64(max(a.Near[b.Index], b.Near[a.Index]))
			if a.NUMA >= 0 && a.NUMA == b.NUMA {
				numa++
			}
		}
	}
	if o.s.Rules.Placement == Spread {
		return []int64{links, numa, near, left, -given, -returns}
	}
	return []int64{links, numa, near, -left, given, -returns}
}

// binds reports whether a job that starts then and lasts so long has to fit beside
// the one that the cards are reserved for.
func (r *oracleReservation) binds(from time.Time, l term) bool {
	switch r.strength {
	case byLimit: // only a time limit is believed
		return l.limit == 0 || from.Add(l.limit).After(r.at)
	case byLongest: // nor what is usual
		return l.atMost == 0 || from.Add(l.atMost).After(r.at)
	case byUsualKnown:
		return l.atMost == 0 || from.Add(l.usual).After(r.at)
	}
	return l.atMost > 0 && from.Add(l.usual).After(r.at)
}

// preempt takes GPUs from running jobs, as few as it can.
func (o *oracle) preempt(p *Pending, u urgency) bool {
	may := func(h *Allocation) bool { return o.leaving[h] || !h.Other && h.Preempt.Mode != "" }
	if _, ok := o.place(p, o.without(may, o.s.Now), o.s.Now, nil); !ok {
		return false
	}
	var victims []*Allocation
	for _, h := range o.running {
		if !o.outranks(p, h, u) {
			continue
		}
		if from := o.mayLeave(p, h); from.After(o.s.Now) {
			o.wake(from)
		} else {
			victims = append(victims, h)
		}
	}
	if len(victims) == 0 && !slices.ContainsFunc(o.running, func(h *Allocation) bool { return o.leaving[h] }) {
		return false
	}
	slices.SortStableFunc(victims, o.lessLoss)
	return o.claim(p, u, victims)
}

func (o *oracle) wake(at time.Time) {
	if at.After(o.s.Now) && (o.plan.Again.IsZero() || at.Before(o.plan.Again)) {
		o.plan.Again = at
	}
}

// outranks reports whether a running job gives way to a waiting one, once it has
// run for long enough.
func (o *oracle) outranks(p *Pending, h *Allocation, u urgency) bool {
	r, now := &o.s.Rules, o.s.Now
	parks := h.Preempt.Mode == Park || oracleSaves(h)
	protected := r.MaxBypass > 0 && h.Waited >= r.MaxBypass && now.Before(h.Started.Add(boostLeast))
	switch {
	case h.Other || h.Preempt.Mode == "" || o.leaving[h] || protected || !o.parkingFits(h):
		return false
	case o.lends && !o.borrowed(h):
		return false
	case !o.lends && p.Request.GPUs > 0 && p.Priority >= h.Priority && o.borrowed(h):
		return true
	case u != ordinary && parks:
		return true
	case p.Priority != h.Priority:
		return p.Priority > h.Priority
	case !parks || !o.slices() && r.Policy != LAS:
		return false
	}
	own, _ := o.rank(p)
	if o.slices() && p.Request.GPUs > 1 && !oracleKeeps(&p.Preempt) {
		own = classLong
	}
	its := o.classOf(h)
	if o.slices() && own == classLong && its == classLong {
		return p.Rank < h.Rank || p.Rank == h.Rank && p.Seq < h.Seq
	}
	return own < its
}

// ran is how long this run has lasted, without what resuming cost.
func (o *oracle) ran(h *Allocation) time.Duration {
	if h.Started.IsZero() {
		return 0
	}
	ran := o.s.Now.Sub(h.Started)
	if h.RanBefore > 0 {
		ran -= h.Preempt.ResumeTime
	}
	return max(0, ran)
}

// classOf is the service class of a running job.
func (o *oracle) classOf(h *Allocation) serviceClass {
	had := h.RanBefore + o.ran(h)
	if o.s.Rules.Policy == LAS {
		return oracleLAS(had, o.weight(h))
	}
	if !o.slices() {
		return 0
	}
	c := oracleClass(had)
	if c > classBoosted && h.Waited >= oracleLongWait(h.RanBefore) && o.s.Now.Before(h.Started.Add(o.boost(h))) {
		return classBoosted
	}
	return c
}

func (o *oracle) boost(h *Allocation) time.Duration {
	if h.Submitted.IsZero() {
		return boostLeast
	}
	return max(boostLeast, (h.Started.Sub(h.Submitted)-h.RanBefore)/boostPart)
}

func (o *oracle) weight(h *Allocation) float64 {
	return oracleWeight(len(h.Cards), max(0, h.Share), h.CPUs)
}

// mayLeave is from when on a running job gives way to a waiting one. The more cards
// it has the longer it runs before.
func (o *oracle) mayLeave(p *Pending, h *Allocation) time.Time {
	least := o.s.Rules.MinRun
	if least <= 0 {
		least = minRun
	}
	least = max(least, minRunCosts*(h.Preempt.StopTime+h.Preempt.ResumeTime))
	own, gpus := o.weight(h), oracleWeight(p.Request.GPUs, p.Request.Share, p.Request.CPUs)
	if gpus > 0 && own > gpus {
		least = time.Duration(float64(least) * own / gpus)
	}
	if oracleSaves(h) && h.Preempt.SavesEvery > 0 {
		first := h.Preempt.SavesEvery
		if h.RanBefore > 0 {
			first += h.Preempt.ResumeTime
		}
		least = max(least, first)
	}
	return h.Started.Add(least)
}

// lessLoss orders victims: the least loss first.
func (o *oracle) lessLoss(a, b *Allocation) int {
	lost := func(h *Allocation) time.Duration {
		switch {
		case h.Preempt.Mode == Requeue && !h.Preempt.Saves:
			return o.ran(h)
		case oracleSaves(h) && h.Preempt.SavesEvery > 0:
			return o.ran(h) - o.ran(h)/h.Preempt.SavesEvery*h.Preempt.SavesEvery
		}
		return 0
	}
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(lost(a), lost(b)), cmp.Compare(o.classOf(b), o.classOf(a)),
		cmp.Compare(o.weight(a), o.weight(b)), cmp.Compare(o.returns(a), o.returns(b)), cmp.Compare(b.Rank, a.Rank), cmp.Compare(b.Seq, a.Seq), cmp.Compare(a.Job, b.Job))
}

// parkingFits reports whether host memory is left to park these too.
func (o *oracle) parkingFits(more ...*Allocation) bool {
	parks := func(h *Allocation) bool { return h.Preempt.Mode == Park }
	if o.s.ParkMiB == 0 || !slices.ContainsFunc(more, parks) {
		return true
	}
	left := o.s.ParkMiB
	for _, h := range o.running {
		if parks(h) && (o.leaving[h] && !h.BeingPreempted || slices.Contains(more, h)) {
			left -= h.Preempt.MemMiB
		}
	}
	if left < 0 {
		return false
	}
	for user, own := range o.s.ParkOfMiB {
		for _, h := range o.running {
			if h.User == user && parks(h) && (o.leaving[h] && !h.BeingPreempted || slices.Contains(more, h)) {
				own -= h.Preempt.MemMiB
			}
		}
		if own < 0 && slices.ContainsFunc(more, func(h *Allocation) bool { return h.User == user && parks(h) }) {
			return false
		}
	}
	return true
}

// returns is how much is bound to come back to the cards of a job that would be
// parked too.
func (o *oracle) returns(h *Allocation) (mib int64) {
	for i := range o.s.Cards {
		if h.Preempt.Mode == Park && slices.Contains(h.Cards, o.s.Cards[i].Index) {
			mib += o.s.Cards[i].ParkedMiB
		}
	}
	return mib
}

// claim preempts as few of the victims as the job needs beside what is being
// vacated anyway, and gives it the cards as soon as they are free.
func (o *oracle) claim(p *Pending, u urgency, victims []*Allocation) bool {
	try := func(list []*Allocation) (job.Grant, bool) {
		gone := func(h *Allocation) bool { return o.leaving[h] || slices.Contains(list, h) }
		return o.place(p, o.without(gone, o.s.Now), o.s.Now, o.others(o.s.Now))
	}
	n := 0
	for ; n <= len(victims); n++ {
		if _, ok := try(victims[:n]); ok {
			break
		}
	}
	if n > len(victims) {
		return false
	}
	chosen := slices.Clone(victims[:n])
	for i := len(chosen) - 1; i >= 0; i-- {
		if spared := slices.Delete(slices.Clone(chosen), i, i+1); true {
			if _, ok := try(spared); ok {
				chosen = spared
			}
		}
	}
	if !o.parkingFits(chosen...) {
		return false
	}
	grant, _ := try(chosen)
	host := o.hostFits(o.now(), &p.Request)
	for _, h := range chosen {
		o.leaving[h] = true
		o.plan.Victims = append(o.plan.Victims, Victim{Job: h.Job, For: p.Job, Mode: h.Preempt.Mode})
	}
	machine := o.without(func(h *Allocation) bool { return o.leaving[h] }, o.s.Now)
	at := o.s.Now
	for _, h := range o.running {
		if needed := !host || slices.ContainsFunc(h.Cards, func(i int) bool { return slices.Contains(grant.GPUs, i) }); o.leaving[h] && needed {
			at = latest(at, o.leaves(p, h, u))
		}
	}
	held := o.awaited(p, grant, at)
	machine.holders = append(machine.holders, held)
	for _, r := range o.reservations {
		r.machine.holders = append(r.machine.holders, held)
	}
	o.given = append(o.given, held)
	o.reservations = append(o.reservations, &oracleReservation{job: held, at: at, strength: byLongest, claim: true, machine: machine})
	o.plan.Reservations = append(o.plan.Reservations, Reservation{Job: p.Job, Cards: grant.GPUs, At: at})
	o.charge(p)
	return true
}

// others are the reservations that a job has to respect which starts at a moment, on
// a machine that has all on it that start until then.
func (o *oracle) others(at time.Time) []*oracleReservation {
	return slices.DeleteFunc(slices.Clone(o.reservations), func(r *oracleReservation) bool {
		return r.claim || at.After(o.s.Now) && !r.at.After(at)
	})
}

// leaves is when a running job is expected to be off its cards.
func (o *oracle) leaves(p *Pending, h *Allocation, u urgency) time.Time {
	now := o.s.Now
	switch {
	case h.BeingPreempted:
		return latest(now, h.FreeBy)
	case o.leaving[h]:
		return now.Add(h.Preempt.StopTime)
	case o.outranks(p, h, u):
		return latest(now, o.mayLeave(p, h)).Add(h.Preempt.StopTime)
	case h.Started.IsZero():
		return now.Add(otherBerthsEstimate)
	}
	return now.Add(o.rest(h))
}

// rest is how much longer a job is expected to run.
func (o *oracle) rest(h *Allocation) time.Duration {
	ran := o.ran(h)
	rest := h.Run.Left(h.RanBefore+ran, 0).Mid
	if h.Limit > 0 {
		rest = min(rest, max(0, h.Limit-ran))
	}
	return rest
}

// parks reports whether jobs take turns by being parked.
func (o *oracle) parks() bool {
	return (o.slices() || o.s.Rules.Policy == LAS) &&
		slices.ContainsFunc(o.running, func(h *Allocation) bool { return h.Preempt.Mode == Park || oracleSaves(h) })
}

// oracleSaves reports that a job is ended and run again, and saves its own work.
func oracleSaves(h *Allocation) bool { return h.Preempt.Mode == Requeue && h.Preempt.Saves }

// oracleKeeps reports that a job gives way without losing much.
func oracleKeeps(p *Preempt) bool { return p.Mode == Park || p.Mode == Requeue && p.Saves }

// depth is for how many jobs in their ordinary turn GPUs are reserved.
func (o *oracle) depth() int {
	switch o.s.Rules.Policy {
	case Conservative, Backfill, "", LAS:
		if o.parks() {
			return reservationsMost
		}
	}
	switch o.s.Rules.Policy {
	case Backfill, "":
		return 1
	case Conservative:
		return reservationsMost
	}
	return 0
}

// reserve reserves GPUs for a job at the first moment at which it is expected to fit.
func (o *oracle) reserve(p *Pending, u urgency) bool {
	if o.overdueKept {
		u = ordinary // one at a time
	}
	strength := byUsual
	switch {
	case u == overdue:
		strength = byUsualKnown
	case u == longOverdue:
		strength = byLimit
	case o.reserved >= o.depth():
		return false
	case o.parks():
		strength = byLongest
	}
	everybody := func(*Allocation) bool { return true }
	if _, ok := o.place(p, o.without(everybody, o.s.Now), o.s.Now, nil); !ok {
		return false // it waits for something other than jobs
	}
	if u == ordinary {
		o.reserved++
	}
	r := o.foresee(p, u, strength == byLongest)
	if r == nil {
		return false
	}
	r.strength = strength
	o.overdueKept = o.overdueKept || u != ordinary
	o.reservations = append(o.reservations, r)
	o.plan.Reservations = append(o.plan.Reservations, Reservation{Job: p.Job, Cards: r.job.Cards, At: r.at, ByLimit: strength == byLimit})
	return u == ordinary && o.reserved < o.depth()
}

// foresee is the first moment at which the job is expected to fit: now, or when
// somebody leaves.
func (o *oracle) foresee(p *Pending, u urgency, soonOnly bool) *oracleReservation {
	type departure struct {
		h  *Allocation
		at time.Time
	}
	var list []departure
	for _, h := range o.running {
		list = append(list, departure{h, o.leaves(p, h, u)})
	}
	for _, h := range o.given {
		list = append(list, departure{h, latest(o.s.Now, h.Started).Add(o.rest(h))})
	}
	for _, r := range o.reservations {
		if !r.claim && r.usual > 0 {
			list = append(list, departure{nil, r.at.Add(r.usual)})
		}
	}
	if soonOnly {
		list = slices.DeleteFunc(list, func(d departure) bool { return d.at.After(o.s.Now.Add(reservationSoon)) })
	}
	slices.SortStableFunc(list, func(a, b departure) int { return a.at.Compare(b.at) })
	most := len(list)
	if len(o.reservations) > 0 && u == ordinary {
		most = min(most, reservationMoments)
	}
	for n := range most + 1 {
		at, left := o.s.Now, n
		if n > 0 {
			at = list[n-1].at
			for left < len(list) && list[left].at.Equal(at) {
				left++
			}
		}
		gone := func(h *Allocation) bool {
			return slices.ContainsFunc(list[:left], func(d departure) bool { return d.h == h })
		}
		machine := o.without(gone, at)
		if grant, ok := o.place(p, machine, at, o.others(at)); ok {
			h := o.awaited(p, grant, at)
			machine.holders = append(machine.holders, h)
			return &oracleReservation{job: h, at: at, usual: termOf(p.Run, p.RanBefore, p.Limit).usual, machine: machine}
		}
	}
	return nil
}

// again is when time alone will change something.
func (o *oracle) again() time.Time {
	if o.s.Queue.Len() <= len(o.plan.Starts) {
		return time.Time{}
	}
	r, now := &o.s.Rules, o.s.Now
	for _, p := range o.s.Queue.First(o.s.Queue.Len()) {
		if c, _ := o.rank(&p); o.slices() && c > classBoosted {
			o.wake(p.Since.Add(oracleLongWait(p.RanBefore)))
		}
	}
	for _, oldest := range NewSnapshot(o.s).Oldest {
		if r.MaxBypass > 0 {
			o.wake(oldest.Since.Add(r.MaxBypass))
			o.wake(oldest.Since.Add(2 * r.MaxBypass))
		}
	}
	for _, h := range o.running {
		if h.Other || h.Preempt.Mode == "" {
			continue
		}
		if r.MaxBypass > 0 && h.Waited >= r.MaxBypass {
			o.wake(h.Started.Add(boostLeast))
		}
		if _, until := h.class(r, now); h.Preempt.Mode == Park || oracleSaves(h) {
			o.wake(until)
		}
	}
	for _, k := range o.reservations {
		if !k.claim {
			o.wake(k.at)
		}
	}
	return o.plan.Again
}
