package sim

import (
	"time"

	"berth/internal/sched"
)

// Origin is where a workload comes from.
type Origin int

// The origins.
const (
	OfTrace    Origin = iota // a file of jobs with their durations
	OfHistory                // jobs that a daemon ran
	OfSnapshot               // the state of a daemon
)

// Workload is what to replay, and what was left out.
type Workload struct {
	Source  string // its name, such as that of a file
	Origin  Origin
	Machine Machine
	Jobs    []Job
	Places  []string // where each job comes from: "line 17", "job 17"
	LeftOut int      // jobs that cannot be replayed

	// Of a snapshot: the state when the replay begins.
	TakenAt      time.Time
	Begin        Millis
	Running      []Running
	Usage        map[string]float64 // of each user until then
	Host         sched.Host
	Limits       map[string]sched.Limit
	DefaultLimit sched.Limit // of users without their own
	GroupLimits  map[sched.GroupName]int
	Foreign      []Foreign
	Rules        *sched.Rules // the daemon's
	CardNames    []int        // the daemon's number of each card

	// Of a snapshot: what was assumed.
	CardsLeftOut int           // paused or unhealthy, without a job
	KeptOff      int           // of LeftOut: jobs that need such cards
	Paused       int           // of LeftOut: jobs of paused groups
	Unknown      int           // queued jobs without an estimate
	Typical      time.Duration // their assumed duration
}

// CardName is the number of a card on the machine where the jobs ran.
func (w *Workload) CardName(card int) int {
	if card < len(w.CardNames) {
		return w.CardNames[card]
	}
	return card
}

func (w *Workload) add(j Job, place string) {
	w.Jobs = append(w.Jobs, j)
	w.Places = append(w.Places, place)
}

// Choices are the options of a replay besides the policy.
type Choices struct {
	Park      *Parking  // which jobs can be parked, and at what cost; nil: none
	Estimates Estimates // empty: the default for the workload

	// Use the overtake limit, the placement or the least run of the policy instead
	// of those of the daemon that wrote the snapshot.
	OwnMaxBypass, OwnPlacement, OwnMinRun bool
}

// HostMemory is Parking.MemoryMiB: the daemon's default on the simulated host of this
// machine. The host has twice the memory of its GPUs, and parked jobs may take half.
const HostMemory = -1

// Parking is how jobs are parked in a replay of this workload.
func (w *Workload) Parking(c Choices) *Parking {
	if c.Park == nil || c.Park.MemoryMiB != HostMemory {
		return c.Park
	}
	p := *c.Park
	p.MemoryMiB = int64(w.Machine.GPUs) * w.Machine.VRAMMiB
	return &p
}

// input is the input of one replay. A policy replaces only the order in the
// rules of a daemon.
func (w *Workload) input(jobs []Job, policy Policy, c Choices) input {
	in := input{
		Jobs: jobs, Machine: w.Machine, Host: w.Host, Policy: policy, Park: w.Parking(c), Estimates: c.Estimates,
		Begin: w.Begin, Running: w.Running, Usage: w.Usage, Foreign: w.Foreign,
		Limits: w.Limits, DefaultLimit: w.DefaultLimit, GroupLimits: w.GroupLimits,
	}
	if w.Rules != nil {
		rules := *w.Rules
		rules.Policy, rules.Fair, rules.Slice = policy.Rules.Policy, policy.Rules.Fair, policy.Rules.Slice
		if c.OwnMaxBypass {
			rules.MaxBypass = policy.Rules.MaxBypass
		}
		if c.OwnPlacement {
			rules.Placement = policy.Rules.Placement
		}
		if c.OwnMinRun {
			rules.MinRun = policy.Rules.MinRun
		}
		in.Policy.Rules = rules
	}
	if w.Origin == OfSnapshot && c.Estimates == "" {
		in.Estimates = Perfect // durations are estimates already
	}
	return in
}

// perturbed is a perturbed copy of the jobs. Those of a snapshot have already
// been submitted: only their durations vary.
func (w *Workload) perturbed(seed uint64) []Job {
	jobs := perturb(w.Jobs, uniform(seed))
	if w.Origin == OfSnapshot {
		for i := range jobs {
			jobs[i].Submit = w.Jobs[i].Submit
		}
	}
	return jobs
}
