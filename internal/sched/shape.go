package sched

// family is a request without its amounts. Among requests of one family, a larger
// one fits only where a smaller one does.
type family struct{ request Request }

// shape is what a class of jobs asks for and for how long. Either all jobs of a
// shape fit or none does.
type shape struct {
	family *counted[family]
	amounts
}

// size is the shape without the time: mostly there are too few cards for a job
// however long it lasts.
func (c shape) size() shape {
	c.term = term{}
	return c
}

// familyOf takes the amounts off a request.
func familyOf(r Request) family {
	r.GPUs = min(r.GPUs, 2) // several cards are never parts of one
	r.VRAMMiB = min(r.VRAMMiB, 1)
	if r.Share > 0 {
		r.Share = 1
	}
	r.CPUs, r.MemMiB = 0, 0
	return family{r}
}

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
