package sim

import (
	"fmt"

	"berth/internal/sched"
)

// load is what lies on one card. It is counted apart from sched's own books,
// so that what sched gives away twice is found out.
type load struct {
	jobs, alone, exclusive int
	shares                 int64 // in parts
	declaredMiB            int64
	usedMiB                int64 // really
	foreignMiB             int64 // that others want of it
	losses                 int   // for which the card is gone
}

// add puts a job's i-th card down, or with -1 takes it back.
func (l *load) add(a *active, i int, sign int) {
	l.jobs += sign
	if a.held.Alone {
		l.alone += sign
	}
	if a.held.Exclusive {
		l.exclusive += sign
	}
	l.shares += int64(sign) * partOf(a.held.Share)
	l.declaredMiB += int64(sign) * a.declaredMiB[i]
	l.usedMiB += int64(sign) * a.usedMiB[i]
}

// assertRoom panics if a job was given what is not there.
func (r *replay) assertRoom(a *active) {
	if len(a.held.Cards) != a.job.GPUs {
		panic(fmt.Sprintf("bug: job %s needs %d cards and is given %v", a.held.Job, a.job.GPUs, a.held.Cards))
	}
	for i, card := range a.held.Cards {
		after, c := r.loads[card], &r.cards[card]
		after.add(a, i, 1)
		switch {
		case c.Health != sched.HealthOK:
			panic(fmt.Sprintf("bug: job %s is put on gpu%d, which is lost", a.held.Job, card))
		case after.jobs > 1 && after.alone+after.exclusive > 0:
			panic(fmt.Sprintf("bug: job %s shares gpu%d with one that takes no neighbour", a.held.Job, card))
		// Each share may have been rounded up by one part.
		case after.shares > wholeCard+int64(after.jobs):
			panic(fmt.Sprintf("bug: gpu%d is given away more than once with job %s", card, a.held.Job))
		case after.alone == 0 && after.declaredMiB+c.ForeignMiB > c.TotalMiB:
			panic(fmt.Sprintf("bug: gpu%d is overbooked by %d MiB with job %s", card, after.declaredMiB+c.ForeignMiB-c.TotalMiB, a.held.Job))
		}
	}
}

// usedMiB is what a job really takes of each of its cards.
func (r *replay) usedMiB(a *active, alone bool) []int64 {
	used := make([]int64, len(a.declaredMiB))
	for i := range used {
		switch {
		case a.job.UsedMiB > 0:
			used[i] = a.job.UsedMiB
		case alone:
			used[i] = r.in.Machine.VRAMMiB
		default:
			used[i] = a.declaredMiB[i]
		}
	}
	return used
}

// budgets is what a running job is held at: its use is measured as soon as it
// runs, and counts where it passes the declaration.
func (r *replay) budgets(a *active) []int64 {
	budgets := make([]int64, len(a.declaredMiB))
	for i := range budgets {
		budgets[i] = sched.Budget(a.declaredMiB[i], a.usedMiB[i], r.in.Policy.Rules.SpikeBuffer)
	}
	return budgets
}

// lacksMemory reports that a job which passes its declaration finds less on
// one of its cards than it takes.
func (r *replay) lacksMemory(a *active) bool {
	if a.held.Alone {
		return false
	}
	for i, card := range a.held.Cards {
		c := &r.cards[card]
		if a.usedMiB[i] > a.declaredMiB[i] && a.usedMiB[i] > c.TotalMiB-c.ForeignMiB-r.loads[card].usedMiB {
			return true
		}
	}
	return false
}

// outOfMemory fails a job at the moment it starts, and queues it again with
// what it really needs. It has done nothing yet: one that was set aside asks
// for what it takes, and finds it.
func (r *replay) outOfMemory(place int) {
	r.fateAt(place).OOMs++
	r.result.OOMs++
	c := &r.courses[r.order[place]]
	if c.done > 0 {
		panic("bug: job " + key(place) + " was brought back to where it does not fit")
	}
	c.declaredMiB = max(c.declaredMiB, r.in.Jobs[r.order[place]].UsedMiB)
	r.enqueue(place)
}

// declareMeasured makes a job that is set aside ask for as much as it was seen
// to take, as far as any card has that.
func (r *replay) declareMeasured(a *active) {
	if a.held.Alone {
		return
	}
	c := &r.courses[r.order[a.place]]
	most := r.in.Machine.VRAMMiB - r.in.Policy.Rules.MarginMiB
	for i, used := range a.usedMiB {
		if used > a.declaredMiB[i] {
			c.declaredMiB = max(c.declaredMiB, min(used, most))
		}
	}
}
