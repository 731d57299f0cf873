package sim

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"

	"berth/internal/job"
	"berth/internal/sched"
)

// active is a running job.
type active struct {
	course *course
	job    *Job // with the declaration in force
	held   sched.Allocation
	gpus   float64 // GPUs it occupies; a share counts as a fraction
	seat   int     // index in replay.running
	spot   int     // index in replay.ends

	start  Millis
	works  Millis // when it begins to make progress
	lost   Millis // progress in this segment that was not saved, once it is being preempted
	useful Millis // progress in this segment, once it is being preempted
	before Millis // progress in this segment before the replay began
	end    Millis // when it ends or, if it is being preempted, has left its cards

	leaves sched.Preempt // how it leaves them, once it is being preempted

	declaredMiB []int64 // on each card, before anything was measured
	usedMiB     []int64 // on each card, in fact
}

// running are the running jobs.
type running []*active

// newActive is a job that was allocated cards now.
func (r *replay) newActive(c *course, grant job.Grant) *active {
	j := c.job
	a := &active{
		course: c, job: j, start: r.now, works: r.now,
		gpus:        float64(j.GPUs) * r.in.Machine.Part(j),
		declaredMiB: sched.CardBudgets(grant, j.VRAMMiB, r.cards.seen),
	}
	usedMiB, budgetMiB := make(map[int]int64, len(grant.GPUs)), make([]int64, len(grant.GPUs))
	for i, card := range grant.GPUs {
		used := a.declaredMiB[i]
		switch {
		case j.UsedMiB > 0:
			used = j.UsedMiB
		case grant.Alone:
			used = r.in.Machine.VRAMMiB
		}
		// It is measured as soon as it runs, and counts if it exceeds the declaration.
		budgetMiB[i] = sched.Budget(a.declaredMiB[i], used, r.in.Policy.Rules.SpikeBuffer)
		a.usedMiB = append(a.usedMiB, used)
		usedMiB[card] = used
	}
	a.held = sched.Allocation{
		Job: key(c.place), Cards: grant.GPUs, BudgetMiB: budgetMiB,
		Share: grant.Share, Alone: grant.Alone, Exclusive: grant.Exclusive, CPUs: j.CPUs, MemMiB: j.MemMiB,
		OverGPUs: sched.OverGPUs(grant, j.VRAMMiB, usedMiB, func(card int) int64 { return r.cards.seen[card].TotalMiB }),
		User:     j.User, Priority: j.Priority, Seq: int64(c.place), Array: j.limitedArray(), Submitted: j.Submit.at(),
		Started: r.now.at(), RanBefore: c.service().duration(), Waited: (r.now - c.since).duration(),
		Run: r.estimator.expected(c), Limit: r.estimator.limit(j, c.done+c.moved), Preempt: r.in.preemption(j, c.service()),
	}
	return a
}

// occupy puts a job on its cards.
func (r *replay) occupy(a *active) {
	r.occupancy.take(a.held.Cards, r.in.Machine.part(a.job))
	r.cards.hold(a, 1)
	a.seat = len(r.running)
	r.running = append(r.running, a)
	heap.Push(&r.ends, a)
	c := a.course
	if !c.started {
		c.fate.Start = a.start
	}
	c.started, c.active = true, a
	c.fate.End, c.fate.Cards = a.end, a.held.Cards
}

// vacate takes a job off its cards and counts what it did there.
func (r *replay) vacate(a *active) {
	heap.Remove(&r.ends, a.spot)
	r.occupancy.take(a.held.Cards, -r.in.Machine.part(a.job))
	r.cards.hold(a, -1)
	last := len(r.running) - 1
	r.running[a.seat] = r.running[last]
	r.running[a.seat].seat = a.seat
	r.running = r.running[:last]
	a.course.active = nil
	if r.in.Policy.Rules.Fair {
		r.shares.charge(a.job.User, r.now, a.gpuSeconds(r.now, r.scale))
	}
	did, fate := a.did(r.now), a.course.fate
	fate.End = r.now
	fate.Segments = append(fate.Segments, Segment{Start: a.start, End: r.now, Cards: a.held.Cards})
	a.course.gpuSeconds += (did - a.before).Seconds() * a.gpus
	fate.Wasted += a.lost
	r.result.WastedGPUSeconds += a.lost.Seconds() * a.gpus
	overhead := r.now - a.start - did - a.lost
	fate.Overhead += overhead
	r.result.OverheadGPUSeconds += overhead.Seconds() * a.gpus
}

// did is the progress of the job in this segment.
func (a *active) did(now Millis) Millis {
	if a.held.BeingPreempted {
		return a.useful
	}
	return max(0, now-a.works)
}

// restart makes a job that lost all its progress start from the beginning.
func (c *course) restart(lost Millis, result *Result) {
	c.fate.Wasted += lost
	result.WastedGPUSeconds += c.gpuSeconds
	c.done, c.lost, c.moved, c.gpuSeconds = 0, 0, 0, 0
}

// Running is a job that already runs when the replay begins.
type Running struct {
	Job   int // its index in Input.Jobs
	Cards []int
	Ran   Millis // for how long it has run
}

// takeOver puts the jobs that already run on their cards.
func (r *replay) takeOver(order []int) {
	places := make(map[int]int, len(order))
	for place, index := range order {
		places[index] = place
	}
	running := slices.Clone(r.in.Running)
	slices.SortStableFunc(running, func(a, b Running) int { return cmp.Compare(places[a.Job], places[b.Job]) })
	for _, already := range running {
		c := &r.courses[places[already.Job]]
		j := c.job
		if c.started {
			panic(fmt.Sprintf("bug: job %s runs twice", j.ID))
		}
		request := j.request(r.in.Policy.Rules)
		alone := request.GPUs > 0 && request.VRAMMiB == 0 && request.Share == 0
		ran := min(already.Ran, j.runs())
		c.since = min(c.since, r.now-ran) // nothing starts before it is submitted
		a := r.newActive(c, job.Grant{GPUs: already.Cards, Share: request.Share, Alone: alone, Exclusive: request.Exclusive})
		a.start, a.works = r.now-ran, r.now-ran
		a.end = a.works + j.runs()
		a.held.Started, a.held.Waited = a.start.at(), (a.start - c.since).duration()
		a.before = ran
		r.occupy(a)
	}
}

// ends is a heap of the running jobs: the first to end is on top.
type ends []*active

func (e ends) Len() int { return len(e) }
func (e ends) Less(i, k int) bool {
	return cmp.Or(cmp.Compare(e[i].end, e[k].end), cmp.Compare(e[i].course.place, e[k].course.place)) < 0
}
func (e ends) Swap(i, k int) {
	e[i], e[k] = e[k], e[i]
	e[i].spot, e[k].spot = i, k
}
func (e *ends) Push(v any) {
	a := v.(*active)
	a.spot = len(*e)
	*e = append(*e, a)
}
func (e *ends) Pop() any {
	last := len(*e) - 1
	v := (*e)[last]
	*e = (*e)[:last]
	return v
}
