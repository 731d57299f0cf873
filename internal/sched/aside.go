package sched

import (
	"cmp"
	"slices"
	"sort"
	"time"
)

// attempt is a kind of job and how high it stood.
type attempt struct {
	amounts
	priority int
	class    class
}

// maxAttempts bounds what is remembered of them, by kin.
const maxAttempts = 64

// power is what decides who gives way to a job that comes up in its turn: how high
// it stands, and how many GPUs it counts as.
type power struct {
	priority int
	class    class
	gpus     float64
}

func powerOf(h *head) power {
	return power{h.priority, h.class, fairWeight(h.countedGPUs(), h.cpus)}
}

// powerless reports that nobody gave way to one that stood as high and counted for
// as much. Nothing that runs becomes less within a decision.
func (d *decision) powerless(h *head) bool {
	own := powerOf(h)
	return slices.ContainsFunc(d.powers, func(p power) bool { return p.covers(own) })
}

// covers reports whether one who has this power has the other too.
func (p power) covers(o power) bool {
	return p.gpus >= o.gpus && (p.priority > o.priority || p.priority == o.priority && p.class <= o.class)
}

// outranks reports whether a running job gives way to one that waits, once it
// has run for long enough. Jobs that lose their work give way to a higher
// priority only: two that are longer than the bound would else end each other
// for ever.
func (d *decision) outranks(h *head, held *Held, s standing) bool {
	if held.Aside.Mode == "" || held.Other || d.gone[held] || !d.parkFits(held) {
		return false
	}
	rules, now := &d.state.Rules, d.state.Now
	switch {
	case now.Before(held.whileEnds(rules)):
		return false
	case s != asUsual && held.parks():
		return true
	case h.priority != held.Priority:
		return h.priority > held.Priority
	case !held.parks() || !rules.slices() && rules.Policy != LAS:
		return false
	}
	class, _ := held.class(rules, now)
	if h.class == class && class == classLong && rules.slices() {
		return h.rank < held.Rank || h.rank == held.Rank && h.seq < held.Seq
	}
	return h.class < class
}

// whileEnds is until when a job that was passed for too long itself does not give
// way to anybody.
func (h *Held) whileEnds(r *Rules) time.Time {
	if r.MaxBypass <= 0 || h.Waited < r.MaxBypass {
		return time.Time{}
	}
	return h.Started.Add(boostLeast)
}

// mayLeave is from when on a running job gives way to the one that waits.
func (d *decision) mayLeave(held *Held, h *head) time.Time {
	return held.Started.Add(held.minRun(&d.state.Rules, fairWeight(h.countedGPUs(), h.cpus)))
}

// makeRoom sets running jobs aside, so that the job can have their cards: all
// that it needs, or none. Where cards are being left already they are used
// first.
func (d *decision) makeRoom(h *head, k *kinship, a *account, s standing) bool {
	if !d.yields || s == asUsual && len(d.gone) == 0 && d.powerless(h) || !d.most().fits(h, keeper{}) {
		return false
	}
	tried := attempt{h.amounts, h.priority, h.class}
	if s == asUsual && k.roomless(&tried) {
		return false
	}
	victims := d.victims(h, s)
	if own := powerOf(h); s == asUsual && !slices.Contains(d.asked, own) {
		d.asked = append(d.asked, own)
	}
	switch {
	case len(victims) == 0 && len(d.gone) == 0:
		d.powers = append(d.powers, powerOf(h))
		return false
	case !d.roomWithout(victims).fits(h, d.keeperAt(h, d.state.Now)):
		return false
	case !d.vacate(h, a, s, d.leastLoss(victims)):
		if len(k.noRoom) < maxAttempts {
			k.noRoom = append(k.noRoom, tried)
		}
		return false
	}
	return true
}

// vacate sets as many of the victims aside as the job needs beside what is left
// already, and keeps their cards for it.
func (d *decision) vacate(h *head, a *account, s standing, victims []*Held) bool {
	chosen, f := d.choose(h, victims)
	if f == nil || !d.parkFits(chosen...) {
		return false
	}
	f.at, f.tie, f.claim = d.state.Now, firm, true
	for _, held := range chosen {
		d.gone[held] = true
		d.plan.SetAside = append(d.plan.SetAside, SetAside{Job: held.Job, For: h.job, Mode: held.Aside.Mode})
	}
	hostFits := d.board.hostFits(&h.amounts)
	for _, held := range d.held {
		if d.gone[held] && (!hostFits || overlaps(held.Cards, f.cards)) {
			f.at = latest(f.at, d.leaves(held, h, s))
		}
	}
	d.claim(h, f, a)
	return true
}

