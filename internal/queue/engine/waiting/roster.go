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
	shelf job.Shelf           // the queued jobs that nothing happens to
	out   map[string]*job.Job // the others
	taken []string            // some of those, which may be put back after this round
	owned map[string]int      // how many each user has
	lines map[job.Batch]map[string]bool
	texts texts
	Last  int64 // the highest Rank that any of them had

	// Late are the tasks that joined an array after it was submitted, by array.
	Late map[string]map[string]bool

	changes *journal.Journal // has those that are not on disk yet

	seqs []int64
	IDs  []string // parallel; empty: gone
	gone int
}

func newRoster(c *journal.Journal) Roster {
	return Roster{changes: c, shelf: job.NewShelf(), out: map[string]*job.Job{}, owned: map[string]int{}, lines: map[job.Batch]map[string]bool{}, Late: map[string]map[string]bool{}, texts: newTexts()}
}

// Know adds or updates a job.
func (r *Roster) Know(j *job.Job) {
	if !r.Has(j.ID) {
		r.owned[j.User]++
		r.texts.add(j)
		r.place(j)
		if j.Spec.Batch != "" {
			r.lines[j.Batch()] = with(r.lines[j.Batch()], j.ID)
		}
		if j.Spec.Trial.Late {
			r.Late[j.Array()] = with(r.Late[j.Array()], j.ID)
		}
	}
	r.Last = max(r.Last, j.Rank)
	r.Put(j)
}

// Put replaces a job by its new version.
func (r *Roster) Put(j *job.Job) {
	r.shelf.Drop(j.ID)
	r.out[j.ID] = j
	r.taken = append(r.taken, j.ID)
}

// Get is an unfinished job, which may be changed, or nil. It is the same one until
// the round is over.
func (r *Roster) Get(id string) *job.Job {
	if j := r.out[id]; j != nil {
		return j
	}
	j := r.look(id, nil)
	if j != nil {
		r.Put(j)
	}
	return j
}

// Look is an unfinished job to be read, perhaps a copy, or nil.
func (r *Roster) Look(id string) *job.Job { return r.look(id, nil) }

// look is Look with room for a copy.
func (r *Roster) look(id string, room *job.Job) *job.Job {
	if j := r.out[id]; j != nil || !r.shelf.Has(id) {
		return j
	}
	if room == nil {
		room = new(job.Job)
	}
	r.shelf.Look(id, room)
	return room
}

// Looking gives a function that finds jobs in order to read them: what it returned
// is overwritten when it is called again.
func (r *Roster) Looking() func(id string) *job.Job {
	room := new(job.Job)
	return func(id string) *job.Job { return r.look(id, room) }
}

// Tidy puts away what was taken out for a round.
func (r *Roster) Tidy() {
	kept := r.taken[:0]
	for _, id := range r.taken {
		switch j := r.out[id]; {
		case j == nil || j.State != job.Queued:
		case r.changes.Rows[id] != nil:
			kept = append(kept, id)
		case r.shelf.Takes(j):
			delete(r.out, id)
			r.shelf.Put(j)
		}
	}
	if r.taken = kept; cap(kept) > 4*len(kept)+1024 {
		r.taken = slices.Clone(kept)
	}
}

// Keeps reports whether it is this very job that the roster has, and may change.
func Keeps(r *Roster, j *job.Job) bool { return r.out[j.ID] == j }

// Has reports whether a job is unfinished.
func (r *Roster) Has(id string) bool { return r.out[id] != nil || r.shelf.Has(id) }

// Len counts them.
func (r *Roster) Len() int { return len(r.out) + r.shelf.Len() }

// Forget removes an ended job.
func (r *Roster) Forget(j *job.Job) {
	if !r.Has(j.ID) {
		return
	}
	delete(r.out, j.ID)
	r.shelf.Drop(j.ID)
	r.texts.remove(j)
	r.unplace(j)
	without(r.lines, j.Batch(), j.ID)
	if j.Spec.Trial.Late {
		without(r.Late, j.Array(), j.ID)
	}
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
	look := r.Looking()
	for ; at < len(r.IDs); at++ {
		if id := r.IDs[at]; id != "" && !fn(look(id)) {
			return
		}
	}
}

// EachBack is Each from newest to oldest, from the first with a number below
// seq.
func (r *Roster) EachBack(seq int64, fn func(*job.Job) bool) {
	at, _ := slices.BinarySearch(r.seqs, seq)
	look := r.Looking()
	for at--; at >= 0; at-- {
		if id := r.IDs[at]; id != "" && !fn(look(id)) {
			return
		}
	}
}

// EachTask visits the unfinished tasks of an array. Their numbers are
// consecutive, starting with the array's, but for those that joined it late. fn must
// not keep the job or change the queue.
func (r *Roster) EachTask(array string, fn func(*job.Job)) {
	base, err := strconv.ParseInt(array, 10, 64)
	if err != nil {
		return
	}
	r.Each(base-1, func(j *job.Job) bool {
		if j.Array() != array {
			return false
		}
		if !j.Spec.Trial.Late {
			fn(j)
		}
		return true
	})
	if late := r.Late[array]; late != nil {
		look := r.Looking()
		for id := range late {
			fn(look(id))
		}
	}
}

// EachLine visits the unfinished lines of a jobs file, in no order. fn must not keep
// the job or change the queue.
func (r *Roster) EachLine(of job.Batch, fn func(*job.Job)) {
	look := r.Looking()
	for id := range r.lines[of] {
		fn(look(id))
	}
}

// Lines counts the unfinished lines of a jobs file.
func (r *Roster) Lines(of job.Batch) int { return len(r.lines[of]) }

// Owned counts a user's unfinished jobs, including staged ones.
func (r *Roster) Owned(user string) int { return r.owned[user] + r.changes.StagedOf[user] }

// Size counts the unfinished jobs, including staged ones.
func (r *Roster) Size() int {
	size := r.Len()
	for _, b := range r.changes.Staged {
		size += len(b.Jobs)
	}
	return size
}

// Find is an unfinished job, or one whose end is not on disk yet, to be read.
func (r *Roster) Find(id string) (*job.Job, bool) {
	if j := r.Look(id); j != nil {
		return j, true
	}
	j, ok := r.changes.Rows[id]
	return j, ok
}

// Copy is Find into a place of the caller's.
func (r *Roster) Copy(id string, to *job.Job) bool {
	if r.shelf.Look(id, to) {
		return true
	}
	j, ok := r.Find(id)
	if ok {
		*to = *j
	}
	return ok
}

// EachUnwritten visits the jobs whose end is not on disk yet.
func (r *Roster) EachUnwritten(fn func(*job.Job)) {
	for id, j := range r.changes.Rows {
		if !r.Has(id) {
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
	r.Each(0, func(j *job.Job) bool { take(j); return true })
	r.changes.EachStaged(take)
	return ids
}
