package sched

import "container/heap"

// walker goes through a queue in order, one job of each group at a time. A
// group comes up again only when asked for: whoever learns that a job does
// not fit has learnt it of the whole group.
type walker struct {
	queue *Queue
	place place   // the next group that did not come up yet
	more  cursors // groups asked for again
	last  cursor  // what next gave
}

// cursor is a group that stands at one of its jobs.
type cursor struct {
	head
	place place
}

func (q *Queue) walk() *walker { return &walker{queue: q} }

// next gives the next job in order.
func (w *walker) next() (head, bool) {
	fresh, ok := w.queue.heads.at(w.place)
	switch {
	case len(w.more) > 0 && (!ok || compareEntries(w.more[0].entry, fresh.entry) < 0):
		w.last = heap.Pop(&w.more).(cursor)
	case ok:
		w.place = w.queue.heads.after(w.place)
		w.last = cursor{head: fresh}
	default:
		return head{}, false
	}
	return w.last.head, true
}

// again asks for the next job of the group that came up last.
func (w *walker) again() {
	c := w.last
	c.place = c.group.jobs.after(c.place)
	if e, ok := c.group.jobs.at(c.place); ok {
		c.head.entry = e
		heap.Push(&w.more, c)
	}
}

// rest gives the job that came up last and all behind it in its group.
func (w *walker) rest() []string {
	g := w.last.group
	var jobs []string
	for p := w.last.place; ; p = g.jobs.after(p) {
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
func (c cursors) Less(i, j int) bool { return compareEntries(c[i].entry, c[j].entry) < 0 }
func (c cursors) Swap(i, j int)      { c[i], c[j] = c[j], c[i] }
func (c *cursors) Push(v any)        { *c = append(*c, v.(cursor)) }
func (c *cursors) Pop() any {
	last := len(*c) - 1
	v := (*c)[last]
	*c = (*c)[:last]
	return v
}
