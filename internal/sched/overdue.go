package sched

import (
	"cmp"
	"slices"
	"time"
)

// lateJob is a user's oldest job, past the overtake limit.
type lateJob struct {
	member
	since time.Time
}

// overdue are the jobs past the overtake limit, for each user the oldest; the
// longest wait comes first.
func (q *Queue) overdue(s *State) []lateJob {
	if q == nil || s.Rules.MaxBypass <= 0 {
		return nil
	}
	var all []lateJob
	for p := (listPos{}); ; p = q.waits.after(p) {
		w, some := q.waits.at(p)
		if !some || s.Now.Sub(w.since) < s.Rules.MaxBypass {
			break
		}
		if m, queued := q.jobs[w.userQueue.first]; queued {
			all = append(all, lateJob{m, w.since})
		}
	}
	slices.SortFunc(all, func(a, b lateJob) int {
		return cmp.Or(a.since.Compare(b.since), compareAges(ageOf(a.entry), ageOf(b.entry)))
	})
	if s.Rules.Policy == FIFO {
		return q.overdueUnderFIFO(all)
	}
	return all
}

// overdueUnderFIFO are the oldest jobs of all, as far as they are overdue: under
// FIFO only a higher priority overtakes, and a job submitted after one that is not
// overdue must not go before it.
func (q *Queue) overdueUnderFIFO(all []lateJob) []lateJob {
	slices.SortFunc(all, func(a, b lateJob) int { return compareAges(ageOf(a.entry), ageOf(b.entry)) })
	for n := range all {
		for _, l := range q.users {
			first, at := l.ages.at(listPos{})
			listed := slices.ContainsFunc(all[:n], func(other lateJob) bool { return other.class.userQueue == l })
			if listed {
				first, at = l.ages.at(l.ages.after(listPos{}))
			}
			if at && compareAges(first, ageOf(all[n].entry)) < 0 {
				return all[:n]
			}
		}
	}
	return all
}

// urgency is why a job is considered now.
type urgency int

const (
	ordinary    urgency = iota // in its turn
	overdue                    // past the overtake limit
	longOverdue                // past twice the limit
)

// urgency is longOverdue after twice the limit: then the job relies on no estimate
// any more.
func (l *lateJob) urgency(s *State) urgency {
	if s.Now.Sub(l.since) >= 2*s.Rules.MaxBypass {
		return longOverdue
	}
	return overdue
}
