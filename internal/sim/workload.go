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
	OfSnapshot               // what a daemon had before it
)

// Workload is what is replayed, and what was left out of it.
type Workload struct {
	Source  string // what people call it: the name of a file
	Origin  Origin
	Machine Machine
	Jobs    []Job
	Places  []string // where each job is written: "line 17", "job 17"
	LeftOut int      // jobs that no replay can say anything about

	// Of a snapshot: what there is when the replay begins.
	TakenAt      time.Time
	Begin        Millis
	Running      []Running
	Usage        map[string]float64 // what users had until then
	Limits       map[string]sched.Limit
	DefaultLimit sched.Limit // of users that have none of their own
	Foreign      []Foreign
	Rules        *sched.Rules // the daemon's
	CardNames    []int        // the daemon's number of each card

	// Of a snapshot: what was assumed.
	CardsLeftOut int           // that have no job and take none now
	KeptOff      int           // of the jobs left out: those for cards that take none now
	Unknown      int           // queued jobs of which nothing is known
	Typical      time.Duration // which these are taken to run for
}

// CardName is what a card is called where the jobs ran.
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

// Choices are what was asked for beside a policy.
type Choices struct {
	Park      *Parking  // what setting a job aside costs; nil: nothing can be set aside
	Estimates Estimates // empty: what suits the workload

	// The policy's own bound and placement go before those of the daemon that
	// a snapshot is of.
	OwnMaxBypass, OwnPlacement bool
}

// input is one replay. Of a daemon's own rules a policy replaces the order.
func (w *Workload) input(jobs []Job, policy Policy, c Choices) input {
	in := input{
		Jobs: jobs, Machine: w.Machine, Policy: policy, Park: c.Park, Estimates: c.Estimates,
		Begin: w.Begin, Running: w.Running, Usage: w.Usage, Foreign: w.Foreign,
		Limits: w.Limits, DefaultLimit: w.DefaultLimit,
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
		in.Policy.Rules = rules
	}
	if w.Origin == OfSnapshot && c.Estimates == "" {
		in.Estimates = Perfect // durations are guesses already
	}
	return in
}

// perturbed is a copy as it might as well have been. What a snapshot tells
// has happened: of its jobs only the lengths are not certain.
func (w *Workload) perturbed(seed uint64) []Job {
	jobs := perturb(w.Jobs, uniform(seed))
	if w.Origin == OfSnapshot {
		for i := range jobs {
			jobs[i].Submit = w.Jobs[i].Submit
		}
	}
	return jobs
}
