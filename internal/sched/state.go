package sched

import (
	"time"

	"berth/internal/job"
	"berth/internal/job/reason"
)

// State is everything a decision depends on.
type State struct {
	Now   time.Time
	Rules Rules
	Host  Host
	Cards []Card
	Held  []Held

	// Unreadable is why the GPUs cannot be read; empty when they can. While it is
	// set no job that needs a GPU starts; CPU jobs may.
	Unreadable string

	Queue     *Queue // only read
	MaxStarts int    // how many jobs one plan may start; 0: no bound

	Pools        map[string]int // how many jobs of each pool run now
	Groups       map[GroupName]JobGroup
	Limits       map[string]Limit // of users that have their own
	DefaultLimit Limit            // of everybody else
	InUse        map[string]Use   // what each user's running jobs hold now

	// Usage is each user's decayed GPU time in seconds; under Rules.Fair the user
	// with the least goes first. FairQuantum is what each GPU allocated within a
	// plan adds to it. A caller that adds as much for each GPU of a user's running
	// jobs carries the turns over from one plan to the next.
	Usage       map[string]float64
	FairQuantum float64
	// HalfLife is when half of the usage has decayed; 0: it does not decay.
	HalfLife time.Duration

	// ParkMiB is how much host memory parked jobs may still take; 0: not known and
	// not checked, below 0: none.
	ParkMiB int64
	// ParkOfMiB is how much of that the jobs of these users may take; nobody else has
	// a bound of their own.
	ParkOfMiB map[string]int64
}

// GroupName names a group of a user's jobs.
type GroupName struct{ User, Name string }

// JobGroup is a group that its user limits or paused. Groups that are only a name
// are not in a State.
type JobGroup struct {
	Limit    int      // how many of its jobs may run at a time; 0: all
	PausedBy string   // who paused it; empty: it is not paused
	Running  []string // its running jobs
}

// machine is the machine with all running jobs on it.
func (s *State) machine() *machine {
	return newMachine(&s.Rules, s.Host, s.Cards, s.Unreadable, s.Held)
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
	Job   string
	Cards []int
	At    time.Time // its expected start
	Hard  bool      // it is long overdue: only a job whose time limit ends before At may start there
}

// Victim is a running job that is preempted for another.
type Victim struct {
	Job  string
	For  string
	Mode PreemptMode
}
