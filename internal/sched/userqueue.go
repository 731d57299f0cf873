package sched

import (
	"cmp"
	"slices"
	"sort"
	"strings"
	"time"
)

// userQueue is one user's part of the queue. Users have parts of their own because fair
// share may decide which goes next.
type userQueue struct {
	user  string
	place int        // in the list
	heads list[head] // the classes, ordered by their first job
	ages  list[age]  // the jobs, ordered by submission alone
	first string     // the oldest job at the last Tick
	since time.Time  // since when it has waited as the oldest
	aged  bool       // it is in Queue.aged
}

// userQueueOf is the part of a user, which is made when it is first needed.
func (q *Queue) userQueueOf(user string) *userQueue {
	if l, found := q.byUser[user]; found {
		return l
	}
	l := &userQueue{user: user, place: len(q.users), heads: list[head]{compare: compareHeads}, ages: list[age]{compare: compareAges}}
	q.byUser[user] = l
	q.users = append(q.users, l)
	q.waits.insert(wait{l.since, l})
	return l
}

// dropUserQueue undoes userQueueOf. The last one takes the place of the dropped one.
func (q *Queue) dropUserQueue(l *userQueue) {
	delete(q.byUser, l.user)
	last := len(q.users) - 1
	q.users[l.place] = q.users[last]
	q.users[l.place].place = l.place
	q.users[last] = nil
	q.users = q.users[:last]
	q.waits.remove(wait{l.since, l})
	q.aged = slices.DeleteFunc(q.aged, func(other *userQueue) bool { return other == l })
}

// age notes that the user's oldest job may have changed.
func (q *Queue) age(l *userQueue) {
	if !l.aged {
		l.aged = true
		q.aged = append(q.aged, l)
	}
}

// Tick sets the time: it notes since when each user's oldest job has waited as
// such, and boosts jobs that have waited for long.
func (q *Queue) Tick(now time.Time) {
	for {
		b, some := q.boosts.at(listPos{})
		if !some || b.at.After(now) {
			break
		}
		m := q.jobs[b.job]
		q.take(m)
		m.entry.service, m.entry.policyKey = classBoosted, m.boostSize()
		q.put(m)
	}
	for _, l := range q.aged {
		l.aged = false
		oldest, _ := l.ages.at(listPos{})
		if oldest.job == l.first {
			continue
		}
		since := q.jobs[oldest.job].since
		if l.first != "" && since.Before(now) {
			since = now // an older job was first until now
		}
		q.setOldest(l, oldest.job, since)
	}
	q.aged = q.aged[:0]
}

// setOldest sets the user's oldest job, and since when it has waited as such.
func (q *Queue) setOldest(l *userQueue, job string, since time.Time) {
	q.waits.remove(wait{l.since, l})
	l.first, l.since = job, since
	q.waits.insert(wait{l.since, l})
}

// oldest is what a queue remembers about a user besides the jobs: the oldest at the
// last Tick, and since when.
type oldest struct {
	Job   string    `json:"job"`
	Since time.Time `json:"since"`
}

// restoreOldest sets what another queue remembered.
func (q *Queue) restoreOldest(of map[string]oldest) {
	for user, o := range of {
		if l, waits := q.byUser[user]; waits {
			q.setOldest(l, o.Job, o.Since)
		}
	}
}

// age orders jobs by submission alone.
type age struct {
	rank, seq int64
	job       string
}

func ageOf(e entry) age { return age{e.rank, e.seq, e.job} }

func compareAges(a, b age) int {
	return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.seq, b.seq), strings.Compare(a.job, b.job))
}

// wait records when a job became its user's oldest.
type wait struct {
	since     time.Time
	userQueue *userQueue
}

// overtaken is when the next job becomes overdue; zero: none will.
func (q *Queue) overtaken(now time.Time, bound time.Duration) time.Time {
	for _, chunk := range q.waits.chunks {
		at := sort.Search(len(chunk), func(i int) bool { return chunk[i].since.Add(bound).After(now) })
		if at < len(chunk) {
			return chunk[at].since.Add(bound)
		}
	}
	return time.Time{}
}

func compareWaits(a, b wait) int {
	return cmp.Or(a.since.Compare(b.since), strings.Compare(a.userQueue.user, b.userQueue.user))
}

// OldestSince returns when the longest-waiting of the users' oldest jobs began to
// wait; zero: no job waits. It looks at one job of each user.
func (q *Queue) OldestSince() (oldest time.Time) {
	for _, l := range q.users {
		first, _ := l.ages.at(listPos{})
		if since := q.jobs[first.job].since; oldest.IsZero() || since.Before(oldest) {
			oldest = since
		}
	}
	return oldest
}
