package daemon

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/queue/engine"
	"berth/internal/queue/fair"
	"berth/internal/text/problem"
)

// liveQuery finds unfinished jobs in order of submission: first which they are,
// in one turn, and then what they are, a slice in each turn. Copying a long queue
// at once would hold up everything else.
type liveQuery struct {
	ch    *choice
	after int64 // only numbers above this; with newest: below it, if set
	limit int
	// newest asks for the last jobs, newest first.
	newest bool
	// queue asks for the first jobs in the order of the queue, of each row only the
	// first in that order.
	queue bool
	folds folding
	walk  int // how far that order is followed; 0: mostWalked
	// unwritten includes jobs whose end is not on disk yet, so the store does
	// not know it.
	unwritten bool
	reasons   bool // also why they wait
	// give is called with the jobs that were found after each slice, which are not kept
	// then. One job less than limit is found, and last is its number if there are more.
	give func()
	more bool
	last int64
	left int // how many are still to come

	// then is called with the jobs' ids before anything else can happen.
	then func(t *engine.Turn, ids []string)

	chosen []chosen
	found  []job.Job
	why    map[string]string // with reasons: by id
	moved  []move            // what happened before they were copied
	total  int               // how many match in all
	states map[string]int    // with queue: the same by state
	at     time.Time         // when that was
}

// chosen is a job when it was chosen.
type chosen struct {
	seq   int64
	id    string
	state job.State
}

// move is a change of an unfinished job's state; is is empty if the job is gone.
type move struct{ was, is job.State }

// sliceJobs is how many jobs are copied or explained in one turn.
const sliceJobs = 500

// live finds jobs in the engine's goroutine. Jobs named by id are found without
// a scan.
func (f *finder) live(ctx context.Context, q *liveQuery) error {
	err := f.svc.Do(ctx, func(t *engine.Turn) {
		q.choose(t)
		q.copy(t, q.chosen[:min(len(q.chosen), f.slice)])
	})
	if err != nil {
		return err
	}
	q.gave(f.slice)
	for slice := range slices.Chunk(q.chosen[min(len(q.chosen), f.slice):], f.slice) {
		if err := fair.Spend(ctx, len(slice)); err != nil {
			return err
		}
		if err := f.svc.Do(ctx, func(t *engine.Turn) { q.copy(t, slice) }); err != nil {
			return err
		}
		q.gave(f.slice)
	}
	return nil
}

// gave hands over what was found of a slice.
func (q *liveQuery) gave(slice int) {
	if q.give != nil {
		q.left = max(q.left-slice, 0)
		q.give()
		q.found = q.found[:0]
		clear(q.why)
	}
}

// choose finds out which jobs match.
func (q *liveQuery) choose(t *engine.Turn) {
	q.at = t.Now
	switch {
	case q.queue:
		q.chooseInOrder(t)
	case q.ch.named():
		eachNamed(t, q.ch, func(j *job.Job) { q.consider(t, j) })
	case q.ch.everything():
		queued, running := t.Explain().Live()
		q.chosen = make([]chosen, 0, min(q.limit, queued+running))
		q.each(t, func(j *job.Job) bool { q.consider(t, j); return len(q.chosen) < q.limit })
		q.total = queued + running
	case q.ch.wantsLive():
		q.each(t, func(j *job.Job) bool { q.consider(t, j); return true })
	}
	if q.unwritten {
		t.Jobs().EachUnwritten(func(j *job.Job) {
			if q.ch.matches(t, j) && q.within(j) {
				q.chosen = append(q.chosen, chosen{j.Seq, j.ID, j.State})
			}
		})
	}
	if !q.queue {
		slices.SortFunc(q.chosen, func(a, b chosen) int {
			if q.newest {
				a, b = b, a
			}
			return cmp.Compare(a.seq, b.seq)
		})
		q.chosen = q.chosen[:min(len(q.chosen), q.limit)]
	}
	if q.give != nil {
		if q.more = len(q.chosen) == q.limit; q.more {
			q.chosen = q.chosen[:q.limit-1]
			q.last = q.chosen[q.limit-2].seq
		}
		q.left = len(q.chosen)
	}
	if q.then != nil {
		ids := make([]string, len(q.chosen))
		for i := range q.chosen {
			ids[i] = q.chosen[i].id
		}
		q.then(t, ids)
	}
}

