package sched

import (
	"cmp"
	"slices"
	"sort"
	"time"
)

// future is the machine as it is expected to be when a job can start that waits
// now, with that job on it. Whoever would still run then has to fit on it too.
type future struct {
	job   string
	at    time.Time
	usual time.Duration // how long it lasts from then on as a rule; 0: not known
	board *board
	held  *Held // the job on it
	cards []int
	tie   tie
	claim bool // room was made for it: it is among what was given away
}

// tie is how far a future binds those who start before it.
type tie int

const (
	// soft binds what as a rule runs for longer. What nothing is known of may
	// pass: for how long at most, MaxBypass says.
	soft tie = iota
	// lean binds what nothing is known of too.
	lean
	// firm binds all but what is expected to be gone at most by then.
	firm
	// hard binds all but what its time limit ends before.
	hard
)

// binds reports whether what starts at a moment and lasts that long has to fit
// beside the job.
func (f *future) binds(from time.Time, l lasts) bool {
	switch {
	case f.tie == hard:
		return l.limit <= 0 || from.Add(l.limit).After(f.at)
	case l.expected <= 0:
		return f.tie != soft
	case f.tie == firm:
		return from.Add(l.expected).After(f.at)
	}
	return from.Add(l.usual).After(f.at)
}

// keeper knows for whom cards are kept from one who would start at a moment.
type keeper struct {
	futures []*future
	from    time.Time
	lasts   lasts
}

// keeper is for one who would start now.
func (d *decision) keeper(h *head) keeper { return keeper{d.futures, d.state.Now, h.lasts} }

// keeperAt is for one who would start at a moment, on a board that has all on it
// for whom room was made.
func (d *decision) keeperAt(h *head, moment time.Time) keeper {
	over := func(f *future) bool { return f.claim || !f.at.After(moment) && moment.After(d.state.Now) }
	later := d.futures
	if slices.ContainsFunc(later, over) {
		later = slices.DeleteFunc(slices.Clone(later), over)
	}
	return keeper{later, moment, h.lasts}
}

// but leaves out what is kept for a job: nobody stands in their own way.
func (k keeper) but(job string) keeper {
	own := func(f *future) bool { return f.job == job }
	if slices.ContainsFunc(k.futures, own) {
		k.futures = slices.DeleteFunc(slices.Clone(k.futures), own)
	}
	return k
}

// by is what keeps the card from the request, or nil. What is not for the one who
// waits is as free then as it is now.
func (k keeper) by(c *slot, r *Request) *future {
	for _, f := range k.futures {
		if !slices.Contains(f.cards, c.Index) || !f.binds(k.from, k.lasts) {
			continue
		}
		if _, obstacle := f.board.fit(f.board.slot(c.Index), r); obstacle != "" {
			return f
		}
	}
	return nil
}

// host is what keeps cpus or memory of the host from the job, or nil.
func (k keeper) host(a *amounts) *future {
	for _, f := range k.futures {
		if !f.board.hostFits(a) && f.binds(k.from, k.lasts) {
			return f
		}
	}
	return nil
}

// depthOf is for how many jobs that wait cards are kept.
func (d *decision) depthOf() int {
	switch r := &d.state.Rules; {
	case d.parks() || r.Policy == Conservative:
		return reservationsMost
	case r.Policy == Backfill || r.Policy == "":
		return 1
	}
	return 0
}

// parks reports whether jobs take turns by being parked.
func (d *decision) parks() bool {
	if r := &d.state.Rules; !r.slices() && r.Policy != LAS {
		return false
	}
	return slices.ContainsFunc(d.held, func(h *Held) bool { return h.Aside.Mode == Park })
}

// keep keeps cards for a job that does not fit: those it will get first. It
// reports whether that can be done for more.
func (d *decision) keep(h *head, s standing) bool {
	if d.pressed {
		s = asUsual // one at a time: the others are no worse off than before
	}
	kind := soft
	switch {
	case s == passedTooLong:
		kind = lean
	case s == passedForEver:
		kind = hard
	case d.kept >= d.depth:
		return false
	case d.parks():
		kind = firm
	}
	if s == asUsual {
		d.kept++
	}
	var horizon time.Time
	if kind == firm {
		horizon = d.state.Now.Add(reservationSoon)
	}
	f := d.foresee(h, s, horizon)
	if f == nil {
		return false
	}
	d.pressed = d.pressed || s != asUsual
	f.tie = kind
	d.futures = append(d.futures, f)
	d.plan.Reservations = append(d.plan.Reservations, Reservation{Job: h.job, Cards: f.cards, At: f.at, Hard: kind == hard})
	return s == asUsual && d.kept < d.depth
}

