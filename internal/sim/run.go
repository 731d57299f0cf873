package sim

import (
	"time"

	"berth/internal/reason"
	"berth/internal/sched"
)

// input is everything a replay depends on.
type input struct {
	Jobs    []Job
	Machine Machine
	Policy  Policy

	Park      *Parking  // what setting a job aside costs; nil: nothing can be set aside
	Estimates Estimates // what the lengths of jobs are guessed from; empty: History

	// Begin is when the replay begins if something happened before: jobs that
	// were submitted earlier wait by then, and Running is on its cards. Usage
	// is what users had in jobs that were over by then, in GPU-seconds.
	Begin   Millis
	Running []Running
	Usage   map[string]float64

	Limits       map[string]sched.Limit // of users that have their own
	DefaultLimit sched.Limit            // of everybody else

	Foreign []Foreign // processes that are none of the jobs
	Lost    []loss    // cards that fail

	// Decide takes the place of sched.Decide, which it is if nil.
	Decide func(sched.State) sched.Plan

	// Elapsed reads a stopwatch; decisions are timed with it. Without it they
	// are counted only.
	Elapsed func() time.Duration

	// Progress is told now and then how many jobs are over; where it returns
	// false the replay stops. It may be nil.
	Progress func(over int) bool
}

// Fate is what became of one job.
type Fate struct {
	Start, End Millis    // its first start and its last end
	Cards      []int     // of its last run
	Segments   []Segment // its runs, in order; several where it was set aside or its card was lost

	TimedOut   bool           // its limit ended it
	Refused    *reason.Reason // why it can never run on this machine; then it did not
	Unfinished bool           // what it waits for never came

	Preemptions int    // how often it was set aside
	OOMs        int    // how often it needed more memory than there was
	Overhead    Millis // on its cards, while it was set aside and brought back
	Wasted      Millis // on its cards, for work that had to be done again
}

// Segment is a time that a job spent on cards.
type Segment struct {
	Start, End Millis
	Cards      []int
}

// Result is a replay. Times are those of the input.
type Result struct {
	Fates         []Fate // parallel to Input.Jobs
	Began         Millis // when the replay did
	Stopped       bool   // Progress said so: not every job ran
	Preemptions   int
	OOMs          int
	Decisions     int
	DecisionTimes []time.Duration // empty without a stopwatch

	// Sums over time, in GPU-seconds.
	AllocatedGPUSeconds  float64 // given out
	FragmentedGPUSeconds float64 // free, of no use to a job that waited for no more than was free
	UsefulGPUSeconds     float64 // spent on what jobs had to do, those that their limits ended included
	OverheadGPUSeconds   float64 // spent on setting jobs aside and bringing them back
	WastedGPUSeconds     float64 // spent on work that had to be done again
}

// run replays the jobs in virtual time.
func run(in input) Result {
	r := newReplay(&in)
	for steps := 0; ; steps++ {
		moment, more := r.nextMoment()
		if !more {
			break
		}
		if steps%progressSteps == 0 && in.Progress != nil && !in.Progress(r.over) {
			r.result.Stopped = true
			return r.result
		}
		// 1. What happened up to now.
		r.passTo(moment)
		r.endJobs()
		r.changeCards()
		r.submitJobs()
		// 2. What is decided, as the engine would.
		r.decide()
	}
	r.markUnfinished()
	return r.result
}

// progressSteps is how many moments pass between two looks at Progress.
const progressSteps = 256

// maxStarts bounds one plan, as the engine's rounds are; the next follows at
// once.
const maxStarts = 256

// decide asks sched until nothing more starts.
func (r *replay) decide() {
	r.again = never
	for r.queue.Len() > 0 {
		r.readCards()
		r.queue.Tick(r.now.at())
		state := r.state()
		plan := r.timed(func() sched.Plan { return r.plan(state) })
		for _, refusal := range plan.Infeasible {
			r.refuse(refusal)
		}
		for _, aside := range plan.Victims {
			r.setAside(aside)
		}
		failed := false
		for _, start := range plan.Starts {
			failed = !r.start(start) || failed
		}
		r.obey(plan)
		if len(plan.Starts) < maxStarts && !failed {
			return
		}
	}
}

func (r *replay) plan(s sched.State) sched.Plan {
	if r.in.Decide != nil {
		return r.in.Decide(s)
	}
	return sched.Decide(s)
}

// obey notes when the plan wants to be asked again. That is later than now,
// whatever it says: time has to pass.
func (r *replay) obey(plan sched.Plan) {
	r.again = never
	if !plan.Again.IsZero() {
		r.again = max(r.now+1, millisUp(plan.Again))
	}
	if len(plan.Starts)+len(plan.Victims)+len(plan.Infeasible) > 0 {
		r.idle = 0
	}
}

func (r *replay) timed(decide func() sched.Plan) sched.Plan {
	r.result.Decisions++
	if r.in.Elapsed == nil {
		return decide()
	}
	before := r.in.Elapsed()
	plan := decide()
	r.result.DecisionTimes = append(r.result.DecisionTimes, r.in.Elapsed()-before)
	return plan
}

// state is the snapshot that sched decides on.
func (r *replay) state() sched.State {
	s := sched.State{
		Now: r.now.at(), Rules: r.in.Policy.Rules, Cards: r.cards,
		Queue: r.queue, MaxStarts: maxStarts, Held: make([]sched.Held, len(r.running)),
		Limits: r.in.Limits, DefaultLimit: r.in.DefaultLimit, Pools: map[string]int{},
	}
	for i, a := range r.running {
		s.Held[i] = a.held
		if a.job.AtOnce > 0 {
			s.Pools[a.job.Array]++
		}
	}
	if len(s.Limits) > 0 || s.DefaultLimit != (sched.Limit{}) {
		s.InUse = r.inUse()
	}
	if s.Rules.Fair {
		s.Usage, s.FairQuantum, s.HalfLife = r.usage(), sched.FairQuantum, r.in.Policy.HalfLife
	}
	return s
}

// inUse is what each user's running jobs hold.
func (r *replay) inUse() map[string]sched.Use {
	uses := map[string]sched.Use{}
	for _, a := range r.running {
		use := uses[a.job.User]
		use.Jobs++
		use.GPUs += a.held.CountedGPUs()
		uses[a.job.User] = use
	}
	return uses
}
