package sched

import (
	"cmp"
	"math"
	"slices"
)

// never is a time that nothing is known to come to. Times of a layout count in
// nanoseconds from now.
const never = int64(math.MaxInt64)

// bent says which of three lengths a layout gives its runs.
type bent int

const (
	atLeast bent = iota
	asRule
	atMost
)

// layout is the jobs in front of one put onto the cards, each where it can begin
// soonest, none in a gap before another that came up earlier.
type layout struct {
	state *State
	bent  bent
	known *known
	cards []*lane // ascending by index
	host  *lane
	users map[string]*lane
	pools map[string]*lane
	soon  []offer // reused
	last  laidOut // under FIFO, the job in front that begins last
}

// laidOut is what became of the job itself.
type laidOut struct {
	start  int64
	closed bool // it can begin nowhere, whatever ends
	binds  binding
}

// binding is what a start waits for: the end of a run, by its place among those
// under way or in front.
type binding struct {
	held, front int32 // -1: it is not one of these
}

var nobody = binding{held: -1, front: -1}

// offer is when a card can take a request.
type offer struct {
	lane  *lane
	need  *need
	at    int64 // not before a limit lets the job begin
	free  int64 // when the card itself could take it
	binds binding
}

func (k *known) layout(s *State, front []ahead, self *ask, b bent) laidOut {
	l := &layout{state: s, bent: b, known: k, users: map[string]*lane{}, pools: map[string]*lane{}}
	l.last.binds = nobody
	l.open()
	for i := range front {
		a := &front[i]
		if b == atLeast && s.Rules.Policy != FIFO && !a.kept && !self.takes(a.ask) {
			continue // the job may pass one that asks for more
		}
		l.place(a.ask, l.length(a.left), binding{held: -1, front: int32(i)})
	}
	return l.place(self, 0, nobody)
}

// open puts what runs now onto the cards.
func (l *layout) open() {
	s := l.state
	byIndex := make(map[int]*lane, len(l.known.slots))
	for _, c := range l.known.slots {
		n := &lane{card: c, least: l.known.least.card, room: [2]float64{float64(c.TotalMiB - c.ReservedMiB - c.ForeignMiB), 1}}
		l.cards = append(l.cards, n)
		byIndex[c.Index] = n
	}
	l.host = &lane{least: l.known.least.host, room: [2]float64{boundless(float64(s.Host.CPUs)), boundless(float64(s.Host.MemMiB))}}
	for i, h := range l.known.runs {
		end, who := l.length(l.known.held[i]), binding{held: int32(i), front: -1}
		for j, index := range h.Cards {
			if n := byIndex[index]; n != nil {
				n.add(stay{end: end, use: [2]float64{float64(h.budget(j)), h.share()}, alone: h.Alone || h.Exclusive, who: who}, l.bent)
			}
		}
		l.host.add(stay{end: end, use: [2]float64{float64(h.CPUs), float64(h.MemMiB)}, who: who}, l.bent)
		if n := l.user(h.User); n != nil && !h.Other {
			n.add(stay{end: end, use: [2]float64{1, h.CountedGPUs()}, who: who}, l.bent)
		}
	}
}

func boundless(room float64) float64 {
	if room <= 0 {
		return math.Inf(1)
	}
	return room
}

// length is how long a run lasts in this layout.
func (l *layout) length(left Span) int64 {
	d := left.Mid
	switch l.bent {
	case atLeast:
		return int64(left.Low)
	case asRule:
		if d <= 0 {
			d = l.known.typical
		}
	case atMost:
		d = left.High
	}
	if d <= 0 {
		return never
	}
	return int64(d)
}

// user is what a user's limit leaves; nil where there is none.
func (l *layout) user(name string) *lane {
	limit := l.state.DefaultLimit
	if own, found := l.state.Limits[name]; found {
		limit = own
	}
	if limit == (Limit{}) {
		return nil
	}
	n, found := l.users[name]
	if !found {
		n = &lane{least: [2]float64{1, 0}, room: [2]float64{boundless(float64(limit.Jobs)), boundless(limit.GPUs + limitTolerance)}}
		if limit.GPUs <= 0 {
			n.room[1] = math.Inf(1)
		}
		l.users[name] = n
	}
	return n
}

