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

// outranks reports whether a running job gives way to one that waits, once it
// has run for long enough. Jobs that lose their work give way to a higher
// priority only.
func (d *decision) outranks(h *head, held *Held, s standing) bool {
	if held.Aside.Mode == "" || held.Other || d.gone[held.Job] || !d.parkFits(held) {
		return false
	}
	rules, now := &d.state.Rules, d.state.Now
	if guarded := rules.MaxBypass > 0 && held.Waited >= rules.MaxBypass; guarded && now.Before(held.Started.Add(boostLength)) {
		return false // it was passed for too long itself, and has its while
	}
	switch {
	case s != asUsual:
		return true
	case h.priority != held.Priority:
		return h.priority > held.Priority
	case held.Aside.Mode != Park || !rules.slices() && rules.Policy != LAS:
		return false
	}
	class, _ := held.class(rules, now)
	if h.class == class && class == classLong && rules.slices() {
		return h.rank < held.Rank || h.rank == held.Rank && h.seq < held.Seq
	}
	return h.class < class
}

// mayLeave is from when on a running job gives way to the one that waits.
func (d *decision) mayLeave(held *Held, h *head) time.Time {
	return held.Started.Add(held.minRun(&d.state.Rules, fairWeight(h.countedGPUs(), h.cpus)))
}

// outranksAny reports whether anything that runs gives way to the job.
func (d *decision) outranksAny(h *head) bool {
	return slices.ContainsFunc(d.held, func(held *Held) bool { return d.outranks(h, held, asUsual) })
}

// makeRoom sets running jobs aside, so that the job can have their cards: all
// that it needs, or none. Where cards are being left already they are used
// first.
func (d *decision) makeRoom(h *head, k *kinship, a *account, s standing) bool {
	if !d.yields {
		return false
	}
	tried := attempt{h.amounts, h.priority, h.class}
	if s == asUsual && k.roomless(&tried) {
		return false
	}
	victims := d.victims(h, s)
	if len(victims) == 0 && len(d.gone) == 0 {
		return false
	}
	chosen, f := d.choose(h, victims)
	if f == nil || !d.parkFits(chosen...) {
		k.noRoom = append(k.noRoom, tried)
		return false
	}
	f.at, f.tie, f.claim = d.state.Now, firm, true
	for _, held := range chosen {
		d.gone[held.Job] = true
		d.plan.SetAside = append(d.plan.SetAside, SetAside{Job: held.Job, For: h.job, Mode: held.Aside.Mode})
	}
	for _, held := range d.held {
		if d.gone[held.Job] && !held.Other && overlaps(held.Cards, f.cards) {
			f.at = latest(f.at, d.leaves(held, h, s))
		}
	}
	d.claim(h, f, a)
	return true
}

// claim keeps the cards for a job that gets them as soon as they are left.
func (d *decision) claim(h *head, f *future, a *account) {
	f.held.Started = f.at
	d.given = append(d.given, f.held)
	for _, other := range d.futures {
		other.board.book(f.held)
	}
	d.futures = append(d.futures, f)
	d.plan.Reservations = append(d.plan.Reservations, Reservation{Job: h.job, Cards: f.cards, At: f.at})
	d.count(h.group, &h.amounts, a)
}

// roomless reports that no room could be made for a like job that stood as high.
func (k *kinship) roomless(tried *attempt) bool {
	return slices.ContainsFunc(k.noRoom, func(old attempt) bool {
		return old.gpus == tried.gpus && tried.covers(&old.amounts) &&
			old.priority >= tried.priority && (old.priority > tried.priority || old.class <= tried.class)
	})
}

// victims are the running jobs that give way to the job now, those first that
// are the least loss.
func (d *decision) victims(h *head, s standing) []*Held {
	var list []*Held
	now := d.state.Now
	for _, held := range d.held {
		if !d.outranks(h, held, s) {
			continue
		}
		if from := d.mayLeave(held, h); from.After(now) {
			d.wake(from)
			continue
		}
		list = append(list, held)
	}
	rules := &d.state.Rules
	slices.SortStableFunc(list, func(a, b *Held) int {
		classA, _ := a.class(rules, now)
		classB, _ := b.class(rules, now)
		return cmp.Or(
			cmp.Compare(a.Priority, b.Priority),
			cmp.Compare(a.lost(now), b.lost(now)),
			cmp.Compare(classB, classA),
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
	set := make(map[string]bool, len(victims))
	try := func(list []*Held) (*future, bool) {
		clear(set)
		for _, held := range list {
			set[held.Job] = true
		}
		return d.fitsWithout(h, func(held *Held) bool { return !held.Other && (set[held.Job] || d.gone[held.Job]) }, d.state.Now)
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

// parkFits reports whether the host has memory for all that would be parked.
func (d *decision) parkFits(chosen ...*Held) bool {
	if d.state.ParkMiB == 0 {
		return true
	}
	left := d.state.ParkMiB
	for _, held := range d.held {
		if d.gone[held.Job] && !held.Leaving && held.Aside.Mode == Park {
			left -= held.Aside.MemMiB
		}
	}
	for _, held := range chosen {
		if held.Aside.Mode == Park {
			left -= held.Aside.MemMiB
		}
	}
	return left >= 0
}

func overlaps(a, b []int) bool {
	return slices.ContainsFunc(a, func(index int) bool { return slices.Contains(b, index) })
}
