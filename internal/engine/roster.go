package engine

import (
	"cmp"
	"slices"
	"strconv"

	"berth/internal/job"
)

// roster is the unfinished jobs by id and in order of submission, so that a page
// of a long queue costs only a page. Jobs are added at the end and removed
// anywhere.
type roster struct {
	jobs  map[string]*job.Job
	owned map[string]int // how many each user has
	texts texts
	last  int64 // the highest Rank that any of them had

	changes *changes // has those that are not on disk yet

	seqs []int64
	ids  []string // parallel; empty: gone
	gone int
}

func newRoster(c *changes) roster {
	return roster{changes: c, jobs: map[string]*job.Job{}, owned: map[string]int{}, texts: newTexts()}
}

// know adds or updates a job.
func (r *roster) know(j *job.Job) {
	if _, known := r.jobs[j.ID]; !known {
		r.owned[j.User]++
		r.texts.add(j)
		r.place(j)
	}
	r.jobs[j.ID], r.last = j, max(r.last, j.Rank)
}

// forget removes an ended job.
func (r *roster) forget(j *job.Job) {
	if _, known := r.jobs[j.ID]; !known {
		return
	}
	delete(r.jobs, j.ID)
	r.texts.remove(j)
	r.unplace(j)
	if r.owned[j.User]--; r.owned[j.User] == 0 {
		delete(r.owned, j.User)
	}
}

// place adds a job to the order. Most are the newest; a requeued one gets its
// old place.
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

// unplace removes a job from the order. Gaps are closed when they make up half
// of it.
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

// Each visits the unfinished jobs in order of submission, from the first with a
// number above seq, until fn returns false. fn must not keep the job or change
// the queue.
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

// EachBack is Each from newest to oldest, from the first with a number below
// seq.
func (r *roster) EachBack(seq int64, fn func(*job.Job) bool) {
	at, _ := slices.BinarySearch(r.seqs, seq)
	for at--; at >= 0; at-- {
		if id := r.ids[at]; id != "" && !fn(r.jobs[id]) {
			return
		}
	}
}

// EachTask visits the unfinished tasks of an array. Their numbers are
// consecutive, starting with the array's.
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

// Job is an unfinished job.
func (r *roster) Job(id string) (*job.Job, bool) {
	j, ok := r.jobs[id]
	return j, ok
}
