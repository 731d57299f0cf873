package sched

import (
	"cmp"
	"strings"
	"time"
)

// Pending is one queued job.
type Pending struct {
	Job, User string
	Priority  int   // higher first
	Rank, Seq int64 // then lower Rank, then lower Seq
	Request   Request

	// Pool names the jobs of which at most PoolLimit run at a time: the tasks
	// of an array. Without a limit a pool means nothing and is forgotten.
	Pool      string
	PoolLimit int

	Since  time.Time     // since when it waits: its submission, the end of what kept it, or when it was set aside
	Served time.Duration // what it ran before without losing it
	Run    Span          // how long it is expected to run, what it ran before included
	Limit  time.Duration // after which a run is ended; 0: none
}

// Queue is an ordered index of the pending jobs. Jobs of one user, priority,
// request and limited pool are one group, so that a decision looks at kinds
// of job and not at each of them. It is not safe for concurrent use.
type Queue struct {
	jobs   map[string]member
	groups map[groupKey]*group
	kins   map[Request]*kin
	lines  map[string]*line // by user; none empty
	order  list[entry]      // every job
}

// line is the part of the queue that is one user's. Users are kept apart
// because how often each had a turn may decide who comes next.
type line struct {
	user  string
	heads list[head] // the groups, ordered by their first job
}

type groupKey struct {
	user      string
	priority  int
	request   Request
	pool      string // empty without a limit
	poolLimit int
}

// group holds jobs that differ in nothing but their place in the order. It is
// never empty.
type group struct {
	groupKey
	kin  *kin
	line *line
	jobs list[entry]
}

// kin stands for all requests that differ in amounts only. A pointer to it is
// a cheaper key than the request, which a decision over many kinds needs.
type kin struct {
	request Request
	groups  int
}

// entry is what orders a job.
type entry struct {
	job       string
	priority  int
	rank, seq int64
}

type member struct {
	group *group
	entry entry
}

// head is a group under one of its jobs. What a decision looks at to pass the
// group over lies here and not behind a pointer: among a hundred thousand
// kinds, following one for each would be most of the work.
type head struct {
	entry
	amounts
	kin   *kin
	group *group
}

func (g *group) head(e entry) head { return head{e, g.request.amounts(), g.kin, g} }

// compareEntries is the order of the queue. The id decides last, so that the
// order is total whatever the caller gave.
func compareEntries(a, b entry) int {
	switch {
	case a.priority != b.priority:
		return cmp.Compare(b.priority, a.priority)
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
		jobs:   map[string]member{},
		groups: map[groupKey]*group{},
		kins:   map[Request]*kin{},
		lines:  map[string]*line{},
		order:  list[entry]{compare: compareEntries},
	}
}

// Add puts a job in the queue. It replaces a job with the same id.
func (q *Queue) Add(p Pending) {
	q.Remove(p.Job)
	e := entry{job: p.Job, priority: p.Priority, rank: p.Rank, seq: p.Seq}
	key := groupKey{user: p.User, priority: p.Priority, request: p.Request}
	if p.PoolLimit > 0 {
		key.pool, key.poolLimit = p.Pool, p.PoolLimit
	}
	g := q.groupOf(key)
	old, hadOne := g.jobs.at(place{})
	g.jobs.insert(e)
	g.moveHead(old, hadOne)
	q.order.insert(e)
	q.jobs[p.Job] = member{group: g, entry: e}
}

// Remove takes a job out and reports whether it was there.
func (q *Queue) Remove(job string) bool {
	m, found := q.jobs[job]
	if !found {
		return false
	}
	delete(q.jobs, job)
	g := m.group
	old, hadOne := g.jobs.at(place{})
	if !g.jobs.remove(m.entry) || !q.order.remove(m.entry) {
		panic("bug: job " + job + " is not in its group")
	}
	g.moveHead(old, hadOne)
	if g.jobs.length == 0 {
		q.dropGroup(g)
	}
	return true
}

// moveHead keeps the line true after a group's jobs changed; old is what the
// group began with before.
func (g *group) moveHead(old entry, hadOne bool) {
	first, hasOne := g.jobs.at(place{})
	if hadOne && hasOne && first == old {
		return
	}
	if hadOne {
		g.line.heads.remove(g.head(old))
	}
	if hasOne {
		g.line.heads.insert(g.head(first))
	}
}

func (q *Queue) groupOf(key groupKey) *group {
	if g, found := q.groups[key]; found {
		return g
	}
	shape := key.request.kin()
	k, found := q.kins[shape]
	if !found {
		k = &kin{request: shape}
		q.kins[shape] = k
	}
	k.groups++
	l, found := q.lines[key.user]
	if !found {
		l = &line{user: key.user, heads: list[head]{compare: func(a, b head) int { return compareEntries(a.entry, b.entry) }}}
		q.lines[key.user] = l
	}
	g := &group{groupKey: key, kin: k, line: l, jobs: list[entry]{compare: compareEntries}}
	q.groups[key] = g
	return g
}

func (q *Queue) dropGroup(g *group) {
	delete(q.groups, g.groupKey)
	if g.kin.groups--; g.kin.groups == 0 {
		delete(q.kins, g.kin.request)
	}
	if g.line.heads.length == 0 {
		delete(q.lines, g.user)
	}
}

// member looks a job up; a state may come without a queue.
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
	return m.group.pending(m.entry), true
}

func (g *group) pending(e entry) Pending {
	return Pending{
		Job: e.job, User: g.user, Priority: e.priority, Rank: e.rank, Seq: e.seq,
		Request: g.request, Pool: g.pool, PoolLimit: g.poolLimit,
	}
}

// Len counts the queued jobs.
func (q *Queue) Len() int { return len(q.jobs) }

// First gives the first n jobs in the order of priority, rank and sequence,
// or all where there are fewer. Under fair share Order is the order.
func (q *Queue) First(n int) []Pending {
	n = min(max(n, 0), len(q.jobs))
	jobs := make([]Pending, 0, n)
	for p := (place{}); len(jobs) < n; p = q.order.after(p) {
		e, _ := q.order.at(p)
		jobs = append(jobs, q.jobs[e.job].group.pending(e))
	}
	return jobs
}

// Position is a job's place in the order of First, the first being 1; 0 if it
// is not queued. Under fair share the Position of a State is its place.
func (q *Queue) Position(job string) int {
	m, found := q.jobs[job]
	if !found {
		return 0
	}
	return 1 + q.order.before(m.entry)
}

// SetRules tells the queue the rules by which it orders.
func (q *Queue) SetRules(Rules) {}

// Tick tells the queue the time.
func (q *Queue) Tick(time.Time) {}
