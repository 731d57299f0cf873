package sched

// walker goes through a queue in order, one job of each class at a time. A class
// comes up again only on request: if one of its jobs does not fit, none does.
//
// Under fair share each user's jobs are walked separately and a heap merges the
// walks; otherwise there is one walk over all. Once it has begun, only the
// walk on top can change between two calls of next, and only to a later place.
type walker struct {
	state    *State
	walks    []userWalk
	merged   []*userWalk      // walks not at their end
	accounts []*account       // by number of the userQueue; nil until needed
	passes   func(*head) bool // classes to skip; nil: none
	last     *head            // what next returned
	at       listPos          // its place in its class
	returned *cursor          // the same for a class that was requested again
	begun    bool
}

// userWalk is a walk through one user's jobs.
type userWalk struct {
	account *account // nil without fair share
	heads   *list[head]
	place   listPos   // the next class that has not come up
	came    listPos   // the first class behind those that came up: some after it may have been skipped
	again   []*cursor // classes requested again
	back    entry     // the last of those that came up
	front   *head     // the next job; nil at the end
}

// cursor is a class at one of its jobs.
type cursor struct {
	head
	place listPos
}

func (q *Queue) walk(s *State) *walker {
	w := &walker{state: s, accounts: make([]*account, len(q.users))}
	if !s.Rules.Fair {
		w.walks = []userWalk{{heads: &q.heads}}
		return w
	}
	accounts := make([]account, len(q.users)) // in one go: all are needed
	w.walks = make([]userWalk, len(q.users))
	w.merged = make([]*userWalk, 0, len(q.users))
	for i, l := range q.users {
		accounts[i] = newAccount(s, l.user)
		w.accounts[i] = &accounts[i]
		w.walks[i] = userWalk{account: &accounts[i], heads: &l.heads}
	}
	return w
}

// accountOf is the account of the userQueue's user.
func (w *walker) accountOf(l *userQueue) *account {
	if w.accounts[l.place] == nil {
		a := newAccount(w.state, l.user)
		w.accounts[l.place] = &a
	}
	return w.accounts[l.place]
}

// account is that of the user whose job came up last. It may be charged until the
// next call of next.
func (w *walker) account() *account { return w.accountOf(w.last.userQueue) }

// next gives the next job in order, and nil at the end.
func (w *walker) next() *head {
	if !w.begun {
		w.begin()
	} else if len(w.merged) > 0 {
		w.sift()
	}
	// Classes on top may have been closed since they were put there.
	for len(w.merged) > 0 && w.closed(w.merged[0]) {
		w.sift()
	}
	if len(w.merged) == 0 {
		return nil
	}
	lw := w.merged[0]
	if lw.returns() {
		w.returned = popFirst(&lw.again, (*cursor).before)
		w.last, w.at, lw.back = &w.returned.head, w.returned.place, w.returned.entry
	} else {
		w.last, w.at = lw.front, listPos{}
		lw.place = lw.heads.after(lw.place)
		lw.came = lw.place
	}
	return w.last
}

// begin orders the walks. It runs late enough to see charges made before the walk.
func (w *walker) begin() {
	w.begun = true
	w.merged = w.merged[:0]
	for i := range w.walks {
		if lw := &w.walks[i]; w.settle(lw) {
			w.merged = append(w.merged, lw)
		}
	}
	for i := len(w.merged)/2 - 1; i >= 0; i-- {
		sink(w.merged, i, goesBefore)
	}
}

// sift moves the walk on top, which has advanced, to its place.
func (w *walker) sift() {
	if w.settle(w.merged[0]) {
		sink(w.merged, 0, goesBefore)
	} else {
		popFirst(&w.merged, goesBefore)
	}
}

// settle finds the next job of the walk, and reports whether there is one.
func (w *walker) settle(lw *userWalk) bool {
	lw.front = lw.heads.ref(lw.place)
	for lw.front != nil && w.passes != nil && w.passes(lw.front) {
		lw.place = lw.heads.after(lw.place)
		lw.front = lw.heads.ref(lw.place)
	}
	if len(lw.again) > 0 && (lw.front == nil || lw.again[0].entry.compare(&lw.front.entry) < 0) {
		lw.front = &lw.again[0].head
	}
	return lw.front != nil
}

