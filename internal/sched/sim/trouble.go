package sim

import (
	"cmp"
	"slices"

	"berth/internal/sched"
)

// Foreign is an external process. It takes the memory it wants as far as the
// card has it free, and the rest as soon as that is free.
type Foreign struct {
	Card        int
	From, Until Millis // Until 0: forever
	MiB         int64
}

// loss is a time during which a card is gone. Its jobs start again from the
// beginning on other cards.
type loss struct {
	Card        int
	From, Until Millis // Until 0: forever
}

// change is an event of a card.
type change struct {
	at         Millis
	card       int
	foreignMiB int64 // how much more, or less
	losses     int   // how many more, or fewer
}

// changesOf are all events of cards, in order.
func changesOf(in *input) []change {
	var changes []change
	add := func(from, until Millis, begins, ends change) {
		begins.at, ends.at = from, until
		changes = append(changes, begins)
		if until > from {
			changes = append(changes, ends)
		}
	}
	for _, f := range in.Foreign {
		add(f.From, f.Until, change{card: f.Card, foreignMiB: f.MiB}, change{card: f.Card, foreignMiB: -f.MiB})
	}
	for _, l := range in.Lost {
		add(l.From, l.Until, change{card: l.Card, losses: 1}, change{card: l.Card, losses: -1})
	}
	slices.SortStableFunc(changes, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.card, b.card), cmp.Compare(a.losses, b.losses), cmp.Compare(a.foreignMiB, b.foreignMiB))
	})
	return changes
}

// changeCards applies the events of cards that are due.
func (r *replay) changeCards() {
	k := &r.cards
	for ; k.changed < len(k.changes) && k.changes[k.changed].at <= r.now; k.changed++ {
		r.idle = 0
		c := &k.changes[k.changed]
		l := &k.loads[c.card]
		l.foreignMiB += c.foreignMiB
		if l.losses += c.losses; c.losses > 0 {
			r.loseJobsOn(c.card)
		}
	}
}

// loseJobsOn ends the jobs on a card. A job is lost if one of its cards is.
func (r *replay) loseJobsOn(card int) {
	var lost []*active
	for _, a := range r.running {
		if slices.Contains(a.held.Cards, card) {
			lost = append(lost, a)
		}
	}
	slices.SortFunc(lost, func(a, b *active) int { return cmp.Compare(a.course.place, b.course.place) })
	for _, a := range lost {
		c := a.course
		done := c.done
		if !a.held.BeingPreempted {
			done += a.did(r.now)
		} else if a.leaves.Mode == sched.Park {
			r.host.heldMiB -= a.leaves.MemMiB
		}
		r.vacate(a)
		c.restart(done, &r.result)
		c.since = r.now
		r.enqueue(c)
	}
}

// read measures the cards for a decision.
func (k *cards) read() {
	if len(k.changes) == 0 {
		return
	}
	for i := range k.seen {
		c, l := &k.seen[i], &k.loads[i]
		c.ForeignMiB = min(l.foreignMiB, max(0, c.TotalMiB-l.usedMiB))
		c.IdleForeignMiB = c.ForeignMiB
		c.UsedMiB = min(c.TotalMiB, l.usedMiB+c.ForeignMiB)
		c.Health, c.HealthReason = sched.HealthOK, ""
		if l.losses > 0 {
			c.Health, c.HealthReason = sched.HealthQuarantined, "lost"
		}
	}
}
