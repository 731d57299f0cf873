package sched

import "cmp"

// frontBound is how many jobs in front are laid out. It bounds the cost of an
// answer, which is vague that far ahead anyway.
const frontBound = 16_384

// ahead is a job in front, reduced to what a layout needs: a long queue has
// thousands.
type ahead struct {
	entry *entry
	class *class
	run   Estimate
	left  Estimate // how long it lasts; Mid is 0 without an estimate
	ask   *ask
	kept  bool   // it has a reservation, so no job overtakes it
	next  *ahead // of the same user
}

// inFront gives the jobs in front of one in the order of Order, or the first of
// them if there are too many, and its position; of no job, the whole queue. It is
// asked for one job of a long queue, so it visits the jobs themselves and not groups.
func inFront(s *State, job string) (front []*ahead, position int) {
	q := s.Queue
	f := fronts{state: s, job: job, lists: map[*userQueue]*turns{}}
	for _, late := range q.overdue(s) {
		if f.late == nil {
			f.late = map[string]bool{}
		}
		m := late.member
		f.late[m.entry.job] = true
		f.turns(m.class.userQueue).account.charge(s, m.class)
		if f.see(newAhead(&m, &m.entry)) {
			return f.front, f.position
		}
	}
	if s.Rules.Fair {
		f.takeTurns()
	} else {
		f.follow()
	}
	return f.front, f.position
}

// fronts is a walk to a job through those in front of it.
type fronts struct {
	state    *State
	job      string
	late     map[string]bool // overdue jobs: they came up already
	lists    map[*userQueue]*turns
	front    []*ahead
	position int
}

// turns is a user's remaining jobs.
type turns struct {
	account     account
	first, last *ahead
}

// before reports whether the user's next job goes before another's. Usually the
// usage decides.
func (t *turns) before(o *turns) bool {
	a, b := t.first.entry, o.first.entry
	if t.account.turn != o.account.turn && a.priority == b.priority && a.service == b.service && t.account.rules.inTurn(a.service) {
		return t.account.turn < o.account.turn
	}
	return orderKey{&t.account, a}.compare(orderKey{&o.account, b}) < 0
}

func (f *fronts) turns(l *userQueue) *turns {
	t := f.lists[l]
	if t == nil {
		t = &turns{account: newAccount(f.state, l.user)}
		f.lists[l] = t
	}
	return t
}

func newAhead(m *member, e *entry) *ahead {
	return &ahead{entry: e, class: m.class, run: m.run, left: m.left()}
}

// see adds the next job, and reports whether it is the one.
func (f *fronts) see(a *ahead) bool {
	if f.position++; a.entry.job == f.job {
		return true
	}
	if len(f.front) < frontBound {
		f.front = append(f.front, a)
	}
	return false
}

// follow goes through the queue's own order, without fair share.
func (f *fronts) follow() {
	f.each(cmp.Or(f.state.Queue.Position(f.job), f.state.Queue.Len()), f.see)
}

// each visits the first jobs of the queue in its own order until visit returns
// false.
func (f *fronts) each(most int, visit func(*ahead) bool) {
	q := f.state.Queue
	all := make([]ahead, 0, most) // in one go: one by one they cost more than all the rest
	for _, chunk := range q.order.chunks {
		for i := range chunk[:min(len(chunk), most-len(all))] {
			e := &chunk[i]
			m := q.jobs[e.job]
			all = append(all, ahead{entry: e, class: m.class, run: m.run, left: m.left()})
			if !f.late[e.job] && visit(&all[len(all)-1]) {
				return
			}
		}
	}
}

// gather collects each user's jobs.
func (f *fronts) gather() {
	f.each(f.state.Queue.Len(), func(a *ahead) bool {
		t := f.turns(a.class.userQueue)
		if t.first == nil {
			t.first = a
		} else {
			t.last.next = a
		}
		t.last = a
		return false
	})
}

// takeTurns merges the users' jobs. Only the list on top of the heap changes from
// one job to the next, and only to a later place.
func (f *fronts) takeTurns() {
	f.gather()
	heap := make([]*turns, 0, len(f.lists))
	for _, t := range f.lists {
		if t.first != nil {
			heap = append(heap, t)
		}
	}
	for i := len(heap)/2 - 1; i >= 0; i-- {
		sinkTurns(heap, i)
	}
	for len(heap) > 0 {
		top := heap[0]
		if f.see(top.first) {
			return
		}
		top.account.charge(f.state, top.first.class)
		if top.first = top.first.next; top.first == nil {
			heap[0] = heap[len(heap)-1]
			heap = heap[:len(heap)-1]
		}
		sinkTurns(heap, 0)
	}
}

// sinkTurns moves a list down the heap to its place.
func sinkTurns(heap []*turns, i int) {
	for {
		first := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(heap); child++ {
			if heap[child].before(heap[first]) {
				first = child
			}
		}
		if first == i {
			return
		}
		heap[i], heap[first] = heap[first], heap[i]
		i = first
	}
}
