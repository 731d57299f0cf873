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

// cards are the machine's cards as they are.
type cards struct {
	seen    []sched.Card // as measured for the last decision
	loads   []load       // of each
	changes []change     // of them, in their order
	changed int          // how many of these have happened
}

// hold puts a job on its cards, or with -1 takes it off.
func (k *cards) hold(a *active, sign int) {
	for i, card := range a.held.Cards {
		k.loads[card].add(a, i, sign)
	}
}

// assertRoom panics if a job was allocated more than is free.
func (k *cards) assertRoom(a *active) {
	if len(a.held.Cards) != a.job.GPUs {
		panic(fmt.Sprintf("bug: job %s needs %d cards and was allocated %v", a.held.Job, a.job.GPUs, a.held.Cards))
	}
	for i, card := range a.held.Cards {
		after, c := k.loads[card], &k.seen[card]
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

// lackMemory reports whether a job exceeds its declaration on a card without
// room for that.
func (k *cards) lackMemory(a *active) bool {
	if a.held.Alone {
		return false
	}
	for i, card := range a.held.Cards {
		c := &k.seen[card]
		if a.usedMiB[i] > a.declaredMiB[i] && a.usedMiB[i] > c.TotalMiB-c.ForeignMiB-k.loads[card].usedMiB {
			return true
		}
	}
	return false
}

// outOfMemory fails a job as it starts, and queues it again with the memory it
// really needs. It cannot have made progress: a parked job already declares
// what it uses.
func (r *replay) outOfMemory(c *course) {
	c.fate.OOMs++
	r.result.OOMs++
	if c.done > 0 {
		panic("bug: job " + key(c.place) + " was resumed where it does not fit")
	}
	c.declare(c.job.UsedMiB)
	r.enqueue(c)
}

// declare makes a job ask for no less memory than that.
func (c *course) declare(vramMiB int64) {
	if vramMiB > c.job.VRAMMiB {
		c.job = c.job.declaring(vramMiB)
	}
}

// declareMeasured makes a preempted job ask for its measured memory, as far as
// any card has that much.
func (a *active) declareMeasured(mostMiB int64) {
	for i, used := range a.usedMiB {
		if used > a.declaredMiB[i] && !a.held.Alone {
			a.course.declare(min(used, mostMiB))
		}
	}
}
