package sim

import (
	"container/heap"
	"fmt"
	"math"

	"berth/internal/sched"
)

// Parking is the cost of parking a job and resuming it: either the same for
// every job, or the time to copy its memory.
type Parking struct {
	EachWay        Millis  // to park it, and the same again to resume it
	BytesPerSecond float64 // if not 0, EachWay is the memory of the job divided by this
}

const bytesPerMiB = 1 << 20

// cost is how long a job's cards are busy with parking it, and with resuming
// it.
func (p *Parking) cost(m Machine, j *Job) (out, back Millis) {
	each := p.EachWay
	if p.BytesPerSecond > 0 {
		seconds := float64(m.memoryMiB(j)) * bytesPerMiB / p.BytesPerSecond
		each = Millis(min(math.Ceil(seconds*1000), float64(MaxDuration)))
	}
	return each, each
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
	return r.in.Park != nil && r.in.Policy.Rules.Slice && j.GPUs > 0
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
	a.held.BeingPreempted, a.held.PreemptedFor = true, v.For
	a.end = r.now + a.out
	a.held.FreeBy = a.end.at()
	heap.Fix(&r.ends, a.spot)
	c.done += a.useful
	c.since = r.now
	r.declareMeasured(a)
	r.fateAt(place).Preemptions++
	r.result.Preemptions++
}

// preemption is whether and how a job can be preempted.
func (r *replay) preemption(j *Job) sched.Preempt {
	if !r.parks(j) {
		return sched.Preempt{}
	}
	out, back := r.in.Park.cost(r.in.Machine, j)
	return sched.Preempt{Mode: sched.Park, StopTime: out.duration(), ResumeTime: back.duration(), MemMiB: r.in.Machine.memoryMiB(j)}
}
