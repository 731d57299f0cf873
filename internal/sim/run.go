package sim

import (
	"time"

	"berth/internal/sched"
)

// Input is everything a replay depends on.
type Input struct {
	Jobs    []Job
	Machine Machine
	Policy  Policy

	// Elapsed reads a stopwatch; decisions are timed with it. Without it they
	// are counted only.
	Elapsed func() time.Duration

	// Progress is told now and then how many jobs are over; where it returns
	// false the replay stops. It may be nil.
	Progress func(over int) bool
}

// Fate is what became of one job.
type Fate struct {
	Start, End Millis
	Cards      []int
	TimedOut   bool          // its limit ended it
	Refused    *sched.Reason // why it can never run on this machine; then it did not
}

// Result is a replay. Times are those of the input.
type Result struct {
	Fates         []Fate // parallel to Input.Jobs
	Stopped       bool   // Progress said so: not every job ran
	Decisions     int
	DecisionTimes []time.Duration // empty without a stopwatch

	// Sums over time, in GPU-seconds.
	AllocatedGPUSeconds  float64 // given out
	FragmentedGPUSeconds float64 // free, of no use to a job that waited for no more than was free
}

// Run replays the jobs in virtual time.
func Run(in Input) Result {
	r := newReplay(&in)
	for steps := 0; ; steps++ {
		moment, more := r.nextMoment()
		if !more {
			break
		}
		if steps%progressSteps == 0 && in.Progress != nil && !in.Progress(r.over) {
			r.result.Stopped = true
			break
		}
		// 1. What happened up to now.
		r.passTo(moment)
		r.endJobs()
		r.submitJobs()
		// 2. What is decided, as the engine would.
		r.decide()
	}
	return r.result
}

// progressSteps is how many moments pass between two looks at Progress.
const progressSteps = 256

// maxStarts bounds one plan, as the engine's rounds are; the next follows at
// once.
const maxStarts = 256

// decide asks sched until nothing more starts.
func (r *replay) decide() {
	for r.queue.Len() > 0 {
		state := r.state()
		plan := r.timed(func() sched.Plan { return sched.Decide(state) })
		for _, refusal := range plan.Infeasible {
			r.refuse(refusal)
		}
		for _, start := range plan.Starts {
			r.start(start)
		}
		if len(plan.Starts) < maxStarts {
			return
		}
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
		Now: time.UnixMilli(int64(r.now)).UTC(), Rules: r.in.Policy.Rules, Cards: r.cards,
		Queue: r.queue, MaxStarts: maxStarts, Held: make([]sched.Held, len(r.running)),
	}
	for i, a := range r.running {
		s.Held[i] = a.held
	}
	if s.Rules.Fair {
		s.Usage, s.FairQuantum = r.usage(), sched.FairQuantum
	}
	return s
}
