package sim

import (
	"maps"
	"math"
	"strconv"

	"berth/internal/sched"
)

// replay is a replay under way.
type replay struct {
	in      *input
	order   []int // the jobs as they were submitted
	next    int   // of order: the first that is not submitted yet
	courses []course
	cards   []sched.Card
	queue   *sched.Queue
	guess   guesser
	alike   map[string]map[int]bool // what waits of each kind of command, by place
	learnt  map[string]int          // how many runs of a kind ended while others of it waited

	running []*active
	active  []*active // the same by place in order; nil: it does not run
	ends    ends      // of what runs

	now    Millis
	again  Millis // when the plan wants to be asked again
	same   int    // steps since time last passed
	idle   int    // steps since anything happened but that a plan was asked again
	over   int
	result Result

	shares  ledger
	floor   floor
	loads   []load   // of each card
	changes []change // of cards, in their order
	changed int      // how many of them took place
}

// never is a moment that does not come.
const never = Millis(math.MaxInt64)

// course is what a job brings along from one run to the next.
type course struct {
	declaredMiB int64   // of each card; more than the job's own once it was seen to need more
	since       Millis  // since when it waits
	done        Millis  // of its work, and kept
	gpuSeconds  float64 // spent on that since the replay began
	parked      bool    // it has to be brought back
	started     bool    // it ran before
	over        bool
}

func newReplay(in *input) *replay {
	r := &replay{
		in: in, order: bySubmission(in.Jobs), cards: in.Machine.cards(), queue: sched.NewQueue(),
		courses: make([]course, len(in.Jobs)), active: make([]*active, len(in.Jobs)), again: never,
		shares: ledger{halfLife: in.Policy.HalfLife, seconds: map[string]float64{}},
		floor:  newFloor(in.Machine.GPUs), loads: make([]load, in.Machine.GPUs),
		guess: newGuesser(in.Estimates), changes: changesOf(in),
		alike: map[string]map[int]bool{}, learnt: map[string]int{},
	}
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

// begins is when the replay does: with the first submission unless something
// happened before.
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
		panic("bug: a job of a replay is called " + strconv.Quote(key))
	}
	return place
}

// nextMoment is when something happens next.
func (r *replay) nextMoment() (Millis, bool) {
	if r.over == len(r.order) {
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
	if moment == never {
		if r.idle++; r.idle > maxIdle {
			return 0, false
		}
	}
	moment = min(moment, r.again)
	return max(r.now, moment), moment < never
}

// maxIdle is how often a plan is asked again, with nothing else to come,
// before it is believed that it will start nothing any more.
const maxIdle = 10_000

// passTo lets the time until then go by.
func (r *replay) passTo(moment Millis) {
	if moment > r.now {
		r.same = 0
	}
	// Each job may end and be set aside a few times within a moment. A plan
	// that goes round in circles does so for ever.
	if r.same++; r.same > 8*len(r.order)+maxIdle {
		panic("bug: no time passes")
	}
	seconds := (moment - r.now).Seconds()
	r.result.AllocatedGPUSeconds += seconds * r.floor.takenGPUs()
	if seconds > 0 && r.floor.fragmented() {
		r.result.FragmentedGPUSeconds += seconds * r.floor.freeGPUs()
	}
	r.now = moment
}

// submitJobs queues what arrives now.
func (r *replay) submitJobs() {
	for ; r.next < len(r.order) && r.in.Jobs[r.order[r.next]].Submit <= r.now; r.next++ {
		if !r.courses[r.order[r.next]].started {
			r.enqueue(r.next)
		}
	}
}

// enqueue makes a job wait.
func (r *replay) enqueue(place int) {
	r.queue.Add(r.pending(place))
	r.lineUp(place)
	j, _ := r.jobAt(place)
	r.floor.wait(r.demand(j), 1)
}

// pending is a waiting job as sched sees it.
func (r *replay) pending(place int) sched.Pending {
	j, c := r.jobAt(place)
	limit := r.guess.limit(j, c.done)
	if limit > 0 && c.parked {
		_, back := r.in.Park.cost(r.in.Machine, j)
		limit += back.duration() // its limit counts from when it works again
	}
	return sched.Pending{
		Job: key(place), User: j.User, Priority: j.Priority, Seq: int64(place), Request: j.request(r.in.Policy.Rules),
		Pool: j.Array, PoolLimit: j.AtOnce,
		Submitted: j.Submit.at(), Since: c.since.at(), Served: c.done.duration(), Run: r.guess.span(j), Limit: limit, Preempt: r.aside(j),
	}
}

// dequeue takes a job out that waits.
func (r *replay) dequeue(place int) {
	if !r.queue.Remove(key(place)) {
		panic("bug: job " + key(place) + " does not wait")
	}
	r.stepOut(place)
	j, _ := r.jobAt(place)
	r.floor.wait(r.demand(j), -1)
}

// jobAt is a job with the declaration in force, and how far it got.
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

// refuse takes a job out that can never run.
func (r *replay) refuse(refusal sched.Refusal) {
	place := r.placeOf(refusal.Job)
	r.dequeue(place)
	reason := refusal.Reason
	r.fateAt(place).Refused = &reason
	r.courses[r.order[place]].over = true
	r.over++
}

// start puts a job on its cards and reports whether it stays there.
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
	if c.parked {
		a.works += a.back
	}
	a.end = a.works + j.runs() - c.done
	a.held.Started, a.held.Served = r.now.at(), c.done.duration()
	a.held.Waited = (r.now - c.since).duration()
	r.occupy(a)
	return true
}

// endJobs takes off its cards what ends now or is gone.
func (r *replay) endJobs() {
	for len(r.ends) > 0 && r.ends[0].end <= r.now {
		r.idle = 0
		a := r.ends[0]
		r.vacate(a)
		if a.held.Leaving {
			r.courses[r.order[a.place]].parked = true
			r.enqueue(a.place)
			continue
		}
		r.finish(a)
	}
}

// finish closes the books on a job that did all it had to, or that its limit
// ended.
func (r *replay) finish(a *active) {
	c, fate := &r.courses[r.order[a.place]], r.fateAt(a.place)
	fate.TimedOut = a.job.timesOut()
	r.result.UsefulGPUSeconds += c.gpuSeconds
	r.learn(a.job)
	c.over = true
	r.over++
}

// markUnfinished is for jobs that nothing will start any more.
func (r *replay) markUnfinished() {
	for place, index := range r.order {
		if c := &r.courses[index]; !c.over {
			r.result.Fates[index].Unfinished = true
			r.beginAnew(place, c.done) // what it did so far came to nothing
		}
	}
}
