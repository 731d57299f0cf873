package daemon

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/queue/engine"
	"berth/internal/queue/fair"
	"berth/internal/queue/store"
	"berth/internal/sched"
	"berth/internal/text/problem"
)

// The size of a page.
const (
	pageDefault = 1000
	pageMost    = 10_000
)

// jobs shows jobs: lists, one of them, and why it waits.
type jobs struct {
	svc   *service
	find  *finder
	dones dones
}

// Jobs is a page of jobs.
func (h *jobs) Jobs(ctx context.Context, c api.Caller, q api.Query) (reply api.JobPage, err error) {
	err = h.list(ctx, c, q, &reply, reply.Add)
	return reply, err
}

// list calls add with each job of a page, of which more will follow, and fills in the
// rest of the reply. A view is overwritten by the next one, and if the page can have no
// ended jobs, what it points to is as well.
func (h *jobs) list(ctx context.Context, c api.Caller, q api.Query, reply *api.JobPage, add func(v *job.View, more int)) error {
	ch, err := h.find.chooseBy(ctx, c, q.Select, meaning{every: true})
	if err != nil {
		return err
	}
	ch.idle = q.Idle
	if q.Queue && (q.Newest || q.After != "") {
		return problem.Newf(problem.Invalid, "leave one out", "queue does not go with newest or after")
	}
	list := listing{h: h, ch: &ch, limit: min(q.Limit, pageMost), newest: q.Newest, queue: q.Queue, reasons: q.Reasons, folds: folding{arrays: q.Arrays}, counts: map[string]int{}}
	if list.limit <= 0 {
		list.limit = pageDefault
	}
	if list.from, err = parseCursor(q.After); err != nil {
		return err
	}
	list.over = ch.wantsOver() && (q.Over || ch.named() || len(ch.states) > 0)
	if q.Since != nil {
		list.since = *q.Since
	}
	var v job.View
	show := func(some []job.Job, more int) {
		for i := range some {
			v = h.svc.view(c, &some[i], list.why)
			add(&v, more+len(some)-i)
		}
	}
	if !list.over && !q.Newest && !q.Queue && !q.Arrays && !q.Batches {
		list.show = show
	}
	unfolded := list
	if q.Batches {
		list.folds.file = func(j *job.Job) bool { return h.svc.maySee(c, j) }
	}
	if err := list.read(ctx); err != nil {
		return err
	}
	if list.onlyAFewLines() {
		list = unfolded
		list.counts = map[string]int{}
		if err := list.read(ctx); err != nil {
			return err
		}
	}
	left := len(list.page)
	for some := range slices.Chunk(list.page, h.find.slice) {
		if err := fair.Spend(ctx, len(some)); err != nil {
			return err
		}
		left -= len(some)
		show(some, left)
	}
	return h.sums(ctx, c, &list, &q, reply)
}

// sums adds to a page what is not about one of its jobs.
func (h *jobs) sums(ctx context.Context, c api.Caller, list *listing, q *api.Query, reply *api.JobPage) error {
	reply.Total, reply.Counts, reply.Matching = list.total, list.counts, list.matching
	if q.Arrays || q.Batches {
		var err error
		if reply.Arrays, reply.Batches, err = h.sumUp(ctx, c, list, q.Reasons); err != nil {
			return err
		}
	}
	if q.Order && !list.more {
		if err := h.svc.Do(ctx, func(t *engine.Turn) { reply.Order = sched.Order(t.Explain().State(), pageMost) }); err != nil {
			return err
		}
	}
	if list.more && !list.queue {
		reply.Next = list.cursor().String()
	}
	return nil
}

// listing is a page being built. Unfinished jobs come from the engine, the
// others from the store, which is read later: a job that ends in between is
// found there.
type listing struct {
	h       *jobs
	ch      *choice
	limit   int
	from    cursor
	newest  bool
	reasons bool
	queue   bool    // the first jobs in the order of the queue, and no next page
	folds   folding // in that order, a row is its first job
	over    bool
	since   time.Time

	// show is called with some jobs after others, which are not kept, and with how many
	// are to come, if a page is in order of submission and has no ended jobs.
	show func(some []job.Job, more int)
	last int64 // then: the number of the last job shown

	page     []job.Job
	why      map[string]string // why they wait, if asked for
	first    int               // newest first: how many were unfinished at the first page
	more     bool
	total    int
	counts   map[string]int
	matching map[string]int // with queue: the total by state
}

