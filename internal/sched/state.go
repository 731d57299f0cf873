package sched

import (
	"time"

	"berth/internal/job"
	"berth/internal/reason"
)

// State is everything a decision depends on.
type State struct {
	Now   time.Time
	Rules Rules
	Host  Host
	Cards []Card
	Held  []Held

	// Unreadable says why the GPUs cannot be read; empty when they can. While
	// it is set nothing that needs a GPU starts; CPU jobs may.
	Unreadable string

	Queue     *Queue // only read
	MaxStarts int    // how many jobs one plan may start; 0: no bound

	Pools        map[string]int   // how many jobs of each pool run now
	Limits       map[string]Limit // of users that have their own
	DefaultLimit Limit            // of everybody else
	InUse        map[string]Use   // what each user's running jobs hold now

	// Usage is how much each user had lately, in GPU-seconds that decay with
	// time; under Rules.Fair who had least is served first. FairQuantum is
	// what one GPU given away within a plan adds to that. A caller who counts
	// as much for each GPU that a user's running jobs hold carries the turns
	// on from one plan to the next.
	Usage       map[string]float64
	FairQuantum float64
	// HalfLife is after how long half of the usage is forgotten; 0: none is.
	HalfLife time.Duration

	// ParkMiB is how much of the host's memory parked jobs may still take; 0: it
	// is not known and not checked, below 0: none.
	ParkMiB int64
}

// machine is the machine with all on it that runs.
func (s *State) machine() *machine {
	return newMachine(&s.Rules, s.Host, s.Cards, s.Unreadable, s.Held)
}

// Plan is a decision. It changes nothing until it is committed.
type Plan struct {
	Starts       []Start       // in the order in which they were considered
	Infeasible   []Refusal     // jobs that can never fit this machine
	Reservations []Reservation // cards held for jobs that wait
	Victims      []Victim      // running jobs to be set aside

	// Again is when to decide again even if nothing happens until then: a job
	// will have waited for long enough, or run for long enough. Zero: never.
	Again time.Time
}

// Start gives a job its cards.
type Start struct {
	Job   string
	Grant job.Grant
}

// Refusal is a job that could not fit even the empty machine.
type Refusal struct {
	Job    string
	Reason reason.Reason
}

// Reservation keeps cards for a job that waits.
type Reservation struct {
	Job   string
	Cards []int
	At    time.Time // when it is expected to have them
	Hard  bool      // it was passed for as long as it may be: nothing that may run for longer starts there
}

// Victim is a running job that is preempted in favour of another.
type Victim struct {
	Job  string
	For  string
	Mode PreemptMode
}
