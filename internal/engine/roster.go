package engine

import (
	"cmp"
	"slices"
	"strconv"

	"berth/internal/job"
)

// roster is the jobs that are not over, by id and in the order of submission, so
// that a page of a long queue costs a page. Jobs come at its end and go anywhere.
type roster struct {
	jobs  map[string]*job.Job
	owned map[string]int // how many each user has

	seqs []int64
	ids  []string // parallel; empty: gone
	gone int
}

func newRoster() roster { return roster{jobs: map[string]*job.Job{}, owned: map[string]int{}} }

// know enters a job, or what it has become.
func (r *roster) know(j *job.Job) {
	if _, known := r.jobs[j.ID]; !known {
		r.owned[j.User]++
		r.place(j)
	}
	r.jobs[j.ID] = j
}

// forget takes out a job that is over.
func (r *roster) forget(j *job.Job) {
	if _, known := r.jobs[j.ID]; !known {
		return
	}
	delete(r.jobs, j.ID)
	r.unplace(j)
	if r.owned[j.User]--; r.owned[j.User] == 0 {
		delete(r.owned, j.User)
	}
}

// place enters a job in the order. Most are the newest; one that is queued again
// finds its old place.
func (r *roster) place(j *job.Job) {
	at, found := slices.BinarySearch(r.seqs, j.Seq)
	switch {
	case found && r.ids[at] == "":
		r.ids[at] = j.ID
		r.gone--
	case !found:
		r.seqs = slices.Insert(r.seqs, at, j.Seq)
		r.ids = slices.Insert(r.ids, at, j.ID)
	}
}

// unplace takes a job out of the order. The gaps are closed when they are half of it all.
func (r *roster) unplace(j *job.Job) {
	at, found := slices.BinarySearch(r.seqs, j.Seq)
	if !found || r.ids[at] == "" {
		return
	}
	r.ids[at] = ""
	if r.gone++; r.gone <= 64 || r.gone*2 < len(r.ids) {
		return
	}
	kept := 0
	for i, id := range r.ids {
		if id != "" {
			r.seqs[kept], r.ids[kept] = r.seqs[i], id
			kept++
		}
	}
	clear(r.ids[kept:])
	r.seqs, r.ids, r.gone = r.seqs[:kept], r.ids[:kept], 0
	if cap(r.ids) > 4*kept+1024 {
		r.seqs, r.ids = slices.Clone(r.seqs), slices.Clone(r.ids)
	}
}

// Each calls fn with the jobs that are not over, in the order of submission,
// from the first with a number above seq, until fn returns false. fn must not
// keep the job, nor change the queue.
func (r *roster) Each(seq int64, fn func(*job.Job) bool) {
	at, _ := slices.BinarySearchFunc(r.seqs, seq, func(s, after int64) int {
		return cmp.Or(cmp.Compare(s, after), -1)
	})
	for ; at < len(r.ids); at++ {
		if id := r.ids[at]; id != "" && !fn(r.jobs[id]) {
			return
		}
	}
}

// EachBack is Each from the newest to the oldest, from the first with a number
// below seq.
func (r *roster) EachBack(seq int64, fn func(*job.Job) bool) {
	at, _ := slices.BinarySearch(r.seqs, seq)
	for at--; at >= 0; at-- {
		if id := r.ids[at]; id != "" && !fn(r.jobs[id]) {
			return
		}
	}
}

// EachTask calls fn with the tasks of an array that are not over. They were
// numbered one after the other, from the array's own number.
func (r *roster) EachTask(array string, fn func(*job.Job)) {
	base, err := strconv.ParseInt(array, 10, 64)
	if err != nil {
		return
	}
	r.Each(base-1, func(j *job.Job) bool {
		if j.Array() != array {
			return false
		}
		fn(j)
		return true
	})
}

// Job is a job that is not over.
func (r *roster) Job(id string) (*job.Job, bool) {
	j, ok := r.jobs[id]
	return j, ok
}
