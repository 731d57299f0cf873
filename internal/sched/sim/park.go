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
func (in *input) parks(j *Job) bool {
	switch {
	case in.Park == nil || !in.Policy.Rules.Slice || j.GPUs == 0 || j.Parks == CannotPark:
		return false
	case j.Parks == CanPark:
		return true
	}
	return in.Park.Who == EveryJob || in.Park.Who == SingleGPU && j.GPUs == 1
}

// preempt makes a job leave its cards. It holds them until it has left, and
// makes no more progress.
func (r *replay) preempt(v sched.Victim) {
	c := r.course(v.Job)
	a := c.active
	switch {
	case a == nil:
		panic(fmt.Sprintf("bug: job %s is preempted but not running", v.Job))
	case a.held.BeingPreempted:
		panic(fmt.Sprintf("bug: job %s is preempted twice", v.Job))
	case v.Mode != a.held.Preempt.Mode:
		panic(fmt.Sprintf("bug: job %s is preempted by %q, expected %q", v.Job, v.Mode, a.held.Preempt.Mode))
	}
	a.useful = a.did(r.now)
	a.lost = a.unsaved(r.now, r.in.saves(a.job))
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
	a.declareMeasured(r.in.Machine.VRAMMiB - r.in.Policy.Rules.MarginMiB)
	if v.Mode == sched.Park {
		r.host.leave(a.leaves.MemMiB)
	}
	c.fate.Preemptions++
	r.result.Preemptions++
}

// millisFor rounds a duration up.
func millisFor(d time.Duration) Millis {
	return Millis((d + time.Millisecond - time.Nanosecond) / time.Millisecond)
}

// preemption is whether and how a job can be preempted that has run for so long in
// earlier attempts.
func (in *input) preemption(j *Job, served Millis) sched.Preempt {
	if in.parks(j) {
		return in.Park.cost(in.Machine, j)
	}
	saves := in.saves(j)
	if saves == 0 {
		return sched.Preempt{}
	}
	p := sched.Preempt{Mode: sched.Requeue, Saves: true, SavesEvery: saves.every().duration(), StopTime: grace, ResumeTime: in.Park.Restart.duration()}
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
func (in *input) saves(j *Job) Saves {
	switch {
	case in.Park == nil || !in.Policy.Rules.Slice || j.GPUs == 0:
		return 0
	case j.Saves == 0 && j.GPUs > 1:
		return in.Park.GangsSave
	}
	return j.Saves
}

// unsaved is what a job loses if it is preempted now.
func (a *active) unsaved(now Millis, saves Saves) Millis {
	if every := saves.every(); every > 0 && a.held.Preempt.Mode == sched.Requeue {
		return a.did(now) % every
	}
	return 0
}

// requeue puts a job that has left its cards among the waiting ones.
func (r *replay) requeue(a *active) {
	c := a.course
	c.since = r.now
	if a.leaves.Mode == sched.Park {
		c.moved += r.now - a.start - a.did(r.now)
		c.parkedOn, c.hostMiB = a.held.Cards, a.leaves.MemMiB
		r.host.await(c, 1)
	}
	r.enqueue(c)
}

// hostMemory is the host's memory for parked jobs, and these jobs. They can come
// back to their own cards only.
type hostMemory struct {
	mostMiB, heldMiB int64 // mostMiB 0: no limit
	peakMiB          int64
	parked           map[*course]bool
	cards            []sched.Card
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

// await notes a parked job, and on its cards what it needs there.
func (h *hostMemory) await(c *course, sign int64) {
	h.parked[c] = true
	for _, card := range c.parkedOn {
		h.cards[card].ParkedMiB += sign * c.hostMiB / int64(len(c.parkedOn))
	}
}

// comeBack is for a job that is on its cards again.
func (h *hostMemory) comeBack(c *course) {
	h.await(c, -1)
	delete(h.parked, c)
	h.heldMiB -= c.hostMiB
	c.parkedOn, c.hostMiB = nil, 0
}

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