// departure is when a running job is expected to be off its cards, or, where it is
// nil, one for whom cards are kept.
type departure struct {
	held *Held
	at   time.Time
}

// foresee finds the earliest moment at which the job is expected to fit, and
// nil where there is none before the horizon. Runs end in the order of their
// departures, and with each there is more room: the moment is found by halving.
// Where others begin in between there may be less room too, and the moments are
// tried one by one.
func (d *decision) foresee(h *head, s standing, horizon time.Time) *future {
	departures := d.departures(h, s, horizon)
	sweep := d.sweep(h, departures)
	first, ever := sweep.firstEnough()
	if !ever {
		return nil
	}
	if d.places == nil {
		d.places = make(map[*Held]int, len(departures))
	}
	clear(d.places)
	places := d.places // in their order, from 1
	for i, departure := range departures {
		places[departure.held] = i + 1
	}
	left := func(n int) func(*Held) bool {
		return func(held *Held) bool { place := places[held]; return place > 0 && place <= n }
	}
	try := func(n int) *future {
		at, n := d.moment(departures, n)
		f, _ := d.fitsWithout(h, left(n), at)
		return f
	}
	if len(d.futures) > 0 && s == asUsual {
		if !d.whenLeft(left(len(departures)), horizon).fits(h, keeper{}) {
			return nil
		}
		for n := first; n <= min(len(departures), reservationMoments); n++ {
			if sweep.tooFew(n) {
				continue
			}
			if f := try(n); f != nil {
				return f
			}
		}
		return nil
	}
	last := try(len(departures)) // as a rule there is none, and that is that
	if last == nil {
		return nil
	}
	n := sort.Search(len(departures), func(n int) bool { return try(n) != nil })
	if n == len(departures) {
		return last
	}
	return try(n)
}

// moment is when so many have left, and how many have by then: who leaves at the
// same moment is gone too.
func (d *decision) moment(departures []departure, n int) (time.Time, int) {
	if n == 0 {
		return d.state.Now, 0
	}
	at := departures[n-1].at
	for n < len(departures) && departures[n].at.Equal(at) {
		n++
	}
	return at, n
}

// whenLeft is the machine when all have left that leave before the horizon. Where
// there is none that is everybody who runs or was given cards, for whomever it is
// asked, and so it is made once.
func (d *decision) whenLeft(gone func(*Held) bool, horizon time.Time) *ceiling {
	if !horizon.IsZero() {
		return d.newCeiling(gone)
	}
	if d.emptied == nil {
		d.emptied = d.newCeiling(gone)
	}
	return d.emptied
}

// departures are the ends that are expected of what runs up to the horizon, if
// there is one, the first ones first.
func (d *decision) departures(h *head, s standing, horizon time.Time) []departure {
	list := d.leaving[:0]
	for _, held := range d.held {
		list = append(list, departure{held, d.leaves(held, h, s)})
	}
	for _, held := range d.given {
		list = append(list, departure{held, latest(d.state.Now, held.Started).Add(held.rest(d.state.Now))})
	}
	for _, f := range d.futures {
		if end, known := f.ends(); known && !f.claim {
			list = append(list, departure{nil, end})
		}
	}
	if !horizon.IsZero() {
		list = slices.DeleteFunc(list, func(o departure) bool { return o.at.After(horizon) })
	}
	slices.SortStableFunc(list, func(a, b departure) int { return a.at.Compare(b.at) })
	d.leaving = list
	return list
}

// ends is when the job is expected to be done again for whom cards are kept.
func (f *future) ends() (time.Time, bool) {
	return f.at.Add(f.usual), f.usual > 0
}

// leaves is when a running job is expected to be off its cards, seen by one that
// waits for them.
func (d *decision) leaves(held *Held, h *head, s standing) time.Time {
	now := d.state.Now
	switch {
	case held.Leaving:
		return latest(now, held.LeavesBy)
	case d.gone[held]:
		return now.Add(held.Aside.Out)
	case d.outranks(h, held, s):
		return latest(now, d.mayLeave(held, h)).Add(held.Aside.Out)
	case held.Started.IsZero():
		return now.Add(otherBerthsEstimate)
	}
	return now.Add(held.rest(now))
}

