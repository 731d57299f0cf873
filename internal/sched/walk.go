package sched

import "container/heap"

// walker goes through a queue in order, one job of each group at a time. A
// group comes up again only when asked for: whoever learns that a job does
// not fit has learnt it of the whole group.
//
// Where users take turns each one's line is walked by itself, and the walks are
// merged in a heap; else there is one walk, through the line of all. Once it has
// begun only the one on top can change between two calls of next, and only for
// later.
type walker struct {
	state    *State
	lines    []lineWalk
	merged   lineWalks        // those that are not at their end
	accounts []*account       // by number of the user's line; nil until it is asked for
	passes   func(*head) bool // which groups need not come up; nil: all do
	last     *head            // what next gave
	at       place            // of that in its group
	returned cursor           // the same, where it was asked for again
	begun    bool
}

// lineWalk is a walk through one line.
type lineWalk struct {
	account *account // nil where users take no turns
	heads   *list[head]
	place   place   // the next group that did not come up yet
	came    place   // the first group behind those that came up: some of the next may have been passed over
	again   cursors // groups asked for again
	back    entry   // the last of these that came up
	front   *head   // what comes next; nil at the end
}

// cursor is a group at one of its jobs.
type cursor struct {
	head
	place place
}

func (q *Queue) walk(s *State) *walker {
	w := &walker{state: s, accounts: make([]*account, len(q.users))}
	if !s.Rules.Fair {
		w.lines = []lineWalk{{heads: &q.heads}}
		return w
	}
	accounts := make([]account, len(q.users)) // at once: all are needed
	w.lines = make([]lineWalk, len(q.users))
	w.merged = make([]*lineWalk, 0, len(q.users))
	for i, l := range q.users {
		accounts[i] = newAccount(s, l.user)
		w.accounts[i] = &accounts[i]
		w.lines[i] = lineWalk{account: &accounts[i], heads: &l.heads}
	}
	return w
}

// accountOf is that of the user whose line it is.
func (w *walker) accountOf(l *line) *account {
	if w.accounts[l.place] == nil {
		a := newAccount(w.state, l.user)
		w.accounts[l.place] = &a
	}
	return w.accounts[l.place]
}

// account is that of the user whose job came up last. It may be charged
// until next is called.
func (w *walker) account() *account { return w.accountOf(w.last.line) }

// next gives the next job in order, and nil at the end.
func (w *walker) next() *head {
	if !w.begun {
		w.begin()
	} else if len(w.merged) > 0 {
		w.sift()
	}
	// Groups on top may have been closed since they were put there.
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
		w.last, w.at = lw.front, place{}
		lw.place = lw.heads.after(lw.place)
		lw.came = lw.place
	}
	return w.last
}

// begin puts the walks in order. That is late enough for turns that were taken
// out of order before.
func (w *walker) begin() {
	w.begun = true
	w.merged = w.merged[:0]
	for i := range w.lines {
		if lw := &w.lines[i]; w.settle(lw) {
			w.merged = append(w.merged, lw)
		}
	}
	heap.Init(&w.merged)
}

// sift puts the walk on top, which has moved on, in its place.
func (w *walker) sift() {
	if w.settle(w.merged[0]) {
		heap.Fix(&w.merged, 0)
	} else {
		heap.Pop(&w.merged)
	}
}

// settle finds out what comes next in the line, and whether anything does.
func (w *walker) settle(lw *lineWalk) bool {
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

// returns reports that a group is next that was asked for again.
func (lw *lineWalk) returns() bool { return len(lw.again) > 0 && lw.front == &lw.again[0].head }

// closed reports that the next group need not come up any more.
func (w *walker) closed(lw *lineWalk) bool {
	return w.passes != nil && !lw.returns() && w.passes(lw.front)
}

// reopen lets groups come up that were passed over and whose turn is still to come.
func (w *walker) reopen() {
	if !w.begun {
		return
	}
	w.begun = false
	at := spot{w.account(), &w.last.entry}
	for i := range w.lines {
		lw := &w.lines[i]
		over := func(h *head) bool {
			return lw.back.job != "" && h.entry.compare(&lw.back) < 0 || spot{w.accountOf(h.line), &h.entry}.compare(at) <= 0
		}
		for lw.place = lw.came; ; lw.place = lw.heads.after(lw.place) {
			if h := lw.heads.ref(lw.place); h == nil || !over(h) {
				break
			}
		}
	}
}

// reached reports whether the job that came up last is at the spot or behind it.
func (w *walker) reached(s spot) bool {
	return spot{w.account(), &w.last.entry}.compare(s) >= 0
}

// again asks for the next job of the group that came up last.
func (w *walker) again() {
	c := cursor{*w.last, w.last.group.jobs.after(w.at)}
	if e, ok := c.group.jobs.at(c.place); ok {
		c.head.entry = e
		heap.Push(&w.merged[0].again, c)
	}
}

// rest gives the job that came up last and all behind it in its group.
func (w *walker) rest() []string {
	g := w.last.group
	var jobs []string
	for p := w.at; ; p = g.jobs.after(p) {
		e, ok := g.jobs.at(p)
		if !ok {
			return jobs
		}
		jobs = append(jobs, e.job)
	}
}

// lineWalks is a heap: the one whose job is first lies on top.
type lineWalks []*lineWalk

func (l lineWalks) Len() int           { return len(l) }
func (l lineWalks) Less(i, j int) bool { return l[i].spot().compare(l[j].spot()) < 0 }
func (l lineWalks) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }
func (l *lineWalks) Push(v any)        { *l = append(*l, v.(*lineWalk)) }
func (l *lineWalks) Pop() any          { return pop((*[]*lineWalk)(l)) }

func (lw *lineWalk) spot() spot { return spot{lw.account, &lw.front.entry} }

// cursors is a heap: the one whose job is first lies on top.
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
