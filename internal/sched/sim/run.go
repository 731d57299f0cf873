package sim

import (
	"time"

	"berth/internal/job/reason"
	"berth/internal/sched"
)

// input is everything a replay depends on.
type input struct {
	Jobs    []Job
	Machine Machine
	Host    sched.Host // what the machine has besides its cards; zero: not known
	Policy  Policy

	Park      *Parking  // the cost of parking; nil: no job can be parked
	Estimates Estimates // the source of estimates; empty: History

	// Begin is when the replay begins if something happened before: jobs
	// submitted earlier wait by then, and those of Running run. Usage is each
	// user's usage in jobs that had ended by then, in GPU-seconds.
	Begin   Millis
	Running []Running
	Usage   map[string]float64

	Limits       map[string]sched.Limit // of users with their own
	DefaultLimit sched.Limit            // of all other users
	GroupLimits  map[sched.GroupName]int

	Foreign []Foreign // external processes
	Lost    []loss    // cards that fail

	// Decide replaces sched.Decide if it is not nil.
	Decide func(sched.State) sched.Plan

	// Elapsed reads a stopwatch to time decisions. Without it they are only
	// counted.
	Elapsed func() time.Duration

	// Progress is called now and then with the number of ended jobs; the
	// replay stops if it returns false. It may be nil.
	Progress func(ended int) bool
}

// Fate is what became of one job.
type Fate struct {
	Start, End Millis    // its first start and its last end
	Cards      []int     // of its last segment
	Segments   []Segment // when it ran, in order; several if it was parked or its card was lost

	TimedOut   bool           // its time limit ended it
	Refused    *reason.Reason // why it can never run on this machine; nil: it can
	Unfinished bool           // it waits for something that never happened

	Preemptions int    // how often it was preempted
	OOMs        int    // how often it ran out of memory
	Overhead    Millis // time on its cards spent on parking and resuming
	Wasted      Millis // time on its cards whose progress was lost
}

// Segment is a time during which a job ran.
type Segment struct {
	Start, End Millis
	Cards      []int
}

// Result is the outcome of a replay. Times are those of the input.
type Result struct {
	Fates         []Fate // parallel to Input.Jobs
	Began         Millis // when the replay began
	Stopped       bool   // by Progress: not every job ran
	Preemptions   int
	OOMs          int
	Decisions     int
	DecisionTimes []time.Duration // empty without a stopwatch

	// Sums over time, in GPU-seconds.
	AllocatedGPUSeconds  float64 // allocated
	FragmentedGPUSeconds float64 // free, but scattered so that a job that needed no more had to wait
	UsefulGPUSeconds     float64 // spent on the work of jobs, timed out ones included
	OverheadGPUSeconds   float64 // spent on parking and resuming jobs
	WastedGPUSeconds     float64 // spent on lost work

	binding
}

// run replays the jobs in virtual time.
func run(in input) Result {
	r := newReplay(&in)
	for steps := 0; ; steps++ {
		moment, more := r.nextMoment()
		if !more {
			break
		}
		if steps%progressSteps == 0 && in.Progress != nil && !in.Progress(r.ended) {
			r.result.Stopped = true
			return r.result
		}
		// 1. Observe what happened up to now.
		r.passTo(moment)
		r.endJobs()
		r.changeCards()
		r.submitJobs()
		// 2. Decide, as the engine would.
		r.decide()
	}
	for i := range r.courses {
		if c := &r.courses[i]; !c.ended { // it will never start again
			c.fate.Unfinished = true
			c.restart(c.done, &r.result)
		}
	}
	r.result.HostPeakMiB = r.host.peakMiB
	return r.result
}

// progressSteps is how many steps pass between two calls of Progress.
const progressSteps = 256

// maxStarts bounds one plan as in the engine; the next one follows at once.
const maxStarts = 256

// decide asks sched for plans until nothing more starts.
func (r *replay) decide() {
	r.again = never
	for r.queue.Len() > 0 {
		r.cards.read()
		r.queue.Tick(r.now.at())
		plan := r.plan(r.state())
		for _, refusal := range plan.Infeasible {
			r.refuse(refusal)
		}
		for _, victim := range plan.Victims {
			r.preempt(victim)
		}
		for _, start := range plan.Starts {
			r.start(start)
		}
		// Another decision is always later than now, because time has to advance.
		r.again = never
		if !plan.Again.IsZero() {
			r.again = max(r.now+1, millisUp(plan.Again))
		}
		if len(plan.Starts)+len(plan.Victims)+len(plan.Infeasible) > 0 {
			r.idle = 0
		}
		if len(plan.Starts)+len(plan.Victims) == 0 {
			return
		}
	}
}

// plan decides, and times that.
func (r *replay) plan(s sched.State) (plan sched.Plan) {
	r.result.Decisions++
	decide := r.in.Decide
	if decide == nil {
		decide = sched.Decide
	}
	if r.in.Elapsed == nil {
		return decide(s)
	}
	before := r.in.Elapsed()
	plan = decide(s)
	r.result.DecisionTimes = append(r.result.DecisionTimes, r.in.Elapsed()-before)
	return plan
}

// state is the state that sched decides on.
func (r *replay) state() sched.State {
	s := sched.State{
		Now: r.now.at(), Rules: r.in.Policy.Rules, Host: r.in.Host, Cards: r.cards.seen,
		Queue: r.queue, MaxStarts: maxStarts, Allocations: make([]sched.Allocation, len(r.running)),
		Limits: r.in.Limits, DefaultLimit: r.in.DefaultLimit, ArrayRuns: map[string]int{}, ParkMiB: r.host.left(),
	}
	for i, a := range r.running {
		s.Allocations[i] = a.held
		if a.job.AtOnce > 0 {
			s.ArrayRuns[a.job.Array]++
		}
	}
	if len(r.in.GroupLimits) > 0 {
		s.Groups = r.running.groups(r.in.GroupLimits)
	}
	if len(s.Limits) > 0 || s.DefaultLimit != (sched.Limit{}) {
		s.InUse = r.running.inUse()
	}
	if s.Rules.Fair {
		s.Usage, s.FairQuantum, s.HalfLife = r.running.usage(&r.shares, r.now, r.scale), sched.FairQuantum, r.in.Policy.HalfLife
	}
	return s
}

// groups are the limited groups and their running jobs.
func (rs running) groups(limits map[sched.GroupName]int) map[sched.GroupName]sched.Group {
	groups := map[sched.GroupName]sched.Group{}
	for name, limit := range limits {
		groups[name] = sched.Group{Limit: limit}
	}
	for _, a := range rs {
		name := sched.GroupName{User: a.job.User, Name: a.job.Group}
		if of, limited := groups[name]; limited {
			of.Running = append(of.Running, a.held.Job)
			groups[name] = of
		}
	}
	return groups
}

// inUse is what each user's running jobs occupy.
func (rs running) inUse() map[string]sched.Use {
	uses := map[string]sched.Use{}
	for _, a := range rs {
		use := uses[a.job.User]
		use.Add(&a.held)
		uses[a.job.User] = use
	}
	return uses
}
