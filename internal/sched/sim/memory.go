package sim

import (
	"fmt"

	"berth/internal/sched"
)

// load is what one card holds. It is counted independently of sched, to detect
// a card that sched allocates twice.
type load struct {
	jobs, alone, exclusive int
	shares                 int64 // in parts
	declaredMiB            int64
	usedMiB                int64 // in fact
	foreignMiB             int64 // that external processes want
	losses                 int   // reasons why the card is gone
}

// add counts a job's i-th card, or with -1 removes it.
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

// assertRoom panics if a job was allocated more than is free.
func (r *replay) assertRoom(a *active) {
	if len(a.held.Cards) != a.job.GPUs {
		panic(fmt.Sprintf("bug: job %s needs %d cards and was allocated %v", a.held.Job, a.job.GPUs, a.held.Cards))
	}
	for i, card := range a.held.Cards {
		after, c := r.loads[card], &r.cards[card]
		after.add(a, i, 1)
		switch {
		case c.Health != sched.HealthOK:
			panic(fmt.Sprintf("bug: job %s was placed on gpu%d, which is lost", a.held.Job, card))
		case after.jobs > 1 && after.alone+after.exclusive > 0:
			panic(fmt.Sprintf("bug: job %s shares gpu%d with an exclusive job", a.held.Job, card))
		// Each share may have been rounded up by one part.
		case after.shares > wholeCard+int64(after.jobs):
			panic(fmt.Sprintf("bug: gpu%d is allocated more than once with job %s", card, a.held.Job))
		case after.alone == 0 && after.declaredMiB+c.ForeignMiB > c.TotalMiB:
			panic(fmt.Sprintf("bug: gpu%d is overbooked by %d MiB with job %s", card, after.declaredMiB+c.ForeignMiB-c.TotalMiB, a.held.Job))
		}
	}
}

// usedMiB is what a job really uses on each of its cards.
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

// budgets are the memory budgets of a running job. Its memory is measured as
// soon as it runs, and counts if it exceeds the declaration.
func (r *replay) budgets(a *active) []int64 {
	budgets := make([]int64, len(a.declaredMiB))
	for i := range budgets {
		budgets[i] = sched.Budget(a.declaredMiB[i], a.usedMiB[i], r.in.Policy.Rules.SpikeBuffer)
	}
	return budgets
}

// lacksMemory reports whether a job exceeds its declaration on a card without
// room for that.
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

// outOfMemory fails a job as it starts, and queues it again with the memory it
// really needs. It cannot have made progress: a parked job already declares
// what it uses.
func (r *replay) outOfMemory(place int) {
	r.fateAt(place).OOMs++
	r.result.OOMs++
	c := &r.courses[r.order[place]]
	if c.done > 0 {
		panic("bug: job " + key(place) + " was resumed where it does not fit")
	}
	c.declaredMiB = max(c.declaredMiB, r.in.Jobs[r.order[place]].UsedMiB)
	r.enqueue(place)
}

// declareMeasured makes a preempted job ask for its measured memory, as far as
// any card has that much.
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
