package sched

import (
	"cmp"
	"strings"
	"time"
)

// Pending is one queued job.
type Pending struct {
	Job      string `json:"job"`
	User     string `json:"user,omitempty"`
	Priority int    `json:"priority,omitempty"` // higher first
	// then lower Rank, then lower Seq
	Rank    int64   `json:"rank,omitempty"`
	Seq     int64   `json:"seq,omitempty"`
	Request Request `json:"request"`

	// Array names jobs of which at most ArrayLimit run at a time: the tasks of an
	// array. Without a limit it is ignored.
	Array      string `json:"pool,omitempty"`
	ArrayLimit int    `json:"pool_limit,omitempty"`

	// Group is which of its user's groups the job is in. The State says whether that
	// is limited or paused.
	Group string `json:"group,omitempty"`

	Submitted time.Time     `json:"submitted,omitzero"`  // zero: not known
	Since     time.Time     `json:"since,omitzero"`      // when this wait began: submission, the end of a hold or dependency, or its preemption
	RanBefore time.Duration `json:"served_ns,omitempty"` // how long it ran before without losing the work
	Run       Estimate      `json:"run,omitzero"`        // how long it is expected to run in all, earlier service included
	Limit     time.Duration `json:"limit_ns,omitempty"`  // time limit of an attempt; 0: none
	Preempt   Preempt       `json:"aside,omitzero"`      // whether and how it can be preempted once it runs

	// Unproven is a share of a GPU for which no job like it vouches: none was
	// measured, or one took more than it asked for.
	Unproven bool `json:"unproven,omitempty"`
	Parked   bool `json:"parked,omitempty"` // it was parked, and counts as one of its user's jobs already
}

// Queue is an ordered index of the waiting jobs. Jobs of one user, priority,
// request, limited array and Group form one class, so that a decision looks at each class
// and not at each job. It is not safe for concurrent use.
type Queue struct {
	rules    Rules
	jobs     map[string]member
	classes  map[classKey]*class
	families tally[family]
	shapes   tally[shape]          // of the classes
	sizes    tally[shape]          // the same without the time
	heads    list[head]            // all classes, ordered by their first job
	byUser   map[string]*userQueue // by user; none empty
	users    []*userQueue          // the same in a list
	aged     []*userQueue          // those that changed since the last Tick
	waits    list[wait]            // of the users' oldest jobs
	order    list[entry]           // every job
	boosts   list[boost]           // upcoming boosts, by time
}

type classKey struct {
	user         string
	priority     int
	request      Request
	array        string // empty without a limit
	arrayLimit   int
	group        string // the user's group
	term         term
	unproven     bool
	parked       bool
	fixed        bool // it is a gang that cannot give way
	neverBorrows bool // it may not run beyond its user's share
}

// class holds jobs that differ only in their place in the order. It is never empty.
type class struct {
	classKey
	shape     *counted[shape]
	size      *counted[shape]
	userQueue *userQueue
	jobs      list[entry]
}

// entry is what orders a job.
type entry struct {
	job       string
	priority  int
	service   serviceClass // goes before fair share
	policyKey float64      // the policy's order, after fair share: lower first
	rank, seq int64
}

type member struct {
	class *class
	entry entry

	submitted time.Time
	since     time.Time
	served    time.Duration
	run       Estimate
	preempt   Preempt
}

// head is a class under one of its jobs. The fields that a decision needs to skip
// the class are here and not behind a pointer: with a hundred thousand of them,
// following one for each would be most of the work.
type head struct {
	entry
	amounts
	family      *counted[family]
	shapeNumber int // by number: the class of the request
	sizeNumber  int // and without the time
	userQueue   *userQueue
	class       *class
}

func (g *class) head(e entry) head {
	return head{e, g.shape.value.amounts, g.shape.value.family, g.shape.number, g.size.number, g.userQueue, g}
}

// compareEntries is the order of the queue. The id decides last, so that the
// order is total whatever the caller gave.
func compareEntries(a, b entry) int { return a.compare(&b) }

func compareHeads(a, b head) int { return a.entry.compare(&b.entry) }

