package sched

import (
	"cmp"
	"math"
	"slices"
)

// never is a time that does not come. Times of a layout are nanoseconds from now.
const never = int64(math.MaxInt64)

// bent selects one of the three durations of an estimate for a layout.
type bent int

const (
	atLeast bent = iota
	asRule
	atMost
)

// layout puts the jobs in front of one onto the cards, each where it can start
// soonest, even in a gap before a job that came up earlier, unless there are too
// many of them.
type layout struct {
	state *State
	bent  bent
	known *known
	cards []*lane // ascending by index
	host  *lane
	users map[string]*lane
	hosts map[string]*lane // what users' limits leave of the host
	pools map[string]*lane
	named map[GroupName]*lane
	soon  []offer // reused
	last  laidOut // under FIFO, the job in front that starts last
	gaps  bool
}

// laidOut is the result for the job itself.
type laidOut struct {
	start  int64
	closed bool // it can start nowhere, whatever ends
	binds  binding
}

// binding is what a start waits for: the end of a job, by its index among those
// running or in front.
type binding struct {
	held, front int32 // -1: not one of these
}

var nobody = binding{held: -1, front: -1}

// offer is when a card can take a request.
type offer struct {
	at, free int64 // free: the same without the limits
	binds    binding
	card     int32 // by its place among all
	need     int32 // by its place among the request's
}

// gapBound is up to how many jobs in front gaps are used. It bounds the cost of an
// answer; further ahead nobody can tell what fits where.
const gapBound = 1024

func (k *known) layout(s *State, front []*ahead, self *ask, left Estimate, b bent) laidOut {
	l := k.newLayout(s, b)
	for i, a := range front {
		if b == atLeast && s.Rules.Policy != FIFO && !a.kept && !self.takes(a.ask) {
			continue // the job may overtake one that asks for more
		}
		l.placeFront(i, a)
	}
	length := l.length(left)
	if b == atMost {
		length = never // other jobs may take a gap first
	}
	return l.place(self, length, nobody)
}

// newLayout has the running jobs on the cards.
func (k *known) newLayout(s *State, b bent) *layout {
	l := &layout{state: s, bent: b, known: k, users: map[string]*lane{}, hosts: map[string]*lane{}, pools: map[string]*lane{}, named: map[GroupName]*lane{}, gaps: true}
	l.last.binds = nobody
	l.open()
	return l
}

// placeFront places the next job in front.
func (l *layout) placeFront(i int, a *ahead) laidOut {
	l.gaps = i < gapBound
	return l.place(a.ask, l.length(a.left), binding{held: -1, front: int32(i)})
}

// open puts the running jobs onto the cards.
func (l *layout) open() {
	s := l.state
	byIndex := make(map[int]*lane, len(l.known.slots))
	for _, c := range l.known.slots {
		n := newLane([2]float64{float64(c.TotalMiB - c.ReservedMiB - c.ForeignMiB), 1}, l.known.least.card)
		n.card = c
		l.cards = append(l.cards, n)
		byIndex[c.Index] = n
	}
	l.host = newLane([2]float64{boundless(float64(s.Host.CPUs)), boundless(float64(s.Host.MemMiB))}, l.known.least.host)
	for i, h := range l.known.runs {
		end, who := l.length(l.known.held[i]), binding{held: int32(i), front: -1}
		for j, index := range h.Cards {
			if n := byIndex[index]; n != nil {
				n.add(stay{end: end, use: [2]float64{float64(h.budget(j)), h.share()}, alone: h.Alone || h.Exclusive, who: who}, l)
			}
		}
		l.host.add(stay{end: end, use: [2]float64{float64(h.CPUs), float64(h.MemMiB)}, who: who}, l)
		if n := l.user(h.User); n != nil && !h.Other {
			n.add(stay{end: end, use: [2]float64{1, h.CountedGPUs()}, who: who}, l)
		}
		if n := l.userHost(h.User); n != nil && !h.Other {
			n.add(stay{end: end, use: [2]float64{float64(h.CPUs), float64(h.MemMiB)}, who: who}, l)
		}
	}
}

func boundless(room float64) float64 {
	if room <= 0 {
		return math.Inf(1)
	}
	return room
}

