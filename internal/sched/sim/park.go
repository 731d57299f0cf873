package sim

import (
	"container/heap"
	"fmt"
	"math"
	"time"

	"berth/internal/sched"
)

// Parking is which jobs can be parked, and what that costs. The zero Parking parks
// every job at no cost, and has host memory for all of them.
type Parking struct {
	Who            Parkable
	EachWay        Millis      // to park a job, and the same again to resume it
	BytesPerSecond float64     // if not 0, EachWay is the memory of the job divided by this
	Pace           *sched.Pace // if not nil, what a daemon plans with
	MemoryMiB      int64       // of the host, for parked jobs in all; 0: no limit
	GangsSave      Saves       // how often jobs with several GPUs save their work that do not say so themselves
	Restart        Millis      // what it costs to start again a job that saved its work
}

// Parkable says which jobs can be parked that do not say so themselves.
type Parkable int

// Which jobs those are.
const (
	EveryJob   Parkable = iota
	SingleGPU           // jobs with one GPU, as on a daemon with parking = "all"
	ThatAskFor          // none, as on a daemon without any setting
)

// Parks is what a job itself says about being parked.
type Parks int

// What it may say.
const (
	Unsaid Parks = iota
	CanPark
	CannotPark
)

// Saves is how often a job saves its own work: it can be ended then, and goes on from
// there. 0: it does not.
type Saves Millis

// WhenTold is that of a job that saves when it is told to stop.
const WhenTold Saves = -1

// every is the time between two saves; 0: there are none of their own.
func (s Saves) every() Millis { return Millis(max(0, s)) }

const bytesPerMiB = 1 << 20

// cost is what it costs to park a job on this machine.
func (p *Parking) cost(m Machine, j *Job) sched.Preempt {
	memMiB := m.memoryMiB(j)
	each := p.EachWay.duration()
	switch {
	case p.Pace != nil:
		return p.Pace.Park(memMiB)
	case p.BytesPerSecond > 0:
		seconds := float64(memMiB) * bytesPerMiB / p.BytesPerSecond
		each = Millis(min(math.Ceil(seconds*1000), float64(MaxDuration))).duration()
	}
	return sched.Preempt{Mode: sched.Park, StopTime: each, ResumeTime: each, MemMiB: memMiB}
}

// memoryMiB is the memory of a job on all its cards: what it really uses, else
// what it declared, else its share, else all of it.
func (m Machine) memoryMiB(j *Job) int64 {
	each := m.VRAMMiB
	switch {
	case j.UsedMiB > 0:
		each = min(each, j.UsedMiB)
	case j.VRAMMiB > 0:
		each = min(each, j.VRAMMiB)
	case j.Share > 0:
		each = int64(math.Ceil(j.Share * float64(m.VRAMMiB)))
	}
	return int64(j.GPUs) * each
}

// parks reports whether a job can be parked: the replay allows it, the policy
// uses it, and the job has cards.
func (r *replay) parks(j *Job) bool {
	switch {
	case r.in.Park == nil || !r.in.Policy.Rules.Slice || j.GPUs == 0 || j.Parks == CannotPark:
		return false
	case j.Parks == CanPark:
		return true
	}
	return r.in.Park.Who == EveryJob || r.in.Park.Who == SingleGPU && j.GPUs == 1
}

// preempt makes a job leave its cards. It holds them until it has left, and
// makes no more progress.
func (r *replay) preempt(v sched.Victim) {
	place := r.placeOf(v.Job)
	a := r.active[place]
	switch {
	case a == nil:
		panic(fmt.Sprintf("bug: job %s is preempted but not running", v.Job))
	case a.held.BeingPreempted:
		panic(fmt.Sprintf("bug: job %s is preempted twice", v.Job))
	case v.Mode != a.held.Preempt.Mode:
		panic(fmt.Sprintf("bug: job %s is preempted by %q, expected %q", v.Job, v.Mode, a.held.Preempt.Mode))
	}
	c := &r.courses[r.order[place]]
	a.useful = a.did(r.now)
	a.lost = r.unsaved(a)
	a.useful -= a.lost
	a.held.BeingPreempted, a.held.PreemptedFor = true, v.For
	a.held.FreeBy = r.now.at().Add(a.held.Preempt.StopTime)
	a.leaves, a.held.Preempt = a.held.Preempt, sched.Preempt{} // once is enough
	a.end = millisUp(a.held.FreeBy)
	if v.Mode == sched.Requeue && a.job.Ends != (Ends{}) {
		a.end = r.now + a.job.Ends.After
	}
	heap.Fix(&r.ends, a.spot)
	c.done += a.useful
	c.lost += a.lost
	r.declareMeasured(a)
	if v.Mode == sched.Park {
		r.host.leave(a.leaves.MemMiB)
	}
	r.fateAt(place).Preemptions++
	r.result.Preemptions++
}

