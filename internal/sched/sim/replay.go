package sim

import (
	"maps"
	"math"
	"slices"
	"strconv"

	"berth/internal/sched"
)

// replay is a replay in progress.
type replay struct {
	in        *input
	order     []int // the jobs in the order of submission
	next      int   // index in order of the next to be submitted
	courses   []course
	cards     []sched.Card
	queue     *sched.Queue
	estimator estimator
	alike     map[string]map[int]bool // waiting jobs by kind of command, then by place
	learnt    map[string]int          // how many jobs of a kind ended while others of it waited

	running []*active
	active  []*active // the same by place in order; nil: not running
	ends    ends      // of the running jobs

	now    Millis
	again  Millis // when the plan asks for another decision
	same   int    // steps since time last advanced
	idle   int    // steps in which nothing happened but another decision
	ended  int
	result Result

	shares    ledger
	scale     sched.Scale
	occupancy occupancy
	turns     bool // some job can be parked
	parked    map[int]bool
	back      []*active // parked jobs that got their cards, and do not run yet
	host      hostMemory
	loads     []load   // of each card
	changes   []change // of cards, in their order
	changed   int      // how many of them have happened
}

// never is after every moment.
const never = Millis(math.MaxInt64)

// course is the state of a job between its segments.
type course struct {
	declaredMiB int64   // on each card; raised once the job was seen to use more
	since       Millis  // waiting since
	done        Millis  // progress that is kept
	lost        Millis  // and that was lost, since it last began from the beginning
	moved       Millis  // what it took meanwhile to park and resume it
	gpuSeconds  float64 // spent on done since the replay began
	parkedOn    []int   // the cards that it has to come back to; nil: it is not parked
	hostMiB     int64   // its memory on the host meanwhile
	started     bool    // it has run before
	ended       bool
}

// service is how long the job has had its cards, whatever became of its work, as a
// daemon counts it.
func (c *course) service() Millis { return c.done + c.lost + c.moved }

// expected is how long a job is expected to run in all, with what it has to do again.
// A daemon leaves out what it took to move the job: earlier runs tell it of that.
func (r *replay) expected(j *Job, c *course) sched.Estimate {
	again := c.lost
	if r.estimator.from == Perfect {
		again += c.moved
	}
	return r.estimator.duration(j).Plus(again.duration())
}

func newReplay(in *input) *replay {
	r := &replay{
		in: in, order: bySubmission(in.Jobs), cards: in.Machine.cards(), queue: sched.NewQueue(),
		courses: make([]course, len(in.Jobs)), active: make([]*active, len(in.Jobs)), again: never,
		shares:    ledger{halfLife: in.Policy.HalfLife, seconds: map[string]float64{}},
		scale:     in.Host.Scale(in.Machine.GPUs),
		occupancy: newOccupancy(in.Machine.GPUs), loads: make([]load, in.Machine.GPUs),
		estimator: newEstimator(in.Estimates), changes: changesOf(in),
		alike: map[string]map[int]bool{}, learnt: map[string]int{}, parked: map[int]bool{},
	}
	if in.Park != nil {
		r.host.mostMiB = in.Park.MemoryMiB
	}
	r.turns = slices.ContainsFunc(in.Jobs, func(j Job) bool { return r.preemption(&j, 0).Mode != "" })
	r.queue.SetRules(in.Policy.Rules)
	r.result.Fates = make([]Fate, len(in.Jobs))
	for i := range in.Jobs {
		r.courses[i] = course{declaredMiB: in.Jobs[i].VRAMMiB, since: in.Jobs[i].Submit}
	}
	r.now = in.begins(r.order)
	r.result.Began = r.now
	maps.Copy(r.shares.seconds, in.Usage)
	r.shares.at = r.now
	r.takeOver()
	return r
}

// begins is when the replay begins: at the first submission, unless the input
// begins earlier.
func (in *input) begins(order []int) Millis {
	if len(order) == 0 || len(in.Running) > 0 {
		return in.Begin
	}
	return max(in.Begin, in.Jobs[order[0]].Submit)
}

// key is a job's id for sched: those of the input need not be unique.
func key(place int) string { return strconv.Itoa(place) }

// placeOf undoes key.
func (r *replay) placeOf(key string) int {
	place, err := strconv.Atoi(key)
	if err != nil || place < 0 || place >= len(r.order) {
		panic("bug: a job of a replay has the key " + strconv.Quote(key))
	}
	return place
}

// nextMoment is when something happens next, if anything does.
func (r *replay) nextMoment() (Millis, bool) {
	if r.ended == len(r.order) {
		return 0, false
	}
	moment := never
	if r.next < len(r.order) {
		moment = r.in.Jobs[r.order[r.next]].Submit
	}
	if len(r.ends) > 0 {
		moment = min(moment, r.ends[0].end)
	}
	if r.changed < len(r.changes) {
		moment = min(moment, r.changes[r.changed].at)
	}
	for _, a := range r.back {
		moment = min(moment, a.works)
	}
	if moment == never {
		if r.idle++; r.idle > maxIdle {
			return 0, false
		}
	}
	moment = min(moment, r.again)
	return max(r.now, moment), moment < never
}

// maxIdle is how many decisions without effect, with nothing else to come, end
// the replay.
const maxIdle = 10_000