func (l *listing) read(ctx context.Context) error {
	live := liveQuery{ch: l.ch, after: l.from.seq, limit: l.limit + 1, newest: l.newest, unwritten: l.over, queue: l.queue, reasons: l.reasons, folds: l.folds, at: time.Now()}
	// Counted in the same turn, so that the counts match the list.
	live.then = func(t *engine.Turn, _ []string) {
		countLive(t, l.counts)
	}
	if l.show != nil {
		live.give = func() { l.why = live.why; l.show(live.found, live.left) }
	}
	var err error
	if l.queue {
		l.matching = map[string]int{}
	}
	if l.since.IsZero() {
		err = l.h.find.live(ctx, &live)
		l.total, l.why = live.total, live.why
		maps.Copy(l.matching, live.states)
		l.recount(live.moved)
	} else {
		err = l.h.svc.Do(ctx, func(t *engine.Turn) { live.then(t, nil) })
	}
	if err != nil {
		return err
	}
	if l.over {
		if err := l.count(ctx); err != nil {
			return err
		}
	}
	switch {
	case l.show != nil:
		l.more, l.last = live.more, live.last
	case l.queue:
		err = l.readQueue(ctx, &live)
	case l.newest:
		err = l.readNewest(ctx, &live)
	default:
		err = l.readInOrder(ctx, &live)
	}
	if len(l.page) > l.limit {
		l.page, l.more = l.page[:l.limit], true
	}
	return err
}

// recount makes the counts match the rows, some of which were read later.
func (l *listing) recount(moved []move) {
	for _, m := range moved {
		l.recountOne(m.was, -1)
		if m.is != "" {
			l.recountOne(m.is, 1)
		}
	}
}

func (l *listing) recountOne(state job.State, by int) {
	if state.Terminal() {
		return
	}
	l.counts[string(state)] += by
	l.total += by
	if l.queue {
		l.matching[string(state)] += by
	}
}

func (l *listing) count(ctx context.Context) error {
	f := l.filter(ctx)
	counts, err := l.h.svc.queue.Store.CountOver(f)
	for state, n := range counts {
		l.counts[string(state)] = n
		l.total += n
		if l.queue {
			l.matching[string(state)] = n
		}
	}
	return err
}

func (l *listing) filter(ctx context.Context) store.Filter {
	f := l.ch.filter(ctx)
	f.EndedSince, f.Limit = l.since, l.limit+1
	return f
}

// readInOrder merges both in order of submission.
func (l *listing) readInOrder(ctx context.Context, live *liveQuery) error {
	var over []*job.Job
	if l.over {
		f := l.filter(ctx)
		f.After = store.Cursor{Seq: l.from.seq}
		var err error
		if over, err = l.h.svc.queue.Store.Find(f); err != nil {
			return err
		}
	}
	if l.page = live.found; len(over) == 0 {
		return nil
	}
	l.page = l.without(l.page, over)
	for _, j := range over {
		l.page = append(l.page, *j)
	}
	slices.SortFunc(l.page, func(a, b job.Job) int { return cmp.Compare(a.Seq, b.Seq) })
	return nil
}

// readNewest shows the queue as it was when the first page was made: jobs
// unfinished then, newest first, even if they have ended since; after them the
// others by end, latest first. A job that ends between two pages is therefore
// shown once.
func (l *listing) readNewest(ctx context.Context, live *liveQuery) error {
	if l.from.at == 0 {
		l.from.at = live.at.UnixNano()
	}
	first := time.Unix(0, l.from.at).Add(time.Nanosecond)
	snapshot := l.since.IsZero() && l.ch.wantsLive()
	if snapshot && l.from.ended == 0 {
		l.page = live.found
		if l.over {
			if err := l.addEndedSince(ctx, first); err != nil {
				return err
			}
		}
	}
	if l.first = len(l.page); !l.over || l.first > l.limit {
		return nil
	}
	f := l.filter(ctx)
	f.Newest = true
	if snapshot {
		f.EndedUntil = first
	}
	if l.from.ended != 0 {
		f.After = store.Cursor{Seq: l.from.seq, Ended: l.from.ended}
	}
	over, err := l.h.svc.queue.Store.Find(f)
	l.page = l.without(l.page, over)
	l.first = len(l.page)
	for _, j := range over {
		l.page = append(l.page, *j)
	}
	return err
}