// length is how long a job lasts in this layout.
func (l *layout) length(left Estimate) int64 {
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

// user is what a user's limit leaves of jobs and GPUs; nil without a limit.
func (l *layout) user(name string) *lane {
	limit, _ := l.state.limitOf(name)
	if limit.Jobs <= 0 && limit.GPUs <= 0 {
		return nil
	}
	n, found := laneOf(l.users, name, [2]float64{boundless(float64(limit.Jobs)), boundless(limit.GPUs)}, [2]float64{1, 0})
	if parked := l.state.InUse[name].Parked; parked > 0 && !found {
		n.least = [2]float64{} // they come back whatever the limit on jobs leaves
		n.add(stay{end: l.length(Estimate{}), use: [2]float64{float64(parked), 0}, who: nobody}, l)
	}
	return n
}

// userHost is what a user's limit leaves of the host; nil without a limit.
func (l *layout) userHost(name string) *lane {
	limit, _ := l.state.limitOf(name)
	if limit.CPUs <= 0 && limit.MemMiB <= 0 {
		return nil
	}
	n, _ := laneOf(l.hosts, name, [2]float64{boundless(float64(limit.CPUs)), boundless(float64(limit.MemMiB))}, [2]float64{})
	return n
}

// laneOf is the user's lane, which is made when it is first needed.
func laneOf(lanes map[string]*lane, user string, room, least [2]float64) (n *lane, found bool) {
	n, found = lanes[user]
	if !found {
		n = newLane(room, least)
		lanes[user] = n
	}
	return n, found
}

// pool is what an array's limit leaves. The ends of its running tasks are not known
// one by one, so they are taken to last as other jobs do.
func (l *layout) pool(g *class) *lane {
	if g.arrayLimit <= 0 {
		return nil
	}
	n, found := l.pools[g.array]
	if !found {
		n = newLane([2]float64{float64(g.arrayLimit), math.Inf(1)}, [2]float64{1, 0})
		n.add(stay{end: l.length(Estimate{}), use: [2]float64{float64(l.state.ArrayRuns[g.array]), 0}, who: nobody}, l)
		l.pools[g.array] = n
	}
	return n
}

// group is what the limit of a JobGroup leaves, nothing while it is paused.
func (l *layout) group(g *class) *lane {
	of := l.state.Groups[g.groupName()]
	if of.Limit <= 0 && of.PausedBy == "" {
		return nil
	}
	n, found := l.named[g.groupName()]
	if found {
		return n
	}
	room := float64(of.Limit)
	if of.PausedBy != "" {
		room = 0
	}
	n = newLane([2]float64{room, math.Inf(1)}, [2]float64{1, 0})
	for i, h := range l.known.runs {
		if !h.Other && slices.Contains(of.Running, h.Job) {
			n.add(stay{end: l.length(l.known.held[i]), use: oneOfPool.use, who: binding{held: int32(i), front: -1}}, l)
		}
	}
	l.named[g.groupName()] = n
	return n
}

// maxRounds bounds how often a start is put off because one of several cards is
// taken again when the others are free.
const maxRounds = 8

// place lets a job start where it can soonest and last this long. A job that can
// start nowhere is left out: it holds up no other.
func (l *layout) place(a *ask, length int64, who binding) laidOut {
	w := want{ask: a, length: length, user: l.user(a.class.user), pool: l.pool(a.class), named: l.group(a.class)}
	if a.host.use != ([2]float64{}) {
		w.userHost = l.userHost(a.class.user)
	}
	out := laidOut{binds: nobody}
	if l.state.Rules.Policy == FIFO {
		out = l.last
	}
	w.from = out.start
	if out = l.limits(&w, out, l.gaps); out.closed {
		return out
	}
	w.limited = out.start
	chosen, out := l.fit(&w, out)
	if out.closed {
		return out
	}
	if l.state.Rules.Policy == FIFO {
		l.last.wait(out.start, who, true)
	}
	s := stay{begin: out.start, end: later(out.start, length), who: who}
	if w.user != nil {
		w.user.add(s.with(&a.user), l)
	}
	if w.userHost != nil {
		w.userHost.add(s.with(&a.host), l)
	}
	if w.pool != nil {
		w.pool.add(s.with(&oneOfPool), l)
	}
	if w.named != nil {
		w.named.add(s.with(&oneOfPool), l)
	}
	if slices.ContainsFunc(chosen, func(o offer) bool { return o.free < w.limited }) {
		return out // its limit holds it back while others take the card
	}
	for _, o := range chosen {
		l.cards[o.card].add(s.with(&a.needs[o.need]), l)
	}
	l.host.add(s.with(&a.host), l)
	return out
}

func (s stay) with(d *need) stay {
	s.use, s.alone = d.use, d.empty
	return s
}

// want is a job to be placed.
type want struct {
	*ask
	length  int64
	from    int64 // no earlier
	limited int64 // until then a limit holds it back

	user, userHost, pool, named *lane // nil: no limit
}

// limits puts a start off until the limits of the user, the array and the JobGroup
// allow it.
func (l *layout) limits(w *want, out laidOut, gaps bool) laidOut {
	if w.user != nil {
		out.wait(w.user.soonest(&w.ask.user, out.start, w.length, gaps))
	}
	if w.userHost != nil {
		out.wait(w.userHost.soonest(&w.ask.host, out.start, w.length, gaps))
	}
	if w.pool != nil {
		out.wait(w.pool.soonest(&oneOfPool, out.start, w.length, gaps))
	}
	if w.named != nil {
		out.wait(w.named.soonest(&oneOfPool, out.start, w.length, gaps))
	}
	if out.closed {
		return laidOut{start: never, closed: true, binds: nobody}
	}
	return out
}

// fit finds when there is room for all that the job needs at once. A lane that had
// room earlier may have none then, so it is asked again.
func (l *layout) fit(w *want, out laidOut) ([]offer, laidOut) {
	for round := 0; ; round++ {
		from, gaps := out.start, l.gaps && round < maxRounds
		out.wait(l.host.soonest(&w.host, from, w.length, gaps))
		chosen, ok := l.choose(w, from, gaps, &out)
		if out = l.limits(w, out, gaps); out.closed || !ok {
			return nil, laidOut{start: never, closed: true, binds: nobody}
		}
		if out.start == from || out.start == never || !gaps || w.simple() {
			return chosen, out
		}
	}
}

// simple reports that the job needs one card and nothing else.
func (w *want) simple() bool {
	return w.class.request.GPUs == 1 && w.user == nil && w.pool == nil && w.named == nil && w.host.use == [2]float64{}
}

// choose takes the cards that can take the request soonest; among equals the one
// that comes free last, so that a limit leaves no card idle, and then the fullest,
// or the emptiest where jobs are spread.
func (l *layout) choose(w *want, from int64, gaps bool, out *laidOut) ([]offer, bool) {
	gpus := w.class.request.GPUs
	l.soon = l.soon[:0]
	for i, index := range w.cards {
		n, d := l.cards[index], &w.needs[i]
		at, binds, ok := n.soonest(d, from, w.length, gaps)
		if !ok {
			continue
		}
		o := offer{at: at, free: at, binds: binds, card: int32(index), need: int32(i)}
		if w.limited > w.from {
			o.free, _, _ = n.soonest(d, w.from, w.length, gaps)
		}
		l.soon = append(l.soon, o)
	}
	if len(l.soon) < gpus {
		return nil, false
	}
	// Picking the best repeatedly is cheapest for a few cards.
	for i := range gpus {
		best := i
		for k := i + 1; k < len(l.soon); k++ {
			if at := l.soon[best].at; l.soon[k].at < at || l.soon[k].at == at && l.compare(w, &l.soon[k], &l.soon[best]) < 0 {
				best = k
			}
		}
		l.soon[i], l.soon[best] = l.soon[best], l.soon[i]
		out.wait(l.soon[i].at, l.soon[i].binds, true)
	}
	return l.soon[:gpus], true
}

// compare orders cards that can take the request at the same time, as a decision
// would.
func (l *layout) compare(w *want, o, p *offer) int {
	if o.free != p.free {
		return cmp.Compare(p.free, o.free)
	}
	own, other := l.cards[o.card].leftAt(o.at), l.cards[p.card].leftAt(p.at)
	own[0], other[0] = own[0]-w.needs[o.need].use[0], other[0]-w.needs[p.need].use[0]
	switch {
	case own[0] != other[0]:
		return l.packs(cmp.Compare(own[0], other[0]))
	case math.Abs(own[1]-other[1]) > roomTolerance:
		return l.packs(cmp.Compare(own[1], other[1]))
	}
	return int(o.card - p.card)
}

// packs reverses the order of packing where the rules spread.
func (l *layout) packs(order int) int {
	if l.state.Rules.Placement == Spread {
		return -order
	}
	return order
}

// wait puts the start off until then.
func (o *laidOut) wait(at int64, binds binding, ok bool) {
	switch {
	case !ok:
		o.start, o.closed = never, true
	case at > o.start, at == o.start && o.binds == nobody:
		o.start, o.binds = at, binds
	}
}

func later(at, by int64) int64 {
	if at >= never-by {
		return never
	}
	return at + by
}
