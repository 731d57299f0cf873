package sched

// family is a request without its amounts. Among requests of one family, a larger
// one fits only where a smaller one does.
type family struct {
	request Request
	fixed   bool // gangs that cannot give way outrank fewer jobs
}

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
func familyOf(r Request, fixed bool) family {
	r.GPUs = min(r.GPUs, 2) // several cards are never parts of one
	r.VRAMMiB = min(r.VRAMMiB, 1)
	if r.Share > 0 {
		r.Share = 1
	}
	r.CPUs, r.MemMiB = 0, 0
	return family{r, fixed}
}
