package sim

import (
	"cmp"
	"container/heap"
	"strconv"

	"berth/internal/sched"
)

// replay is a replay under way.
type replay struct {
	in     *Input
	order  []int // the jobs as they were submitted
	next   int   // of order: the first that is not submitted yet
	cards  []sched.Card
	queue  *sched.Queue
	ends   ends // of what runs
	now    Millis
	over   int
	result Result

	running []*active
	shares  ledger
	floor   floor
}

// active is a job that runs.
type active struct {
	job   int // its index in the input
	place int // in replay.running
	held  sched.Held
	start Millis
	end   Millis
}

func newReplay(in *Input) *replay {
	r := &replay{
		in: in, order: bySubmission(in.Jobs), cards: in.Machine.cards(), queue: sched.NewQueue(),
		shares: ledger{halfLife: in.Policy.HalfLife, seconds: map[string]float64{}},
		floor:  newFloor(in.Machine.GPUs),
	}
	r.result.Fates = make([]Fate, len(in.Jobs))
	if len(r.order) > 0 {
		r.now = in.Jobs[r.order[0]].Submit
	}
	return r
}

// key is a job's id for sched: those of the input need not be unique.
func key(place int) string { return strconv.Itoa(place) }

// jobOf undoes key.
func (r *replay) jobOf(key string) int {
	place, err := strconv.Atoi(key)
	if err != nil {
		panic("bug: a job of a replay is called " + strconv.Quote(key))
	}
	return r.order[place]
}

// nextMoment is when something happens next.
func (r *replay) nextMoment() (Millis, bool) {
	arrives, ends := r.next < len(r.order), len(r.ends) > 0
	switch {
	case !arrives && !ends:
		return 0, false
	case !ends:
		return r.in.Jobs[r.order[r.next]].Submit, true
	case !arrives:
		return r.ends[0].end, true
	}
	return min(r.ends[0].end, r.in.Jobs[r.order[r.next]].Submit), true
}

// passTo lets the time until then go by.
func (r *replay) passTo(moment Millis) {
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
		j := &r.in.Jobs[r.order[r.next]]
		r.queue.Add(sched.Pending{
			Job: key(r.next), User: j.User, Priority: j.Priority, Seq: int64(r.next),
			Request: j.request(r.in.Policy.Rules),
		})
		r.floor.wait(r.demand(j), 1)
	}
}

func (r *replay) demand(j *Job) demand { return demand{gpus: j.GPUs, part: r.in.Machine.part(j)} }

// refuse takes a job out that can never run.
func (r *replay) refuse(refusal sched.Refusal) {
	index := r.jobOf(refusal.Job)
	r.queue.Remove(refusal.Job)
	r.floor.wait(r.demand(&r.in.Jobs[index]), -1)
	reason := refusal.Reason
	r.result.Fates[index].Refused = &reason
	r.over++
}

// start puts a job on its cards.
func (r *replay) start(s sched.Start) {
	index := r.jobOf(s.Job)
	j := &r.in.Jobs[index]
	r.queue.Remove(s.Job)
	r.floor.wait(r.demand(j), -1)
	r.floor.take(s.Grant.GPUs, r.in.Machine.part(j))
	a := &active{
		job: index, place: len(r.running), start: r.now, end: r.now + j.runs(),
		held: sched.Held{
			Job: s.Job, Cards: s.Grant.GPUs, BudgetMiB: sched.CardBudgets(s.Grant, j.VRAMMiB, r.cards),
			Share: s.Grant.Share, Alone: s.Grant.Alone, Exclusive: s.Grant.Exclusive,
		},
	}
	r.running = append(r.running, a)
	heap.Push(&r.ends, a)
	r.result.Fates[index] = Fate{Start: a.start, End: a.end, Cards: s.Grant.GPUs, TimedOut: j.timesOut()}
}

// endJobs takes off its cards what ends now.
func (r *replay) endJobs() {
	for len(r.ends) > 0 && r.ends[0].end <= r.now {
		a := heap.Pop(&r.ends).(*active)
		j := &r.in.Jobs[a.job]
		r.floor.take(a.held.Cards, -r.in.Machine.part(j))
		last := len(r.running) - 1
		r.running[a.place] = r.running[last]
		r.running[a.place].place = a.place
		r.running = r.running[:last]
		if r.in.Policy.Rules.Fair {
			r.shares.charge(j.User, r.now, a.gpuSeconds(r.now))
		}
		r.over++
	}
}

// ends is a heap of what runs: what ends first lies on top.
type ends []*active

func (e ends) Len() int { return len(e) }
func (e ends) Less(i, k int) bool {
	return cmp.Or(cmp.Compare(e[i].end, e[k].end), cmp.Compare(e[i].held.Job, e[k].held.Job)) < 0
}
func (e ends) Swap(i, k int) { e[i], e[k] = e[k], e[i] }
func (e *ends) Push(v any)   { *e = append(*e, v.(*active)) }
func (e *ends) Pop() any {
	last := len(*e) - 1
	v := (*e)[last]
	*e = (*e)[:last]
	return v
}
