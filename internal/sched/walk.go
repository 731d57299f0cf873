package sched

import "container/heap"

// walker goes through a queue in order, one job of each class at a time. A class
// comes up again only on request: if one of its jobs does not fit, none does.
//
// Under fair share each user's jobs are walked separately and a heap merges the
// walks; otherwise there is one walk over all. Once it has begun, only the
// walk on top can change between two calls of next, and only to a later place.
type walker struct {
	state    *State
	walks    []userWalk
	merged   userWalks        // walks not at their end
	accounts []*account       // by number of the userQueue; nil until needed
	passes   func(*head) bool // classes to skip; nil: none
	last     *head            // what next returned
	at       listPos          // its place in its class
	returned cursor           // the same for a class that was requested again
	begun    bool
}

// userWalk is a walk through one user's jobs.
type userWalk struct {
	account *account // nil without fair share
	heads   *list[head]
	place   listPos // the next class that has not come up
	came    listPos // the first class behind those that came up: some after it may have been skipped
	again   cursors // classes requested again
	back    entry   // the last of those that came up
	front   *head   // the next job; nil at the end
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
		w.returned = heap.Pop(&lw.again).(cursor)
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
	heap.Init(&w.merged)
}

// sift moves the walk on top, which has advanced, to its place.
func (w *walker) sift() {
	if w.settle(w.merged[0]) {
		heap.Fix(&w.merged, 0)
	} else {
		heap.Pop(&w.merged)
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

// reached reports whether the job that came up last is at the spot or behind it.
func (w *walker) reached(s orderKey) bool {
	return orderKey{w.account(), &w.last.entry}.compare(s) >= 0
}

// again requests the next job of the class that came up last.
func (w *walker) again() {
	c := cursor{*w.last, w.last.class.jobs.after(w.at)}
	if e, ok := c.class.jobs.at(c.place); ok {
		c.head.entry = e
		heap.Push(&w.merged[0].again, c)
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

// lineWalks is a heap with the first job on top.
type userWalks []*userWalk

func (l userWalks) Len() int           { return len(l) }
func (l userWalks) Less(i, j int) bool { return l[i].orderKey().compare(l[j].orderKey()) < 0 }
func (l userWalks) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }
func (l *userWalks) Push(v any)        { *l = append(*l, v.(*userWalk)) }
func (l *userWalks) Pop() any          { return pop((*[]*userWalk)(l)) }

func (lw *userWalk) orderKey() orderKey { return orderKey{lw.account, &lw.front.entry} }

// cursors is a heap with the first job on top.
type cursors []cursor

func (c cursors) Len() int           { return len(c) }
func (c cursors) Less(i, j int) bool { return c[i].entry.compare(&c[j].entry) < 0 }
func (c cursors) Swap(i, j int)      { c[i], c[j] = c[j], c[i] }
func (c *cursors) Push(v any)        { *c = append(*c, v.(cursor)) }
func (c *cursors) Pop() any          { return pop((*[]cursor)(c)) }

func pop[T any](list *[]T) T {
	last := len(*list) - 1
	v := (*list)[last]
	*list = (*list)[:last]
	return v
}