// chooseInOrder counts all matches, and takes the first in the order of the queue.
func (q *liveQuery) chooseInOrder(t *engine.Turn) {
	q.states = map[string]int{}
	count := func(j *job.Job) {
		if q.ch.matches(t, j) {
			q.states[string(j.State)]++
			q.total++
		}
	}
	switch {
	case q.ch.named():
		eachNamed(t, q.ch, count)
	case q.ch.everything():
		countLive(t, q.states)
		for _, n := range q.states {
			q.total += n
		}
	case q.ch.wantsLive():
		t.Jobs().Each(0, func(j *job.Job) bool { count(j); return true })
	}
	left, walked, rows := q.total, 0, map[row]bool{}
	most := cmp.Or(q.walk, mostWalked)
	take := func(j *job.Job) bool {
		if r := q.folds.row(j); q.ch.matches(t, j) && !rows[r] {
			rows[r] = true
			q.chosen = append(q.chosen, chosen{j.Seq, j.ID, j.State})
		}
		return len(q.chosen) < q.limit
	}
	t.Explain().InOrder(func(j *job.Job) bool {
		if walked++; left == 0 || walked > most {
			return false
		}
		r := q.folds.row(j)
		switch whole := r.id == "" && q.ch.everything(); {
		case whole && !rows[r]:
			left -= t.Jobs().Lines(r.batch) // the others add no row
		case !whole && q.ch.matches(t, j):
			left--
		}
		return take(j)
	})
	if walked > most {
		t.Jobs().Each(0, take)
	}
}

// mostWalked is how far the order of the queue is followed in one turn. Jobs
// behind that are chosen in order of submission.
const mostWalked = 20_000

// copy copies some of the chosen jobs. One that is gone, or no longer matches, is
// left out.
func (q *liveQuery) copy(t *engine.Turn, slice []chosen) {
	if q.found == nil {
		room := len(q.chosen)
		if q.give != nil {
			room = len(slice) // the first is the longest
		}
		q.found, q.why = make([]job.Job, 0, room), map[string]string{}
	}
	var wait []*job.Job
	runs := false
	for _, c := range slice {
		n := len(q.found)
		j := &q.found[:n+1][n]
		if known := t.Jobs().Copy(c.id, j) && (q.unwritten || !j.State.Terminal()); !known {
			q.moved = append(q.moved, move{was: c.state})
			continue
		}
		if j.State != c.state {
			q.moved = append(q.moved, move{c.state, j.State})
		}
		if !q.ch.matches(t, j) {
			continue
		}
		q.found = q.found[:n+1]
		if t.Running().Complete(j); q.reasons && isWaiting(j) {
			wait = append(wait, j)
		}
		runs = runs || j.State == job.Running
	}
	if runs && q.reasons {
		t.Explain().Borrowed(q.why)
	}
	if len(wait) > 0 {
		engine.ReasonsOf(t.Explain(), wait, q.why)
	}
}

// each visits the jobs in the order of the query. If only some match, all are
// counted.
func (q *liveQuery) each(t *engine.Turn, fn func(*job.Job) bool) {
	after := int64(0)
	if q.ch.everything() {
		after = q.after
	}
	if !q.newest {
		t.Jobs().Each(after, fn)
		return
	}
	after = cmp.Or(after, math.MaxInt64)
	t.Jobs().EachBack(after, fn)
}

func (q *liveQuery) consider(t *engine.Turn, j *job.Job) {
	if !q.ch.matches(t, j) {
		return
	}
	q.total++
	// Named jobs do not come in order, and are cut later.
	if q.within(j) && (len(q.chosen) < q.limit || q.ch.named()) {
		q.chosen = append(q.chosen, chosen{j.Seq, j.ID, j.State})
	}
}

func (q *liveQuery) within(j *job.Job) bool {
	if q.newest {
		return q.after == 0 || j.Seq < q.after
	}
	return j.Seq > q.after
}