// pool is what an array's limit leaves. Nothing says when those of its tasks
// end that run now, so that they are taken to last as other runs do.
func (l *layout) pool(g *group) *lane {
	if g.poolLimit <= 0 {
		return nil
	}
	n, found := l.pools[g.pool]
	if !found {
		n = &lane{least: [2]float64{1, 0}, room: [2]float64{float64(g.poolLimit), math.Inf(1)}}
		for range min(l.state.Pools[g.pool], g.poolLimit, maxStays) {
			n.add(stay{end: l.length(Span{}), use: [2]float64{1, 0}, who: nobody}, l.bent)
		}
		l.pools[g.pool] = n
	}
	return n
}

// place lets a job begin where it can soonest and last for so long. One that
// can begin nowhere is left out: it is in nobody's way.
func (l *layout) place(a *ask, length int64, who binding) laidOut {
	out := laidOut{binds: nobody}
	user, pool := l.user(a.group.user), l.pool(a.group)
	if user != nil {
		out.wait(user.soonest(&a.user))
	}
	if pool != nil {
		out.wait(pool.soonest(&oneOfPool))
	}
	limited := out.start
	out.wait(l.host.soonest(&a.host))
	chosen, ok := l.choose(a, limited, &out)
	if !ok || out.closed {
		return laidOut{start: never, closed: true, binds: nobody}
	}
	if l.state.Rules.Policy == FIFO {
		out.wait(l.last.start, l.last.binds, true)
		l.last.wait(out.start, who, true)
	}
	end := later(out.start, length)
	if user != nil {
		user.add(stay{end: end, use: a.user.use, who: who}, l.bent)
	}
	if pool != nil {
		pool.add(stay{end: end, use: oneOfPool.use, who: who}, l.bent)
	}
	if slices.ContainsFunc(chosen, func(o offer) bool { return o.free < limited }) {
		return out // its limit keeps it from a card that others take meanwhile
	}
	for _, o := range chosen {
		o.lane.add(stay{end: end, use: o.need.use, alone: o.need.empty, who: who}, l.bent)
	}
	l.host.add(stay{end: end, use: a.host.use, who: who}, l.bent)
	return out
}

// choose takes the cards that can take the request soonest, but not before its
// limits do; of those that can at the same time the one that comes free last, so
// that a limit leaves no card idle, and then the fullest, which leaves room for
// others to begin together.
func (l *layout) choose(a *ask, limited int64, out *laidOut) ([]offer, bool) {
	gpus := a.group.request.GPUs
	l.soon = l.soon[:0]
	for i, index := range a.cards {
		n := l.cards[index]
		if at, binds, ok := n.soonest(&a.needs[i]); ok {
			l.soon = append(l.soon, offer{n, &a.needs[i], max(at, limited), at, binds})
		}
	}
	if len(l.soon) < gpus {
		return nil, false
	}
	// Picking the best again and again is cheapest for the few that are wanted.
	for i := range gpus {
		best := i
		for k := i + 1; k < len(l.soon); k++ {
			if l.soon[k].compare(&l.soon[best]) < 0 {
				best = k
			}
		}
		l.soon[i], l.soon[best] = l.soon[best], l.soon[i]
		out.wait(l.soon[i].at, l.soon[i].binds, true)
	}
	return l.soon[:gpus], true
}

func (o *offer) compare(p *offer) int {
	switch {
	case o.at != p.at:
		return cmp.Compare(o.at, p.at)
	case o.free != p.free:
		return cmp.Compare(p.free, o.free)
	case len(o.lane.stays) != len(p.lane.stays):
		return len(p.lane.stays) - len(o.lane.stays)
	}
	return o.lane.card.Index - p.lane.card.Index
}

// wait puts the start off until then.
func (o *laidOut) wait(at int64, binds binding, ok bool) {
	switch {
	case !ok:
		o.start, o.closed = never, true
	case at > o.start:
		o.start, o.binds = at, binds
	}
}

func later(at, by int64) int64 {
	if at >= never-by {
		return never
	}
	return at + by
}
