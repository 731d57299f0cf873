package sched

import (
	"math"
	"slices"

	"berth/internal/job/reason"
)

// ask is what the jobs of a group want of each lane.
type ask struct {
	class *class
	cards []int  // the cards they may have at some time, by their place among all
	needs []need // of each of those
	host  need
	user  need
}

// oneOfPool is a task's part of its array's limit.
var oneOfPool = need{use: [2]float64{1, 0}, room: [2]float64{1, 0}}

// askOf works out what a group asks for. It leaves out cards that take no job until
// a person acts; a load caused by a berth job ends with that job.
func askOf(s *State, slots []*slot, g *class) *ask {
	r := &g.request
	ids := splitIDs(r.IDs)
	a := &ask{class: g}
	a.host.use = [2]float64{float64(r.CPUs), float64(r.MemMiB)}
	a.user.use = [2]float64{1, r.CountedGPUs()}
	a.host.room, a.user.room = a.host.use, a.user.use
	if r.GPUs == 0 {
		return a
	}
	a.cards, a.needs = make([]int, 0, len(slots)), make([]need, 0, len(slots))
	for i, c := range slots {
		switch {
		case c.shut() != "" || c.closed == reason.ObstacleLoad && len(c.holds) == 0, !r.allows(c.Card):
		case ids != nil && !slices.Contains(ids, c.Index):
		case r.undeclared() && c.IdleForeignMiB >= s.Rules.IdleThresholdMiB:
		default:
			a.cards = append(a.cards, i)
			a.needs = append(a.needs, r.needOf(c.TotalMiB, s.Rules.MarginMiB))
		}
	}
	return a
}

// needOf is what the request needs of a card of this size.
func (r *Request) needOf(totalMiB, marginMiB int64) need {
	n := need{use: [2]float64{float64(r.budgetOn(totalMiB)), r.Share}, empty: r.undeclared() || r.Exclusive}
	n.room = n.use
	if r.VRAMMiB > 0 {
		n.room[0] += float64(marginMiB)
	}
	return n
}

// takes reports whether the other's request fits wherever this one does, so that it
// certainly goes first.
func (a *ask) takes(other *ask) bool {
	r, o := &a.class.request, &other.class.request
	return a == other || r.GPUs >= o.GPUs && r.VRAMMiB >= o.VRAMMiB && r.Share >= o.Share && r.CPUs >= o.CPUs && r.MemMiB >= o.MemMiB
}

// least is what every job in question needs at least of a shared card, and of the
// host.
type least struct{ card, host [2]float64 }

func leastOf(asks map[Request]*ask) least {
	inf := math.Inf(1)
	l := least{card: [2]float64{inf, inf}, host: [2]float64{inf, inf}}
	for _, a := range asks {
		l.host = [2]float64{min(l.host[0], a.host.room[0]), min(l.host[1], a.host.room[1])}
		for i := range a.needs {
			if n := &a.needs[i]; !n.empty {
				l.card = [2]float64{min(l.card[0], n.room[0]), min(l.card[1], n.room[1])}
			}
		}
	}
	return l
}