// eachNamed calls fn once for each unfinished job that an id names.
func eachNamed(t *engine.Turn, ch *choice, fn func(*job.Job)) {
	seen := map[string]bool{}
	once := func(j *job.Job) {
		if !seen[j.ID] {
			seen[j.ID] = true
			fn(j)
		}
	}
	for _, id := range ch.IDs {
		if j := t.Jobs().Get(id); j != nil {
			once(j)
		} else {
			t.Jobs().EachTask(id, once)
		}
	}
	for _, r := range ch.Ranges {
		if r.Array != "" {
			t.Jobs().EachTask(r.Array, once)
			continue
		}
		number := func(j *job.Job) int64 {
			base, _, _ := strings.Cut(j.ID, "_")
			n, _ := strconv.ParseInt(base, 10, 64)
			return n
		}
		within := func(j *job.Job) {
			if n := number(j); r.From <= n && n <= r.To {
				once(j)
			}
		}
		// Tasks follow the number of their array, so they are in order; those that
		// joined it late have higher ones.
		t.Jobs().Each(r.From-1, func(j *job.Job) bool {
			within(j)
			return number(j) <= r.To
		})
		for array := range t.Jobs().Late {
			t.Jobs().EachTask(array, within)
		}
	}
}

// resolve finds the selected jobs, ended or not, in order of submission, and the
// ids that match no job.
func (f *finder) resolve(ctx context.Context, ch *choice, over bool) (found []job.Job, missing []string, err error) {
	return f.resolveThen(ctx, ch, over, nil)
}

// resolveThen calls then with the ids of the unfinished jobs before anything can
// happen to them.
func (f *finder) resolveThen(ctx context.Context, ch *choice, over bool, then func(*engine.Turn, []string)) (found []job.Job, missing []string, err error) {
	most := maxResolved
	if f.svc.own != nil {
		most = math.MaxInt // its jobs are one user's
	}
	live := liveQuery{ch: ch, limit: most, unwritten: true, then: then}
	if err = f.live(ctx, &live); err != nil {
		return nil, nil, err
	}
	found = live.found
	if (over || ch.named()) && ch.wantsOver() {
		known := make(map[string]bool, len(found))
		for i := range found {
			known[found[i].ID] = true
		}
		err := f.svc.queue.Store.EachOver(ch.filter(ctx), func(j *job.Job) error {
			if len(found) >= most {
				return errTooMany
			}
			if !known[j.ID] {
				found = append(found, *j)
			}
			return nil
		})
		if errors.Is(err, errTooMany) {
			return nil, nil, problem.Newf(problem.TooMuch, "name fewer", "more than %d jobs are selected", most)
		}
		if err != nil {
			return nil, nil, err
		}
		slices.SortFunc(found, func(a, b job.Job) int { return cmp.Compare(a.Seq, b.Seq) })
	}
	have := make(map[string]bool, 2*len(found))
	for i := range found {
		have[found[i].ID] = true
		have[found[i].Array()] = true
	}
	for _, id := range ch.IDs {
		if !have[id] {
			missing = append(missing, id)
		}
	}
	return found, missing, nil
}

// maxResolved bounds the jobs of one request.
const maxResolved = 200_000

var errTooMany = errors.New("too many jobs")

// Find is one job, ended or not.
func (f *finder) Find(ctx context.Context, c api.Caller, word string) (job.Job, error) {
	found, err := f.findTasks(ctx, c, word)
	switch {
	case err != nil:
		return job.Job{}, err
	case len(found) > 1:
		return job.Job{}, api.ErrArray(word, len(found), found[0].ID)
	}
	return found[0], nil
}

// findTasks is one job, or all tasks of an array in order.
func (f *finder) findTasks(ctx context.Context, c api.Caller, word string) ([]job.Job, error) {
	ch, err := f.chooseBy(ctx, c, api.Select{Words: []string{word}}, meaning{})
	if err != nil {
		return nil, err
	}
	if len(ch.Names) == 1 && len(ch.IDs) > 1 {
		ids, more := ch.IDs[:min(len(ch.IDs), 5)], ""
		if len(ch.IDs) > len(ids) {
			more = ", ..."
		}
		return nil, problem.Newf(problem.Invalid, "choose one by its id", "expected one job; %.60s means %d: %s%s", word, len(ch.IDs), strings.Join(ids, ", "), more)
	}
	if ch.All || len(ch.Ranges) > 0 || len(ch.IDs) != 1 {
		return nil, problem.Newf(problem.Invalid, "name one job by its id", "expected one job, found %.60s, which may be several", word)
	}
	found, _, err := f.resolve(ctx, &ch, true)
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		return nil, problem.Newf(problem.NotFound, "berth list --all shows all jobs", "there is no job %.60s", word)
	}
	return found, nil
}
