package waiting

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"berth/internal/job"
	"berth/internal/queue/engine/journal"
)

// Roster is the unfinished jobs by id and in order of submission, so that a page
// of a long queue costs only a page. Jobs are added at the end and removed
// anywhere.
type Roster struct {
	Jobs  map[string]*job.Job
	owned map[string]int // how many each user has
	lines map[job.Batch]map[string]bool
	texts texts
	Last  int64 // the highest Rank that any of them had

	changes *journal.Journal // has those that are not on disk yet

	seqs []int64
	IDs  []string // parallel; empty: gone
	gone int
}

func newRoster(c *journal.Journal) Roster {
	return Roster{changes: c, Jobs: map[string]*job.Job{}, owned: map[string]int{}, lines: map[job.Batch]map[string]bool{}, texts: newTexts()}
}

// Know adds or updates a job.
func (r *Roster) Know(j *job.Job) {
	if _, known := r.Jobs[j.ID]; !known {
		r.owned[j.User]++
		r.texts.add(j)
		r.place(j)
		if j.Spec.Batch != "" {
			r.lines[j.Batch()] = with(r.lines[j.Batch()], j.ID)
		}
	}
	r.Jobs[j.ID], r.Last = j, max(r.Last, j.Rank)
}

// Forget removes an ended job.
func (r *Roster) Forget(j *job.Job) {
	if _, known := r.Jobs[j.ID]; !known {
		return
	}
	delete(r.Jobs, j.ID)
	r.texts.remove(j)
	r.unplace(j)
	without(r.lines, j.Batch(), j.ID)
	if r.owned[j.User]--; r.owned[j.User] == 0 {
		delete(r.owned, j.User)
	}
}

// place adds a job to the order. Most are the newest; a requeued one gets its
// old place.
func (r *Roster) place(j *job.Job) {
	at, found := slices.BinarySearch(r.seqs, j.Seq)
	switch {
	case found && r.IDs[at] == "":
		r.IDs[at] = j.ID
		r.gone--
	case !found:
		r.seqs = slices.Insert(r.seqs, at, j.Seq)
		r.IDs = slices.Insert(r.IDs, at, j.ID)
	}
}

// unplace removes a job from the order. Gaps are closed when they make up half
// of it.
func (r *Roster) unplace(j *job.Job) {
	at, found := slices.BinarySearch(r.seqs, j.Seq)
	if !found || r.IDs[at] == "" {
		return
	}
	r.IDs[at] = ""
	if r.gone++; r.gone <= 64 || r.gone*2 < len(r.IDs) {
		return
	}
	kept := 0
	for i, id := range r.IDs {
		if id != "" {
			r.seqs[kept], r.IDs[kept] = r.seqs[i], id
			kept++
		}
	}
	clear(r.IDs[kept:])
	r.seqs, r.IDs, r.gone = r.seqs[:kept], r.IDs[:kept], 0
	if cap(r.IDs) > 4*kept+1024 {
		r.seqs, r.IDs = slices.Clone(r.seqs), slices.Clone(r.IDs)
	}
}

// Each visits the unfinished jobs in order of submission, from the first with a
// number above seq, until fn returns false. fn must not keep the job or change
// the queue.
func (r *Roster) Each(seq int64, fn func(*job.Job) bool) {
	at, _ := slices.BinarySearchFunc(r.seqs, seq, func(s, after int64) int {
		return cmp.Or(cmp.Compare(s, after), -1)
	})
	for ; at < len(r.IDs); at++ {
		if id := r.IDs[at]; id != "" && !fn(r.Jobs[id]) {
			return
		}
	}
}

// EachBack is Each from newest to oldest, from the first with a number below
// seq.
func (r *Roster) EachBack(seq int64, fn func(*job.Job) bool) {
	at, _ := slices.BinarySearch(r.seqs, seq)
	for at--; at >= 0; at-- {
		if id := r.IDs[at]; id != "" && !fn(r.Jobs[id]) {
			return
		}
	}
}

// EachTask visits the unfinished tasks of an array. Their numbers are
// consecutive, starting with the array's.
func (r *Roster) EachTask(array string, fn func(*job.Job)) {
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

// EachLine visits the unfinished lines of a jobs file, in no order.
func (r *Roster) EachLine(of job.Batch, fn func(*job.Job)) {
	for id := range r.lines[of] {
		fn(r.Jobs[id])
	}
}

// Lines counts the unfinished lines of a jobs file.
func (r *Roster) Lines(of job.Batch) int { return len(r.lines[of]) }

// Job is an unfinished job.
func (r *Roster) Job(id string) (*job.Job, bool) {
	j, ok := r.Jobs[id]
	return j, ok
}

// Owned counts a user's unfinished jobs, including staged ones.
func (r *Roster) Owned(user string) int { return r.owned[user] + r.changes.StagedOf[user] }

// Size counts the unfinished jobs, including staged ones.
func (r *Roster) Size() int {
	size := len(r.Jobs)
	for _, b := range r.changes.Staged {
		size += len(b.Jobs)
	}
	return size
}

// Find is an unfinished job, or one whose end is not on disk yet.
func (r *Roster) Find(id string) (*job.Job, bool) {
	if j, ok := r.Jobs[id]; ok {
		return j, true
	}
	j, ok := r.changes.Rows[id]
	return j, ok
}

// EachUnwritten visits the jobs whose end is not on disk yet.
func (r *Roster) EachUnwritten(fn func(*job.Job)) {
	for id, j := range r.changes.Rows {
		if _, live := r.Jobs[id]; !live {
			fn(j)
		}
	}
}

// Text is how many bytes of text a user's unfinished jobs would have with another
// one that has this environment. Staged jobs are included.
func (r *Roster) Text(user, environ string) int {
	bytes := r.texts.users[user] + r.changes.StagedText[user]
	if r.texts.environs[[2]string{user, environ}] == 0 {
		bytes += environBytes(environ)
	}
	return bytes
}

// Users counts the unfinished jobs of each user.
func (r *Roster) Users() map[string]int { return maps.Clone(r.owned) }

// Namesakes are the unfinished jobs of a user with a name, in order of submission,
// also those that are not on disk yet.
func (r *Roster) Namesakes(user, name string) (ids []string) {
	take := func(j *job.Job) {
		if j != nil && j.User == user && j.Spec.Name == name {
			ids = append(ids, j.ID)
		}
	}
	for _, id := range r.IDs {
		take(r.Jobs[id])
	}
	r.changes.EachStaged(take)
	return ids
}