// redeem gives the cards that are being left to those for whom they are, before
// anybody else is looked at: whoever stands higher may not have been able to have
// them, and takes none of what was left for another.
// It reports false when it comes to the job `until`.
func (d *decision) redeem(until *member) bool {
	var promised []member
	for _, held := range d.held {
		m, queued := d.state.Queue.member(held.LeavesFor)
		known := func(other member) bool { return other.entry.job == m.entry.job }
		if d.gone[held] && queued && !slices.ContainsFunc(promised, known) {
			promised = append(promised, m)
		}
	}
	slices.SortFunc(promised, func(a, b member) int { return compareEntries(a.entry, b.entry) })
	for i := range promised {
		m := &promised[i]
		if until != nil && until.entry.job == m.entry.job {
			return false
		}
		h, a := m.group.head(m.entry), d.account(m)
		k := d.kinship(&h)
		switch {
		case !k.possible(&h.amounts) || !a.allows(&h.amounts) || d.spent():
		case d.start(&h, k, a), !d.barred(h.group, &h.amounts, a) && d.vacate(&h, a, asUsual, nil):
			d.seen[h.job] = true
		}
	}
	return true
}

// claim keeps the cards for a job that gets them as soon as they are left.
func (d *decision) claim(h *head, f *future, a *account) {
	f.held.Started = f.at
	d.given = append(d.given, f.held)
	d.book(f.held)
	for _, other := range d.futures {
		other.board.book(f.held)
	}
	d.futures = append(d.futures, f)
	d.plan.Reservations = append(d.plan.Reservations, Reservation{Job: h.job, Cards: f.cards, At: f.at})
	d.reopen()
	d.count(h.group, &h.amounts, a)
}

// roomless reports that no room could be made for a like job that stood as high.
// Those that count as more GPUs have jobs give way sooner, and are not alike.
func (k *kinship) roomless(tried *attempt) bool {
	return slices.ContainsFunc(k.noRoom, func(old attempt) bool {
		alike := old.gpus == tried.gpus && old.share == tried.share && tried.covers(&old.amounts) &&
			tried.cpus >= old.cpus && tried.memMiB >= old.memMiB && (tried.gpus > 0 || tried.cpus == old.cpus)
		return alike && old.priority >= tried.priority && (old.priority > tried.priority || old.class <= tried.class)
	})
}

// victims are the running jobs that give way to the job now.
func (d *decision) victims(h *head, s standing) []*Held {
	var y yielders
	if s == asUsual {
		y = *d.yieldersTo(h)
	} else {
		y = d.findYielders(h, s)
	}
	if len(y.later) > 0 {
		d.wake(y.first)
	}
	return y.now
}

// leastLoss puts those first that are the least loss.
func (d *decision) leastLoss(list []*Held) []*Held {
	rules, now := &d.state.Rules, d.state.Now
	list = slices.Clone(list) // others ask for it too
	slices.SortStableFunc(list, func(a, b *Held) int {
		classA, _ := a.class(rules, now)
		classB, _ := b.class(rules, now)
		return cmp.Or(
			cmp.Compare(a.Priority, b.Priority),
			cmp.Compare(a.lost(now), b.lost(now)),
			cmp.Compare(classB, classA),
			cmp.Compare(a.FairWeight(), b.FairWeight()), // the fewer cards, the less lies idle for it
			cmp.Compare(b.Rank, a.Rank), cmp.Compare(b.Seq, a.Seq), cmp.Compare(a.Job, b.Job),
		)
	})
	return list
}

// lost is the work that is lost when the job is set aside.
func (h *Held) lost(now time.Time) time.Duration {
	if h.Aside.Mode == Requeue {
		return h.lasted(now)
	}
	return 0
}

// wake asks to decide again at that moment.
func (d *decision) wake(at time.Time) {
	if d.plan.Again.IsZero() || at.Before(d.plan.Again) {
		d.plan.Again = at
	}
}

// choose finds the fewest victims, in their order, without which the job fits,
// and spares of these whom it can, the greatest loss first.
func (d *decision) choose(h *head, victims []*Held) ([]*Held, *future) {
	set := make(map[*Held]bool, len(victims))
	try := func(list []*Held) (*future, bool) {
		clear(set)
		for _, held := range list {
			set[held] = true
		}
		return d.fitsWithout(h, func(held *Held) bool { return set[held] || d.gone[held] }, d.state.Now)
	}
	n := sort.Search(len(victims)+1, func(n int) bool {
		_, ok := try(victims[:min(n, len(victims))])
		return ok
	})
	if n > len(victims) {
		return nil, nil
	}
	chosen := slices.Clone(victims[:n])
	for i := len(chosen) - 1; i >= 0; i-- {
		fewer := slices.Delete(slices.Clone(chosen), i, i+1)
		if _, ok := try(fewer); ok {
			chosen = fewer
		}
	}
	f, _ := try(chosen)
	return chosen, f
}

// parkFits reports whether the host has memory for all that would be parked. What
// left by an earlier plan is not in ParkMiB any more.
func (d *decision) parkFits(chosen ...*Held) bool {
	if d.state.ParkMiB == 0 || !slices.ContainsFunc(chosen, (*Held).parks) {
		return true
	}
	left := d.state.ParkMiB
	for _, held := range d.held {
		if d.gone[held] && !held.Leaving && held.parks() {
			left -= held.Aside.MemMiB
		}
	}
	for _, held := range chosen {
		if held.parks() {
			left -= held.Aside.MemMiB
		}
	}
	return left >= 0
}

// parks reports whether the job keeps its work when it gives way.
func (h *Held) parks() bool { return h.Aside.Mode == Park }

func overlaps(a, b []int) bool {
	return slices.ContainsFunc(a, func(index int) bool { return slices.Contains(b, index) })
}
