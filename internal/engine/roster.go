package engine

import (
	"cmp"
	"slices"
	"strconv"

	"berth/internal/job"
)

// roster is the jobs that are not over in the order of submission, so that a
// page of a long queue costs a page. Jobs come at its end and go anywhere.
type roster struct {
	seqs []int64
	ids  []string // parallel; empty: gone
	gone int
}

// add enters a job. Most are the newest; one that is queued again finds its
// old place.
func (r *roster) add(j *job.Job) {
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

// remove takes a job out. The gaps are closed when they are half of it all.
func (r *roster) remove(j *job.Job) {
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
func (t *Turn) Each(seq int64, fn func(*job.Job) bool) {
	at, _ := slices.BinarySearchFunc(t.roster.seqs, seq, func(s, after int64) int {
		return cmp.Or(cmp.Compare(s, after), -1)
	})
	for ; at < len(t.roster.ids); at++ {
		if id := t.roster.ids[at]; id != "" && !fn(t.jobs[id]) {
			return
		}
	}
}

// EachBack is Each from the newest to the oldest, from the first with a number
// below seq.
func (t *Turn) EachBack(seq int64, fn func(*job.Job) bool) {
	at, _ := slices.BinarySearch(t.roster.seqs, seq)
	for at--; at >= 0; at-- {
		if id := t.roster.ids[at]; id != "" && !fn(t.jobs[id]) {
			return
		}
	}
}

// EachTask calls fn with the tasks of an array that are not over. They were
// numbered one after the other, from the array's own number.
func (t *Turn) EachTask(array string, fn func(*job.Job)) {
	base, err := strconv.ParseInt(array, 10, 64)
	if err != nil {
		return
	}
	t.Each(base-1, func(j *job.Job) bool {
		if j.Array() != array {
			return false
		}
		fn(j)
		return true
	})
}

// EachUnwritten calls fn with the jobs that are over, but not yet on disk.
func (t *Turn) EachUnwritten(fn func(*job.Job)) {
	for id, j := range t.dirty {
		if _, live := t.jobs[id]; !live {
			fn(j)
		}
	}
}
