package sched

// family is a request without its amounts. Among requests of one family, a larger
// one fits only where a smaller one does.
type family struct{ request Request }

// requestClass is what a group of jobs asks for and for how long. Either all jobs
// of a class fit or none does, so a decision looks at each class once.
type requestClass struct {
	family *counted[family]
	amounts
}

// size is the class without the time: mostly there are too few cards for a job
// however long it lasts.
func (c requestClass) size() requestClass {
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

// closed is the request classes for which a decision can do nothing more. The walk
// skips jobs of those classes, and ends when all are closed.
//
// A class stays closed for later jobs: within a decision room only shrinks, and a
// later job outranks fewer running ones. Only a preemption makes room that others
// may use too; then all classes open again.
type closed struct {
	classes, sizes []bool // by number
	open           int    // how many sizes are not closed
}

func newClosed(q *Queue) closed {
	return closed{classes: make([]bool, len(q.classes.list)), sizes: make([]bool, len(q.sizes.list)), open: len(q.sizes.of)}
}

func (c *closed) has(h *head) bool { return c.sizes[h.sizeNumber] || c.classes[h.classNumber] }

func (c *closed) closeClass(h *head) { c.classes[h.classNumber] = true }

// closeSize closes the head's class, and all classes that differ from it only in
// time.
func (c *closed) closeSize(h *head) {
	if !c.sizes[h.sizeNumber] {
		c.sizes[h.sizeNumber] = true
		c.open--
	}
}

// reopen opens all.
func (c *closed) reopen(q *Queue) {
	clear(c.classes)
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
