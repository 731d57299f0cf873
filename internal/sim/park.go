package sim

import (
	"container/heap"
	"fmt"
	"math"

	"berth/internal/sched"
)

// Parking is what it costs to set a job aside with its work kept: either the
// same for every job, or what it takes to copy its memory.
type Parking struct {
	EachWay        Millis  // for setting it aside, and as much for bringing it back
	BytesPerSecond float64 // if not 0, its memory over this is EachWay
}

const bytesPerMiB = 1 << 20

// cost is how long a job's cards are busy until it is gone, and until it works
// again.
func (p *Parking) cost(m Machine, j *Job) (out, back Millis) {
	each := p.EachWay
	if p.BytesPerSecond > 0 {
		seconds := float64(m.memoryMiB(j)) * bytesPerMiB / p.BytesPerSecond
		each = Millis(min(math.Ceil(seconds*1000), float64(MaxDuration)))
	}
	return each, each
}

// memoryMiB is what a job holds on all its cards: what it really takes, else
// what it declared, else its share, else all of them.
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

// parks reports whether a job can be set aside: where that is possible, under
// a policy that makes use of it, and with cards to give away.
func (r *replay) parks(j *Job) bool {
	return r.in.Park != nil && r.in.Policy.Rules.Slice && j.GPUs > 0
}

// setAside makes a job leave its cards. It holds them until it is gone, and
// does nothing of use any more.
func (r *replay) setAside(s sched.Victim) {
	place := r.placeOf(s.Job)
	a := r.active[place]
	switch {
	case a == nil:
		panic(fmt.Sprintf("bug: job %s is set aside and does not run", s.Job))
	case a.held.Leaving:
		panic(fmt.Sprintf("bug: job %s is set aside twice", s.Job))
	case s.Mode != a.held.Preempt.Mode:
		panic(fmt.Sprintf("bug: job %s is set aside by %q and can be by %q", s.Job, s.Mode, a.held.Preempt.Mode))
	}
	c := &r.courses[r.order[place]]
	a.useful = a.did(r.now)
	a.held.Leaving, a.held.LeavesFor = true, s.For
	a.end = r.now + a.out
	a.held.LeavesBy = a.end.at()
	heap.Fix(&r.ends, a.spot)
	c.done += a.useful
	c.since = r.now
	r.declareMeasured(a)
	r.fateAt(place).Preemptions++
	r.result.Preemptions++
}

// aside is whether and how a job gives way.
func (r *replay) aside(j *Job) sched.Preempt {
	if !r.parks(j) {
		return sched.Preempt{}
	}
	out, back := r.in.Park.cost(r.in.Machine, j)
	return sched.Preempt{Mode: sched.Park, Out: out.duration(), Back: back.duration(), MemMiB: r.in.Machine.memoryMiB(j)}
}
