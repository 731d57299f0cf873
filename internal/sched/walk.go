package sched

import "container/heap"

// walker goes through a queue in order, one job of each group at a time. A
// group comes up again only when asked for: whoever learns that a job does
// not fit has learnt it of the whole group.
//
// Where users take turns each one's line is walked by itself, and the walks are
// merged in a heap; else there is one walk, through the line of all.
// Once it has begun only the one on top can change between two calls of next, and
// only for later, so that putting it back in its place is all there is to do.
type walker struct {
	state    *State
	lines    []lineWalk
	walks    []*lineWalk      // those that are not at their end, a heap: the one whose job is first lies on top
	accounts []*account       // by place of the user's line; nil until it is asked for
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
	passed  place   // the first group that was passed over since one last came up
	place   place   // the next group that did not come up yet and is not passed over
	more    cursors // groups asked for again
	front   *head   // what comes next; nil at the end
}

// cursor is a group that stands at one of its jobs.
type cursor struct {
	head
	place place
}

func (q *Queue) walk(s *State) *walker {
	w := &walker{state: s}
	if q == nil {
		return w
	}
	w.accounts = make([]*account, len(q.users))
	if !s.Rules.Fair {
		w.lines = []lineWalk{{heads: &q.heads}}
		return w
	}
	accounts := make([]account, len(q.users)) // at once: all are needed
	w.lines = make([]lineWalk, len(q.users))
	w.walks = make([]*lineWalk, 0, len(q.users))
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

// next gives the next job in order, and nil at the end.
func (w *walker) next() *head {
	if w.begun {
		w.restore()
	} else {
		w.begin()
	}
	// Kinds may have been settled since a walk was put in its place.
	for moved := 0; len(w.walks) > 0 && w.passesOver(w.walks[0]); moved++ {
		if moved == manyMoved {
			w.begin()
			break
		}
		w.restore()
	}
	if len(w.walks) == 0 {
		return nil
	}
	lw := w.walks[0]
	if lw.returns() {
		w.returned = heap.Pop(&lw.more).(cursor)
		w.last, w.at = &w.returned.head, w.returned.place
		lw.passTo(func(h *head) bool { return h.entry.compare(&w.last.entry) > 0 })
	} else {
		w.last, w.at = lw.front, place{}
		lw.place = lw.heads.after(lw.place)
		lw.passed = lw.place
	}
	return w.last
}

// manyMoved is after how many walks that have to move on one after the other it is
// cheaper to put all of them in order anew.
const manyMoved = 4

// begin puts the walks in order. That is late enough for turns that were taken
// out of order before.
func (w *walker) begin() {
	w.begun = true
	w.walks = w.walks[:0]
	for i := range w.lines {
		if lw := &w.lines[i]; w.settle(lw) {
			w.walks = append(w.walks, lw)
		}
	}
	for i := len(w.walks)/2 - 1; i >= 0; i-- {
		w.sink(i)
	}
}

// restore puts the walk on top, which has moved on, back in its place.
func (w *walker) restore() {
	if len(w.walks) == 0 {
		return
	}
	if !w.settle(w.walks[0]) {
		last := len(w.walks) - 1
		w.walks[0] = w.walks[last]
		w.walks = w.walks[:last]
	}
	w.sink(0)
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
		lw.passTo(func(h *head) bool { return spot{w.accountOf(h.line), &h.entry}.compare(at) > 0 })
		lw.place = lw.passed
	}
}

// passTo forgets that groups were passed over whose turn has come meanwhile.
func (lw *lineWalk) passTo(still func(*head) bool) {
	for lw.passed != lw.place && !still(lw.heads.ref(lw.passed)) {
		lw.passed = lw.heads.after(lw.passed)
	}
}

// returns reports that a group is next that was asked for again.
func (lw *lineWalk) returns() bool { return len(lw.more) > 0 && lw.front == &lw.more[0].head }

// passesOver reports that the next group need not come up.
func (w *walker) passesOver(lw *lineWalk) bool {
	return w.passes != nil && lw.front != nil && !lw.returns() && w.passes(lw.front)
}

// settle finds out what comes next in the line, and whether anything does.
func (w *walker) settle(lw *lineWalk) bool {
	lw.front = lw.heads.ref(lw.place)
	for w.passesOver(lw) {
		lw.place = lw.heads.after(lw.place)
		lw.front = lw.heads.ref(lw.place)
	}
	if len(lw.more) > 0 && (lw.front == nil || lw.more[0].entry.compare(&lw.front.entry) < 0) {
		lw.front = &lw.more[0].head
	}
	return lw.front != nil
}

func (lw *lineWalk) spot() spot { return spot{lw.account, &lw.front.entry} }

// sink moves a walk down the heap to where it belongs.
func (w *walker) sink(i int) {
	for {
		first := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(w.walks); child++ {
			if w.walks[child].spot().compare(w.walks[first].spot()) < 0 {
				first = child
			}
		}
		if first == i {
			return
		}
		w.walks[i], w.walks[first] = w.walks[first], w.walks[i]
		i = first
	}
}

// account is that of the user whose job came up last. It may be charged
// until next is called.
func (w *walker) account() *account { return w.accountOf(w.last.line) }

// reached reports whether the job that came up last stands at the spot or
// behind it.
func (w *walker) reached(s spot) bool {
	return spot{w.account(), &w.last.entry}.compare(s) >= 0
}

// again asks for the next job of the group that came up last.
func (w *walker) again() {
	c := cursor{*w.last, w.last.group.jobs.after(w.at)}
	if e, ok := c.group.jobs.at(c.place); ok {
		c.head.entry = e
		heap.Push(&w.walks[0].more, c)
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

// cursors is a heap: the one whose job is first lies on top.
type cursors []cursor

func (c cursors) Len() int           { return len(c) }
func (c cursors) Less(i, j int) bool { return c[i].entry.compare(&c[j].entry) < 0 }
func (c cursors) Swap(i, j int)      { c[i], c[j] = c[j], c[i] }
func (c *cursors) Push(v any)        { *c = append(*c, v.(cursor)) }
func (c *cursors) Pop() any {
	last := len(*c) - 1
	v := (*c)[last]
	*c = (*c)[:last]
	return v
}
