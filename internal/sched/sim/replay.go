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
	courses   []course // of the jobs in the order of submission
	next      int      // which is to be submitted next
	cards     cards
	queue     *sched.Queue
	estimator estimator

	running running
	ends    ends // of the same jobs

	now    Millis
	again  Millis // when the plan asks for another decision
	same   int    // steps since time last advanced
	idle   int    // steps in which nothing happened but another decision
	ended  int
	result Result

	shares    pastUsage
	scale     sched.Scale
	occupancy occupancy
	turns     bool      // some job can be parked
	back      []*active // parked jobs that got their cards, and do not run yet
	host      hostMemory
}

// never is after every moment.
const never = Millis(math.MaxInt64)

// course is the state of a job between its segments.
type course struct {
	place      int  // in the order of submission
	job        *Job // it declares more once it was seen to use more
	fate       *Fate
	active     *active // nil: it is not running
	since      Millis  // waiting since
	done       Millis  // progress that is kept
	lost       Millis  // and that was lost, since it last began from the beginning
	moved      Millis  // what it took meanwhile to park and resume it
	gpuSeconds float64 // spent on done since the replay began
	parkedOn   []int   // the cards that it has to come back to; nil: it is not parked
	hostMiB    int64   // its memory on the host meanwhile
	started    bool    // it has run before
	ended      bool
}

// service is how long the job has had its cards, whatever became of its work, as a
// daemon counts it.
func (c *course) service() Millis { return c.done + c.lost + c.moved }

func newReplay(in *input) *replay {
	r := &replay{
		in: in, courses: make([]course, len(in.Jobs)), queue: sched.NewQueue(), again: never,
		cards:     cards{seen: in.Machine.cards(), loads: make([]load, in.Machine.GPUs), changes: changesOf(in)},
		shares:    pastUsage{halfLife: in.Policy.HalfLife, seconds: map[string]float64{}},
		scale:     in.Host.Scale(in.Machine.GPUs),
		occupancy: newOccupancy(in.Machine.GPUs), estimator: newEstimator(in.Estimates),
	}
	r.host = hostMemory{parked: map[*course]bool{}, cards: r.cards.seen}
	if in.Park != nil {
		r.host.mostMiB = in.Park.MemoryMiB
	}
	r.turns = slices.ContainsFunc(in.Jobs, func(j Job) bool { return in.preemption(&j, 0).Mode != "" })
	r.queue.SetRules(in.Policy.Rules)
	r.result.Fates = make([]Fate, len(in.Jobs))
	order := bySubmission(in.Jobs)
	for place, index := range order {
		j := &in.Jobs[index]
		r.courses[place] = course{place: place, job: j, fate: &r.result.Fates[index], since: j.Submit}
	}
	r.now = in.begins(order)
	r.result.Began = r.now
	maps.Copy(r.shares.seconds, in.Usage)
	r.shares.at = r.now
	r.takeOver(order)
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

// course is the job with that key.
func (r *replay) course(key string) *course {
	place, err := strconv.Atoi(key)
	if err != nil || place < 0 || place >= len(r.courses) {
		panic("bug: a job of a replay has the key " + strconv.Quote(key))
	}
	return &r.courses[place]
}

// nextMoment is when something happens next, if anything does.
func (r *replay) nextMoment() (Millis, bool) {
	if r.ended == len(r.courses) {
		return 0, false
	}
	moment := never
	if r.next < len(r.courses) {
		moment = r.courses[r.next].job.Submit
	}
	if len(r.ends) > 0 {
		moment = min(moment, r.ends[0].end)
	}
	if r.cards.changed < len(r.cards.changes) {
		moment = min(moment, r.cards.changes[r.cards.changed].at)
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
	if r.same++; r.same > 8*len(r.courses)+maxIdle {
		panic("bug: time does not advance")
	}
	seconds := (moment - r.now).Seconds()
	r.result.AllocatedGPUSeconds += seconds * r.occupancy.takenGPUs()
	if seconds > 0 && r.occupancy.fragmented() {
		r.result.FragmentedGPUSeconds += seconds * r.occupancy.freeGPUs()
	}
	if r.turns && r.queue.Len() > 0 && seconds > 0 {
		r.result.observe(seconds, r.now, r.running, &r.host)
		if r.host.keptFromOwnCards(&r.occupancy, r.in.Machine) {
			r.result.OwnCardsSeconds += seconds
		}
	}
	r.now = moment
	r.back = slices.DeleteFunc(r.back, func(a *active) bool {
		if a.works > moment {
			return false
		}
		a.held.Preempt = r.in.preemption(a.job, 0)
		return true
	})
}

// submitJobs queues the jobs that arrive now.
func (r *replay) submitJobs() {
	for ; r.next < len(r.courses) && r.courses[r.next].job.Submit <= r.now; r.next++ {
		if c := &r.courses[r.next]; !c.started {
			r.enqueue(c)
		}
	}
}

// enqueue adds a job to the queue.
func (r *replay) enqueue(c *course) {
	r.queue.Add(r.pending(c))
	r.estimator.wait(c)
	r.occupancy.wait(r.in.Machine.demand(c.job), 1)
}

// pending is a waiting job as sched sees it.
func (r *replay) pending(c *course) sched.Pending {
	j := c.job
	preempt, parked := r.in.preemption(j, c.service()), c.parkedOn != nil
	if parked {
		back := *j
		back.IDs, back.Allow = c.parkedOn, nil
		j = &back
	}
	return sched.Pending{
		Job: key(c.place), User: j.User, Priority: j.Priority, Seq: int64(c.place), Request: j.request(r.in.Policy.Rules), Parked: parked,
		Array: j.Array, ArrayLimit: j.AtOnce, Group: j.Group,
		Submitted: j.Submit.at(), Since: c.since.at(), RanBefore: c.service().duration(), Run: r.estimator.expected(c), Limit: r.estimator.limit(j, c.done+c.moved), Preempt: preempt,
	}
}

// dequeue removes a job from the queue.
func (r *replay) dequeue(c *course) {
	if !r.queue.Remove(key(c.place)) {
		panic("bug: job " + key(c.place) + " is not in the queue")
	}
	r.estimator.leave(c)
	r.occupancy.wait(r.in.Machine.demand(c.job), -1)
}

// refuse removes a job that can never run.
func (r *replay) refuse(refusal sched.Refusal) {
	c := r.course(refusal.Job)
	r.dequeue(c)
	c.fate.Refused = &refusal.Reason
	c.ended = true
	r.ended++
}

// start puts a job on its cards, unless it runs out of memory there.
func (r *replay) start(s sched.Start) {
	c := r.course(s.Job)
	r.dequeue(c)
	a := r.newActive(c, s.Grant)
	r.cards.assertRoom(a)
	if r.cards.lackMemory(a) {
		r.outOfMemory(c)
		return
	}
	if c.parkedOn != nil || c.service() > 0 {
		a.works += millisFor(a.held.Preempt.ResumeTime)
	}
	if c.parkedOn != nil {
		r.host.comeBack(c)
		a.held.Preempt = sched.Preempt{} // it cannot be parked meanwhile
		r.back = append(r.back, a)
	}
	a.end = a.works + a.job.runs() - c.done
	a.held.Started, a.held.RanBefore = r.now.at(), c.service().duration()
	a.held.Waited = (r.now - c.since).duration()
	r.occupy(a)
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
	c := a.course
	c.fate.TimedOut = a.job.timesOut()
	r.result.UsefulGPUSeconds += c.gpuSeconds
	r.learn(a.job, c.done+c.moved+r.now-a.start)
	c.ended = true
	r.ended++
}