// compare is compareEntries without the copies, which the walk through a queue
// would make at each step.
func (a *entry) compare(b *entry) int {
	switch {
	case a.priority != b.priority:
		return cmp.Compare(b.priority, a.priority)
	case a.service != b.service:
		return cmp.Compare(a.service, b.service)
	case a.policyKey != b.policyKey:
		return cmp.Compare(a.policyKey, b.policyKey)
	case a.rank != b.rank:
		return cmp.Compare(a.rank, b.rank)
	case a.seq != b.seq:
		return cmp.Compare(a.seq, b.seq)
	}
	return strings.Compare(a.job, b.job)
}

// NewQueue is an empty queue.
func NewQueue() *Queue {
	return &Queue{
		rules:    DefaultRules(),
		jobs:     map[string]member{},
		classes:  map[classKey]*class{},
		families: newTally[family](),
		shapes:   newTally[shape](),
		sizes:    newTally[shape](),
		heads:    list[head]{compare: compareHeads},
		byUser:   map[string]*userQueue{},
		waits:    list[wait]{compare: compareWaits},
		order:    list[entry]{compare: compareEntries},
		boosts:   list[boost]{compare: compareBoosts},
	}
}

// Add puts a job in the queue. It replaces a job with the same id.
func (q *Queue) Add(p Pending) {
	q.Remove(p.Job)
	class, size := q.rules.rank(&p)
	e := entry{job: p.Job, priority: p.Priority, service: class, policyKey: size, rank: p.Rank, seq: p.Seq}
	key := classKey{user: p.User, priority: p.Priority, request: p.Request, group: p.Group, term: termOf(p.Run, p.RanBefore, p.Limit), unproven: p.Unproven, parked: p.Parked, fixed: p.holdsFast(), neverBorrows: q.rules.neverBorrows(&p)}
	if p.ArrayLimit > 0 {
		key.array, key.arrayLimit = p.Array, p.ArrayLimit
	}
	q.put(member{class: q.classOf(key), entry: e, submitted: p.Submitted, since: p.Since, served: p.RanBefore, run: p.Run, preempt: p.Preempt})
}

// put adds a job to every ordered index.
func (q *Queue) put(m member) {
	g := m.class
	old, hadOne := g.jobs.at(listPos{})
	g.jobs.insert(m.entry)
	q.moveHead(g, old, hadOne)
	g.userQueue.ages.insert(ageOf(m.entry))
	q.age(g.userQueue)
	q.order.insert(m.entry)
	q.jobs[m.entry.job] = m
	if b, will := q.rules.boostOf(&m); will {
		q.boosts.insert(b)
	}
}

// Remove takes a job out and reports whether it was there.
func (q *Queue) Remove(job string) bool {
	m, found := q.jobs[job]
	if !found {
		return false
	}
	q.take(m)
	if m.class.jobs.length == 0 {
		q.dropClass(m.class)
	}
	return true
}

// take undoes put. The class stays, even when it is empty.
func (q *Queue) take(m member) {
	delete(q.jobs, m.entry.job)
	g := m.class
	old, hadOne := g.jobs.at(listPos{})
	if !g.jobs.remove(m.entry) || !q.order.remove(m.entry) || !g.userQueue.ages.remove(ageOf(m.entry)) {
		panic("bug: job " + m.entry.job + " is not in its class")
	}
	q.moveHead(g, old, hadOne)
	q.age(g.userQueue)
	if b, will := q.rules.boostOf(&m); will {
		q.boosts.remove(b)
	}
}

// moveHead keeps the indexes true after a class's jobs changed; old is the class's
// former head.
func (q *Queue) moveHead(g *class, old entry, hadOne bool) {
	first, hasOne := g.jobs.at(listPos{})
	if hadOne && hasOne && first == old {
		return
	}
	if hadOne {
		g.userQueue.heads.remove(g.head(old))
		q.heads.remove(g.head(old))
	}
	if hasOne {
		g.userQueue.heads.insert(g.head(first))
		q.heads.insert(g.head(first))
	}
}

