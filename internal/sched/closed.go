package sched

import "slices"

// closed is the shapes for which a decision can do nothing more. The walk
// skips jobs of those shapes, and ends when all are closed.
//
// A shape stays closed for later jobs: within a decision room only shrinks, and a
// later job outranks fewer running ones. Only a preemption makes room that others
// may use too; then all open again.
type closed struct {
	shapes, sizes []bool // by number
	open          int    // how many sizes are not closed
}

func newClosed(q *Queue) closed {
	return closed{shapes: make([]bool, len(q.shapes.list)), sizes: make([]bool, len(q.sizes.list)), open: len(q.sizes.of)}
}

func (c *closed) has(h *head) bool { return c.sizes[h.sizeNumber] || c.shapes[h.shapeNumber] }

func (c *closed) closeShape(h *head) { c.shapes[h.shapeNumber] = true }

// close closes all shapes of a size, which differ only in time.
func (c *closed) close(size int) {
	if !c.sizes[size] {
		c.sizes[size] = true
		c.open--
	}
}

// reopen opens all.
func (c *closed) reopen(q *Queue) {
	clear(c.shapes)
	clear(c.sizes)
	c.open = len(q.sizes.of)
}

// frontier is the smallest amounts of one family that are known not to fit: a
// request for as much of everything, or more, does not fit either.
type frontier []amounts

func (f frontier) has(a *amounts) bool {
	for i := range f {
		if a.covers(&f[i]) {
			return true
		}
	}
	return false
}

func (f *frontier) put(a amounts) {
	kept := (*f)[:0]
	for i := range *f {
		if !(*f)[i].covers(&a) {
			kept = append(kept, (*f)[i])
		}
	}
	*f = append(kept, a)
}

// covers reports whether a asks for as much of the cards as b and for as long,
// or more.
func (a *amounts) covers(b *amounts) bool {
	return a.gpus >= b.gpus && a.vramMiB >= b.vramMiB && a.share >= b.share && a.term.covers(b.term)
}

// notHelped remembers requests that no preemption helped. A job considered later
// outranks no more running jobs, so if it needs at least as much of everything, no
// preemption helps it either. It has to count as the same number of GPUs: for more
// GPUs, jobs are preempted sooner.
type notHelped []amounts

// maxNotHelped bounds the list.
const maxNotHelped = 64

func (l notHelped) has(a *amounts) bool {
	return slices.ContainsFunc(l, func(failed amounts) bool { return a.asMuch(&failed) })
}

func (l *notHelped) put(failed amounts) {
	*l = slices.DeleteFunc(*l, func(old amounts) bool { return old.asMuch(&failed) })
	if len(*l) < maxNotHelped {
		*l = append(*l, failed)
	}
}

// asMuch reports whether a counts for as many GPUs as b and asks for no less.
func (a *amounts) asMuch(b *amounts) bool {
	return a.gpus == b.gpus && a.share == b.share && a.covers(b) && a.memMiB >= b.memMiB &&
		(a.cpus == b.cpus || a.gpus > 0 && a.cpus >= b.cpus)
}