// millisFor rounds a duration up.
func millisFor(d time.Duration) Millis {
	return Millis((d + time.Millisecond - time.Nanosecond) / time.Millisecond)
}

// preemption is whether and how a job can be preempted that has run for so long in
// earlier attempts.
func (r *replay) preemption(j *Job, served Millis) sched.Preempt {
	if r.parks(j) {
		return r.in.Park.cost(r.in.Machine, j)
	}
	saves := r.saves(j)
	if saves == 0 {
		return sched.Preempt{}
	}
	p := sched.Preempt{Mode: sched.Requeue, Saves: true, SavesEvery: saves.every().duration(), StopTime: grace, ResumeTime: r.in.Park.Restart.duration()}
	if j.Ends != (Ends{}) {
		p.StopTime = j.Ends.Within.duration()
	}
	if j.Silent { // an attempt runs as long as all earlier ones together
		p.SavesEvery = max(p.SavesEvery, served.duration())
	}
	return p
}

// grace is how long a job takes to end: a job's default grace period.
const grace = 10 * time.Second

// Ends is how a job ends for others that saves its own work.
type Ends struct {
	Within Millis // how long it may take
	After  Millis // how long it takes
}

// saves is how often a job saves its own work.
func (r *replay) saves(j *Job) Saves {
	switch {
	case r.in.Park == nil || !r.in.Policy.Rules.Slice || j.GPUs == 0:
		return 0
	case j.Saves == 0 && j.GPUs > 1:
		return r.in.Park.GangsSave
	}
	return j.Saves
}

// unsaved is what a job loses if it is preempted now.
func (r *replay) unsaved(a *active) Millis {
	if every := r.saves(a.job).every(); every > 0 && a.held.Preempt.Mode == sched.Requeue {
		return a.did(r.now) % every
	}
	return 0
}

// requeue puts a job that has ended after saving its work among the waiting ones.
func (r *replay) requeue(a *active) {
	r.courses[r.order[a.place]].since = r.now
	if a.leaves.Mode == sched.Park {
		r.park(a)
		return
	}
	r.enqueue(a.place)
}

// park puts a job that has left its cards among the waiting ones. Its memory stays
// on the host, and it can come back to its own cards only.
func (r *replay) park(a *active) {
	c := &r.courses[r.order[a.place]]
	c.moved += r.now - a.start - a.did(r.now)
	c.parkedOn, c.hostMiB = a.held.Cards, a.leaves.MemMiB
	r.parked[a.place] = true
	r.awaitReturn(c, 1)
	r.enqueue(a.place)
}

// comeBack ends what park began: the job is on its cards again, or lost.
func (r *replay) comeBack(place int) {
	c := &r.courses[r.order[place]]
	r.awaitReturn(c, -1)
	r.host.comeBack(c.hostMiB)
	c.parkedOn, c.hostMiB = nil, 0
	delete(r.parked, place)
}

// awaitReturn notes on its cards what a parked job needs there, or with -1 no longer
// does.
func (r *replay) awaitReturn(c *course, sign int64) {
	for _, card := range c.parkedOn {
		r.cards[card].ParkedMiB += sign * c.hostMiB / int64(len(c.parkedOn))
	}
}

// hostMemory is the host's memory for parked jobs.
type hostMemory struct {
	mostMiB, heldMiB int64 // mostMiB 0: no limit
	peakMiB          int64
}

// leave takes memory for a job that begins to leave its cards.
func (h *hostMemory) leave(mib int64) {
	if !h.fits(mib) {
		panic(fmt.Sprintf("bug: parked jobs take %d MiB of %d", h.heldMiB+mib, h.mostMiB))
	}
	h.heldMiB += mib
	h.peakMiB = max(h.peakMiB, h.heldMiB)
}

func (h *hostMemory) fits(mib int64) bool { return h.mostMiB == 0 || h.heldMiB+mib <= h.mostMiB }

func (h *hostMemory) comeBack(mib int64) { h.heldMiB -= mib }

// left is State.ParkMiB.
func (h *hostMemory) left() int64 {
	switch left := h.mostMiB - h.heldMiB; {
	case h.mostMiB == 0:
		return 0
	case left <= 0:
		return -1
	default:
		return left
	}
}