func (q *Queue) classOf(key classKey) *class {
	if g, found := q.classes[key]; found {
		return g
	}
	of := shape{q.families.count(familyOf(key.request, key.fixed)), key.request.amounts()}
	of.term = key.term
	g := &class{
		classKey: key, shape: q.shapes.count(of), size: q.sizes.count(of.size()),
		userQueue: q.userQueueOf(key.user), jobs: list[entry]{compare: compareEntries},
	}
	q.classes[key] = g
	return g
}

func (q *Queue) dropClass(g *class) {
	delete(q.classes, g.classKey)
	q.sizes.discount(g.size)
	q.shapes.discount(g.shape)
	q.families.discount(g.shape.value.family)
	if g.userQueue.ages.length == 0 {
		q.dropUserQueue(g.userQueue)
	}
}

// Has reports whether the job is in the queue.
func (q *Queue) Has(job string) bool {
	_, queued := q.member(job)
	return queued
}

// member finds a job; a State may have no queue.
func (q *Queue) member(job string) (member, bool) {
	if q == nil {
		return member{}, false
	}
	m, found := q.jobs[job]
	return m, found
}

// Get gives a queued job.
func (q *Queue) Get(job string) (Pending, bool) {
	m, found := q.member(job)
	if !found {
		return Pending{}, false
	}
	return m.pending(), true
}

// pending is the job as it was added.
func (m *member) pending() Pending {
	p := m.class.pending(m.entry)
	p.Submitted, p.Since, p.RanBefore, p.Run, p.Limit, p.Preempt = m.submitted, m.since, m.served, m.run, m.class.term.limit, m.preempt
	return p
}

// pending is the job as far as its class and entry say.
func (g *class) pending(e entry) Pending {
	return Pending{
		Job: e.job, User: g.user, Priority: e.priority, Rank: e.rank, Seq: e.seq,
		Request: g.request, Array: g.array, ArrayLimit: g.arrayLimit, Group: g.group, Unproven: g.unproven, Parked: g.parked,
	}
}

// Len counts the queued jobs.
func (q *Queue) Len() int { return len(q.jobs) }

// First gives the first n jobs by priority, rank and sequence, or all if there are
// fewer. Under fair share use Order.
func (q *Queue) First(n int) []Pending {
	n = min(max(n, 0), len(q.jobs))
	jobs := make([]Pending, 0, n)
	for p := (listPos{}); len(jobs) < n; p = q.order.after(p) {
		e, _ := q.order.at(p)
		m := q.jobs[e.job]
		jobs = append(jobs, m.pending())
	}
	return jobs
}

// Position is a job's place in First, starting at 1; 0 if it is not queued. Under
// fair share use the Position of a State.
func (q *Queue) Position(job string) int {
	m, found := q.jobs[job]
	if !found {
		return 0
	}
	return 1 + q.order.before(m.entry)
}

// SetRules sets the rules that order the queue, and sorts it again if they order
// differently.
func (q *Queue) SetRules(rules Rules) {
	same := q.rules.Policy == rules.Policy && q.rules.Slice == rules.Slice && q.rules.BorrowTime == rules.BorrowTime
	if same {
		q.rules = rules
		return
	}
	members := make([]member, 0, len(q.jobs))
	for p, ok := (listPos{}), q.order.length > 0; ok; {
		e, _ := q.order.at(p)
		members = append(members, q.jobs[e.job])
		p = q.order.after(p)
		_, ok = q.order.at(p)
	}
	for _, m := range members {
		q.take(m)
	}
	q.rules = rules
	for _, m := range members {
		p, key := m.pending(), m.class.classKey
		m.entry.service, m.entry.policyKey = rules.rank(&p)
		if key.neverBorrows = rules.neverBorrows(&p); key != m.class.classKey {
			m.class = q.classOf(key)
		}
		q.put(m)
	}
	for _, m := range members {
		if left := m.class; left.jobs.length == 0 && q.classes[left.classKey] == left {
			q.dropClass(left)
		}
	}
}

// boost is when a job becomes boosted.
type boost struct {
	at  time.Time
	job string
}

func compareBoosts(a, b boost) int { return cmp.Or(a.at.Compare(b.at), strings.Compare(a.job, b.job)) }