// returns reports that the next class is one that was requested again.
func (lw *userWalk) returns() bool { return len(lw.again) > 0 && lw.front == &lw.again[0].head }

// closed reports that the next class can be skipped by now.
func (w *walker) closed(lw *userWalk) bool {
	return w.passes != nil && !lw.returns() && w.passes(lw.front)
}

// reopen brings back classes that were skipped and whose turn is still to come.
func (w *walker) reopen() {
	if !w.begun {
		return
	}
	w.begun = false
	at := orderKey{w.account(), &w.last.entry}
	for i := range w.walks {
		lw := &w.walks[i]
		over := func(h *head) bool {
			return lw.back.job != "" && h.entry.compare(&lw.back) < 0 || orderKey{w.accountOf(h.userQueue), &h.entry}.compare(at) <= 0
		}
		for lw.place = lw.came; ; lw.place = lw.heads.after(lw.place) {
			if h := lw.heads.ref(lw.place); h == nil || !over(h) {
				break
			}
		}
	}
}

// restart goes back to the first job. What was charged meanwhile counts.
func (w *walker) restart() {
	for i := range w.walks {
		w.walks[i] = userWalk{account: w.walks[i].account, heads: w.walks[i].heads}
	}
	w.begun, w.last, w.returned = false, nil, nil
}

// reached reports whether the job that came up last is at that place in the order or behind it.
func (w *walker) reached(s orderKey) bool {
	return orderKey{w.account(), &w.last.entry}.compare(s) >= 0
}

// again requests the next job of the class that came up last.
func (w *walker) again() {
	at := w.last.class.jobs.after(w.at)
	if e, ok := w.last.class.jobs.at(at); ok {
		c := w.returned
		if c == nil || w.last != &c.head { // otherwise it is reused
			c = &cursor{head: *w.last}
		}
		c.entry, c.place = e, at
		push(&w.merged[0].again, c, (*cursor).before)
	}
}

// rest is the job that came up last and all behind it in its class.
func (w *walker) rest() []string {
	g := w.last.class
	var jobs []string
	for p := w.at; ; p = g.jobs.after(p) {
		e, ok := g.jobs.at(p)
		if !ok {
			return jobs
		}
		jobs = append(jobs, e.job)
	}
}

func (lw *userWalk) orderKey() orderKey { return orderKey{lw.account, &lw.front.entry} }

func goesBefore(a, b *userWalk) bool {
	// Mostly the usage decides, and each step of a walk compares a few of them.
	x, y := &a.front.entry, &b.front.entry
	if a.account != nil && a.account.turn != b.account.turn && x.priority == y.priority && x.service == y.service && a.account.rules.inTurn(x.service) {
		return a.account.turn < b.account.turn
	}
	return a.orderKey().compare(b.orderKey()) < 0
}

func (c *cursor) before(other *cursor) bool { return c.entry.compare(&other.entry) < 0 }

// The functions below keep a list as a heap with the first element on top.
// container/heap would allocate for each element.

func push[T any](list *[]T, v T, before func(a, b T) bool) {
	*list = append(*list, v)
	l := *list
	for i := len(l) - 1; i > 0; {
		parent := (i - 1) / 2
		if !before(l[i], l[parent]) {
			return
		}
		l[i], l[parent] = l[parent], l[i]
		i = parent
	}
}

func popFirst[T any](list *[]T, before func(a, b T) bool) T {
	first := (*list)[0]
	if last := pop(list); len(*list) > 0 {
		(*list)[0] = last
		sink(*list, 0, before)
	}
	return first
}

// sink moves an element down to its place.
func sink[T any](list []T, i int, before func(a, b T) bool) {
	for {
		first := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(list); child++ {
			if before(list[child], list[first]) {
				first = child
			}
		}
		if first == i {
			return
		}
		list[i], list[first] = list[first], list[i]
		i = first
	}
}
