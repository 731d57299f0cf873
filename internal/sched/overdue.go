package sched

import (
	"cmp"
	"slices"
	"time"
)

// late is a user's oldest job that was overtaken for as long as a job may be.
type late struct {
	member
	since time.Time
}

// overdue are the jobs that were overtaken for as long as may be, of each user the
// oldest; the one that has waited longest comes first.
func (q *Queue) overdue(s *State) []late {
	if q == nil || s.Rules.MaxBypass <= 0 {
		return nil
	}
	var all []late
	for p := (place{}); ; p = q.waits.after(p) {
		w, some := q.waits.at(p)
		if !some || s.Now.Sub(w.since) < s.Rules.MaxBypass {
			break
		}
		if m, queued := q.jobs[w.line.first]; queued {
			all = append(all, late{m, w.since})
		}
	}
	slices.SortFunc(all, func(a, b late) int {
		return cmp.Or(a.since.Compare(b.since), compareAges(ageOf(a.entry), ageOf(b.entry)))
	})
	if s.Rules.Policy == FIFO {
		return q.overdueUnderFIFO(all)
	}
	return all
}

// overdueUnderFIFO are the oldest jobs of all, for as long as they are overdue:
// under FIFO only a higher priority overtakes anybody, and a job that came later
// than one that is not overdue has no claim before it.
func (q *Queue) overdueUnderFIFO(all []late) []late {
	slices.SortFunc(all, func(a, b late) int { return compareAges(ageOf(a.entry), ageOf(b.entry)) })
	for n := range all {
		for _, l := range q.users {
			first, at := l.ages.at(place{})
			listed := slices.ContainsFunc(all[:n], func(other late) bool { return other.group.line == l })
			if listed {
				first, at = l.ages.at(l.ages.after(place{}))
			}
			if at && compareAges(first, ageOf(all[n].entry)) < 0 {
				return all[:n]
			}
		}
	}
	return all
}

// urgency is how a job comes to be looked at.
type urgency int

const (
	ordinary    urgency = iota // in its turn
	overdue                    // it was overtaken for as long as a job may be
	longOverdue                // for twice as long
)

// urgency is how the job comes to be looked at: after twice the limit it relies on
// no estimate any more.
func (l *late) urgency(s *State) urgency {
	if s.Now.Sub(l.since) >= 2*s.Rules.MaxBypass {
		return longOverdue
	}
	return overdue
}