// passTo advances the time.
func (r *replay) passTo(moment Millis) {
	if moment > r.now {
		r.same = 0
	}
	// Each job may end and be preempted a few times at one moment. More than
	// that means that the plans go round in circles.
	if r.same++; r.same > 8*len(r.order)+maxIdle {
		panic("bug: time does not advance")
	}
	seconds := (moment - r.now).Seconds()
	r.result.AllocatedGPUSeconds += seconds * r.occupancy.takenGPUs()
	if seconds > 0 && r.occupancy.fragmented() {
		r.result.FragmentedGPUSeconds += seconds * r.occupancy.freeGPUs()
	}
	r.observeBinding(seconds)
	r.now = moment
	r.back = slices.DeleteFunc(r.back, func(a *active) bool {
		if a.works > moment {
			return false
		}
		a.held.Preempt = r.preemption(a.job, 0)
		return true
	})
}

// submitJobs queues the jobs that arrive now.
func (r *replay) submitJobs() {
	for ; r.next < len(r.order) && r.in.Jobs[r.order[r.next]].Submit <= r.now; r.next++ {
		if !r.courses[r.order[r.next]].started {
			r.enqueue(r.next)
		}
	}
}

// enqueue adds a job to the queue.
func (r *replay) enqueue(place int) {
	r.queue.Add(r.pending(place))
	r.addAlike(place)
	j, _ := r.jobAt(place)
	r.occupancy.wait(r.demand(j), 1)
}

// pending is a waiting job as sched sees it.
func (r *replay) pending(place int) sched.Pending {
	j, c := r.jobAt(place)
	preempt, parked := r.preemption(j, c.service()), c.parkedOn != nil
	if parked {
		back := *j
		back.IDs, back.Allow = c.parkedOn, nil
		j = &back
	}
	return sched.Pending{
		Job: key(place), User: j.User, Priority: j.Priority, Seq: int64(place), Request: j.request(r.in.Policy.Rules), Parked: parked,
		Array: j.Array, ArrayLimit: j.AtOnce, Group: j.Group,
		Submitted: j.Submit.at(), Since: c.since.at(), RanBefore: c.service().duration(), Run: r.expected(j, c), Limit: r.estimator.limit(j, c.done+c.moved), Preempt: preempt,
	}
}

// dequeue removes a job from the queue.
func (r *replay) dequeue(place int) {
	if !r.queue.Remove(key(place)) {
		panic("bug: job " + key(place) + " is not in the queue")
	}
	r.removeAlike(place)
	j, _ := r.jobAt(place)
	r.occupancy.wait(r.demand(j), -1)
}

// jobAt is a job with its current declaration, and its state.
func (r *replay) jobAt(place int) (*Job, *course) {
	j, c := &r.in.Jobs[r.order[place]], &r.courses[r.order[place]]
	if j.VRAMMiB != c.declaredMiB {
		j = j.declaring(c.declaredMiB)
	}
	return j, c
}

func (r *replay) demand(j *Job) demand { return demand{gpus: j.GPUs, part: r.in.Machine.part(j)} }

// fateAt is what becomes of a job.
func (r *replay) fateAt(place int) *Fate { return &r.result.Fates[r.order[place]] }

// refuse removes a job that can never run.
func (r *replay) refuse(refusal sched.Refusal) {
	place := r.placeOf(refusal.Job)
	r.dequeue(place)
	reason := refusal.Reason
	r.fateAt(place).Refused = &reason
	r.courses[r.order[place]].ended = true
	r.ended++
}

// start puts a job on its cards and reports whether it had enough memory.
func (r *replay) start(s sched.Start) bool {
	place := r.placeOf(s.Job)
	r.dequeue(place)
	j, c := r.jobAt(place)
	a := r.newActive(place, s.Grant)
	r.assertRoom(a)
	if r.lacksMemory(a) {
		r.outOfMemory(place)
		return false
	}
	if c.parkedOn != nil || c.service() > 0 {
		a.works += millisFor(a.held.Preempt.ResumeTime)
	}
	if c.parkedOn != nil {
		r.comeBack(place)
		a.held.Preempt = sched.Preempt{} // it cannot be parked meanwhile
		r.back = append(r.back, a)
	}
	a.end = a.works + j.runs() - c.done
	a.held.Started, a.held.RanBefore = r.now.at(), c.service().duration()
	a.held.Waited = (r.now - c.since).duration()
	r.occupy(a)
	return true
}

// endJobs removes the jobs that end now or have been parked.
func (r *replay) endJobs() {
	for len(r.ends) > 0 && r.ends[0].end <= r.now {
		r.idle = 0
		a := r.ends[0]
		r.vacate(a)
		if a.held.BeingPreempted {
			r.requeue(a)
			continue
		}
		r.finish(a)
	}
}

// finish records a job that completed its work or reached its time limit.
func (r *replay) finish(a *active) {
	c, fate := &r.courses[r.order[a.place]], r.fateAt(a.place)
	fate.TimedOut = a.job.timesOut()
	r.result.UsefulGPUSeconds += c.gpuSeconds
	r.learn(a.job, c.done+c.moved+r.now-a.start)
	c.ended = true
	r.ended++
}

// markUnfinished marks the jobs that will never start again.
func (r *replay) markUnfinished() {
	for place, index := range r.order {
		if c := &r.courses[index]; !c.ended {
			r.result.Fates[index].Unfinished = true
			r.restart(place, c.done) // its progress is lost
		}
	}
}
