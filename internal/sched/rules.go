package sched

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Rules are the settings that bear on placement and order.
type Rules struct {
	MarginMiB        int64     `json:"margin_mib"`               // kept free beside a declaration
	IdleThresholdMiB int64     `json:"idle_threshold_mib"`       // external use below this leaves a card idle
	SpikeBuffer      float64   `json:"spike_buffer"`             // added to a peak above the declaration
	Exclusive        bool      `json:"exclusive,omitempty"`      // no two berth jobs share a card
	JobsPerGPU       int       `json:"jobs_per_gpu,omitempty"`   // jobs that ask for neither VRAM nor a share get 1/N of a card; 0: off
	MemThreshold     float64   `json:"mem_threshold,omitempty"`  // measured use over total above which nothing starts; 0: off; below 0: nothing starts
	LoadThreshold    float64   `json:"load_threshold,omitempty"` // utilisation, 0 to 1, above which nothing starts; the same
	LoadAlways       bool      `json:"load_always,omitempty"`    // load counts even on cards that run berth jobs
	Placement        Placement `json:"placement"`                // empty: Pack
	Policy           Policy    `json:"policy"`                   // empty: Backfill
	Fair             bool      `json:"fair"`                     // among equal priorities, the user with the least usage goes first

	// MaxBypass is the overtake limit: how long other jobs may overtake a user's
	// oldest waiting job. Then it goes first, whatever its priority, and GPUs are
	// reserved for it; only jobs expected to be short may still use them. After
	// twice as long, only jobs with a short enough time limit may. 0: no limit.
	MaxBypass time.Duration `json:"max_bypass_ns"`
	// MinRun is the least time a job runs before it is preempted. 0: a minute.
	MinRun time.Duration `json:"min_run_ns,omitempty"`
	// Slice lets jobs that can be parked take turns: jobs with less service go
	// first, and a job that waited for long gets a boost.
	Slice bool `json:"slice"`
	// BorrowTime is the longest time limit with which a job that cannot give way may
	// run beyond its user's share. 0: no user has a share; below 0: none may.
	BorrowTime time.Duration `json:"borrow_time_ns,omitempty"`
}

// DefaultRules are the rules without any setting.
func DefaultRules() Rules {
	return Rules{
		MarginMiB: 512, IdleThresholdMiB: 200, SpikeBuffer: 0.10, Placement: Pack, Policy: Backfill,
		MaxBypass: DefaultMaxBypass, MinRun: minRun, Slice: true,
	}
}

// Restart is what it is taken to cost to run a job again that saved its own work.
func (r *Rules) Restart() time.Duration { return min(restart, restartRuns*cmp.Or(r.MinRun, minRun)) }

// Policy orders jobs of equal priority, and says whether one that does not fit
// holds up the jobs behind it.
type Policy string

// The policies. Under Rules.Fair, users take turns first.
const (
	FIFO         Policy = "fifo"         // by submission; no job overtakes a waiting one
	Backfill     Policy = "backfill"     // by submission; the first waiting job has a reservation, jobs that do not delay it may overtake
	Conservative Policy = "conservative" // the same, with reservations for the jobs behind it too
	Shortest     Policy = "shortest"     // the least expected GPU time first
	LAS          Policy = "las"          // the least GPU time received first; it preempts jobs with more
)

// Policies are all of them.
func Policies() []Policy { return []Policy{Backfill, FIFO, Conservative, Shortest, LAS} }

// ParsePolicy reads a policy's name.
func ParsePolicy(name string) (Policy, error) {
	if p := Policy(name); slices.Contains(Policies(), p) {
		return p, nil
	}
	names := make([]string, 0, len(Policies()))
	for _, p := range Policies() {
		names = append(names, string(p))
	}
	return "", fmt.Errorf("unknown policy %q: known are %s", name, strings.Join(names, ", "))
}

// Placement chooses among the cards that a job fits on.
type Placement string

// The placements.
const (
	Pack   Placement = "pack"   // the fullest that fits, so that large gaps stay large
	Spread Placement = "spread" // the emptiest
)

// ParsePlacement reads a placement's name.
func ParsePlacement(name string) (Placement, error) {
	switch p := Placement(name); p {
	case Pack, Spread:
		return p, nil
	}
	return "", fmt.Errorf("unknown placement %q: known are %s, %s", name, Pack, Spread)
}
