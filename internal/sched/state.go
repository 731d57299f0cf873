package sched

import (
	"maps"
	"slices"
	"time"

	"berth/internal/job"
	"berth/internal/job/reason"
)

// State is everything a decision depends on.
type State struct {
	Now         time.Time    `json:"now"`
	Rules       Rules        `json:"rules"`
	Host        Host         `json:"host"`
	Cards       []Card       `json:"cards"`
	Allocations []Allocation `json:"held"`

	// Unreadable is why the GPUs cannot be read; empty when they can. While it is
	// set no job that needs a GPU starts; CPU jobs may.
	Unreadable string `json:"unreadable,omitempty"`

	Queue     *Queue `json:"-"`                    // only read
	MaxStarts int    `json:"max_starts,omitempty"` // how many jobs one plan may start; 0: no bound

	ArrayRuns    map[string]int      `json:"pools,omitempty"` // how many tasks of each array run now
	Groups       map[GroupName]Group `json:"-"`
	Limits       map[string]Limit    `json:"limits,omitempty"` // of users that have their own
	DefaultLimit Limit               `json:"default_limit"`    // of everybody else
	InUse        map[string]Use      `json:"in_use,omitempty"` // what each user's running jobs hold now

	// Usage is each user's decayed GPU time in seconds; under Rules.Fair the user
	// with the least goes first. FairQuantum is what each GPU allocated within a
	// plan adds to it. A caller that adds as much for each GPU of a user's running
	// jobs carries the turns over from one plan to the next.
	Usage       map[string]float64 `json:"usage,omitempty"`
	FairQuantum float64            `json:"fair_quantum,omitempty"`
	// HalfLife is when half of the usage has decayed; 0: it does not decay.
	HalfLife time.Duration `json:"half_life_ns,omitempty"`

	// ParkMiB is how much host memory parked jobs may still take; 0: not known and
	// not checked, below 0: none.
	ParkMiB int64 `json:"park_mib,omitempty"`
	// ParkOfMiB is how much of that the jobs of these users may take; nobody else has
	// a bound of their own.
	ParkOfMiB map[string]int64 `json:"park_of_mib,omitempty"`
}

// GroupName names a group of a user's jobs.
type GroupName struct{ User, Name string }

// Group is a group that its user limits or paused. Groups that are only a name
// are not in a State.
type Group struct {
	Limit    int      `json:"limit,omitempty"`     // how many of its jobs may run at a time; 0: all
	PausedBy string   `json:"paused_by,omitempty"` // who paused it; empty: it is not paused
	Running  []string `json:"running,omitempty"`   // its running jobs
}

// machine is the machine with all running jobs on it.
func (s *State) machine() *machine {
	return newMachine(&s.Rules, s.Host, s.Cards, s.Unreadable, inOrder(s.Allocations))
}

// copied is a copy that shares nothing mutable, without the queue.
func (s *State) copied() State {
	w := *s
	w.Queue = nil
	w.Cards = append(make([]Card, 0, len(s.Cards)), s.Cards...)
	for i := range w.Cards {
		c := &w.Cards[i]
		c.Links, c.Near = maps.Clone(c.Links), maps.Clone(c.Near)
	}
	w.Allocations = append(make([]Allocation, 0, len(s.Allocations)), s.Allocations...)
	for i := range w.Allocations {
		h := &w.Allocations[i]
		h.Cards, h.BudgetMiB = slices.Clone(h.Cards), slices.Clone(h.BudgetMiB)
	}
	w.ArrayRuns, w.Usage, w.ParkOfMiB = maps.Clone(s.ArrayRuns), maps.Clone(s.Usage), maps.Clone(s.ParkOfMiB)
	w.Limits, w.InUse, w.Groups = maps.Clone(s.Limits), maps.Clone(s.InUse), maps.Clone(s.Groups)
	for name, of := range w.Groups {
		of.Running = slices.Clone(of.Running)
		w.Groups[name] = of
	}
	return w
}

// Plan is a decision. It changes nothing until it is committed.
type Plan struct {
	Starts       []Start       // in the order in which they were considered
	Infeasible   []Refusal     // jobs that could never run on this machine
	Reservations []Reservation // GPUs set aside for waiting jobs
	Victims      []Victim      // running jobs to preempt

	// Again is when to decide again even if nothing happens: by then a job will
	// have waited, or run, for long enough. Zero: never.
	Again time.Time
}

// Start gives a job its cards.
type Start struct {
	Job   string
	Grant job.Grant
}

// Refusal is a job that would not fit even on the empty machine.
type Refusal struct {
	Job    string
	Reason reason.Reason
}

// Reservation sets GPUs aside for a waiting job.
type Reservation struct {
	Job     string
	Cards   []int
	At      time.Time // its expected start
	ByLimit bool      // it is long overdue: only a job whose time limit ends before At may start there
}

// Victim is a running job that is preempted for another.
type Victim struct {
	Job  string
	For  string
	Mode PreemptMode
}