// How many ended jobs are read at a time, and how often, to find those that are
// not part of a row listed already. If that is not enough, the list is
// shorter than it could be, and says that there are more.
const (
	endedRead  = 500
	endedReads = 20
)

// readQueue lists unfinished jobs in the order of the queue, then those that have
// ended, the latest first.
func (l *listing) readQueue(ctx context.Context, live *liveQuery) error {
	var over []*job.Job // ended since they were chosen, or not on disk yet
	for i := range live.found {
		if j := &live.found[i]; j.State.Terminal() {
			over = append(over, j)
		} else {
			l.page = append(l.page, *j)
		}
	}
	slices.SortFunc(over, func(a, b *job.Job) int { return b.EndedAt.Compare(a.EndedAt) })
	l.addEnded(over)
	f := l.filter(ctx)
	f.Newest = true
	if l.folds.arrays || l.folds.file != nil {
		f.Limit = max(f.Limit, endedRead)
	}
	for read := 0; l.over && len(l.page) <= l.limit && read < endedReads; read++ {
		over, err := l.h.svc.queue.Store.Find(f)
		if err != nil {
			return err
		}
		l.addEnded(over)
		if len(over) < f.Limit {
			return nil
		}
		last := over[len(over)-1]
		f.After = store.Cursor{Seq: last.Seq, Ended: last.EndedAt.UnixNano()}
	}
	return nil
}

// addEnded adds ended jobs, unless they are part of a row that is listed.
func (l *listing) addEnded(over []*job.Job) {
	l.page = l.without(l.page, over)
	rows := make(map[row]bool, len(l.page)+len(over))
	for i := range l.page {
		rows[l.folds.row(&l.page[i])] = true
	}
	for _, j := range over {
		if r := l.folds.row(j); !rows[r] {
			rows[r] = true
			l.page = append(l.page, *j)
		}
	}
}

// addEndedSince adds jobs that have ended since the first page was made.
func (l *listing) addEndedSince(ctx context.Context, first time.Time) error {
	f := l.filter(ctx)
	f.EndedSince = first
	var over []*job.Job
	err := l.h.svc.queue.Store.EachOver(f, func(j *job.Job) error {
		if l.from.seq == 0 || j.Seq < l.from.seq {
			over = append(over, j)
		}
		return nil
	})
	if len(over) == 0 {
		return err
	}
	l.page = l.without(l.page, over)
	for _, j := range over {
		l.page = append(l.page, *j)
	}
	slices.SortFunc(l.page, func(a, b job.Job) int { return cmp.Compare(b.Seq, a.Seq) })
	return err
}

// without removes jobs that have ended meanwhile, so that they are not counted
// twice.
func (l *listing) without(live []job.Job, over []*job.Job) []job.Job {
	ended := make(map[string]bool, len(over))
	for _, j := range over {
		ended[j.ID] = true
	}
	return slices.DeleteFunc(live, func(j job.Job) bool {
		if ended[j.ID] {
			l.recountOne(j.State, -1)
		}
		return ended[j.ID]
	})
}

// cursor is a reader's position.
type cursor struct {
	seq   int64 // of the last job shown
	ended int64 // newest first, among finished jobs: when it ended
	at    int64 // newest first: when the first page was made
}

// cursor is the position after this page, if there is more.
func (l *listing) cursor() cursor {
	if l.show != nil {
		return cursor{seq: l.last}
	}
	last := &l.page[len(l.page)-1]
	if !l.newest {
		return cursor{seq: last.Seq}
	}
	c := cursor{seq: last.Seq, at: l.from.at}
	if len(l.page) > l.first {
		c.ended = last.EndedAt.UnixNano()
	}
	return c
}

func (c cursor) String() string { return fmt.Sprintf("%d.%d.%d", c.seq, c.ended, c.at) }

func parseCursor(text string) (c cursor, err error) {
	if text == "" {
		return c, nil
	}
	if n, err := fmt.Sscanf(text, "%d.%d.%d", &c.seq, &c.ended, &c.at); err != nil || n != 3 || c.String() != text {
		return c, problem.Newf(problem.Invalid, "use the cursor of the previous page", "expected a cursor, found %.60q", text)
	}
	return c, nil
}