// rest is how much longer a run is expected to last. One that has had all that was
// expected, over all its runs, is expected to take as long again.
func (h *Held) rest(now time.Time) time.Duration {
	ran := h.lasted(now)
	rest := h.Run.Left(h.Served+ran, 0).Mid
	if h.Limit > 0 {
		rest = min(rest, max(0, h.Limit-ran))
	}
	return rest
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// fitsWithout is the future in which those are gone that the caller says, if the
// job fits there from that moment on.
func (d *decision) fitsWithout(h *head, gone func(*Held) bool, at time.Time) (*future, bool) {
	if d.tooFew(h, gone, at) {
		return nil, false
	}
	kept := d.keeperAt(h, at)
	if d.tooMuchKept(h, kept) {
		return nil, false
	}
	b, r := d.boardWithout(gone, at), &h.group.request
	if h.gpus > 0 && b.unreadable != "" || !b.hostFits(&h.amounts) || kept.host(&h.amounts) != nil {
		d.spare = b
		return nil, false
	}
	grant, ok := newKinship(b, r).grant(r, kept)
	if !ok {
		d.spare = b
		return nil, false
	}
	held := d.granted(h, grant, at)
	b.book(held)
	return &future{job: h.job, at: at, usual: h.lasts.usual, board: b, held: held, cards: grant.GPUs}, true
}

// begun reports whether the job for whom cards are kept is expected to be on them
// at a moment. One for whom room was made is among what was given away.
func (d *decision) begun(f *future, at time.Time) bool {
	if f.claim || f.at.After(at) || !at.After(d.state.Now) {
		return false
	}
	end, known := f.ends()
	return !known || end.After(at)
}

// boardWithout is the machine at a moment without those jobs, and with all that
// was given away or is kept until then. What is measured of a card now, beyond
// foreign use, says nothing of it when somebody has left.
func (d *decision) boardWithout(gone func(*Held) bool, at time.Time) *board {
	b := d.bareBoard()
	for _, list := range [][]*Held{d.held, d.given} {
		for _, h := range list {
			if !gone(h) {
				b.book(h)
			}
		}
	}
	for _, f := range d.futures {
		if d.begun(f, at) {
			b.book(f.held)
		}
	}
	for i, c := range b.slots {
		c.closed = c.shut()
		if now := d.board.slots[i]; c.closed == "" && !slices.ContainsFunc(now.holders, gone) {
			c.closed = now.closed
		}
	}
	return b
}

// again is when time alone changes what would be decided.
func (d *decision) again() time.Time {
	q, now := d.state.Queue, d.state.Now
	if q == nil || q.Len() <= len(d.plan.Starts) {
		return time.Time{}
	}
	next := d.plan.Again // what was waited for on the way
	soonest := func(t time.Time) {
		if t.After(now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if b, some := q.boosts.at(place{}); some {
		soonest(b.at)
	}
	if bypass := d.state.Rules.MaxBypass; bypass > 0 {
		soonest(q.passed(now, bypass))
		soonest(q.passed(now, 2*bypass))
	}
	for _, h := range d.held {
		if h.Aside.Mode == "" || h.Other {
			continue
		}
		soonest(h.whileEnds(&d.state.Rules))
		if h.parks() {
			_, until := h.class(&d.state.Rules, now)
			soonest(until)
		}
	}
	for _, f := range d.futures {
		if !f.claim {
			soonest(f.at) // if it does not begin then, something lasts for longer than expected
		}
	}
	return next
}

// overdue are the jobs that were passed for as long as may be, of each user the
// oldest; who has waited longest comes first.
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
		return q.passedUnderFIFO(all)
	}
	return all
}

// passedUnderFIFO are the oldest jobs of all, for as long as they are late: under
// FIFO only a higher priority passes anybody, and who came later than one who has
// no claim yet has none.
func (q *Queue) passedUnderFIFO(all []late) []late {
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

// late is a job that was passed for as long as may be.
type late struct {
	member
	since time.Time
}

// standing is how it comes to be looked at: who has waited for twice the bound
// does not rely on guesses any more.
func (l *late) standing(s *State) standing {
	if s.Now.Sub(l.since) >= 2*s.Rules.MaxBypass {
		return passedForEver
	}
	return passedTooLong
}
