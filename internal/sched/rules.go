package sched

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Rules are the settings of a berth that bear on placement.
type Rules struct {
	MarginMiB        int64     // kept free beside a declaration
	IdleThresholdMiB int64     // foreign use below this leaves a card idle
	SpikeBuffer      float64   // added to a peak that passed its declaration
	Exclusive        bool      // every job keeps other berth jobs off its cards
	JobsPerGPU       int       // N gives jobs that ask for neither VRAM nor a share 1/N; 0: off
	MemThreshold     float64   // measured use over total above which nothing starts; 0: off
	LoadThreshold    float64   // utilisation, 0 to 1, above which nothing starts; 0: off
	LoadAlways       bool      // the load counts also where berth's own jobs make it
	Placement        Placement // empty: Pack
	Policy           Policy    // empty: Backfill
	Fair             bool      // of equal priority, the user who had least comes first

	// MaxBypass is how long the oldest waiting job of a user may be passed by
	// others; then it goes first, whatever its priority, and cards are kept for
	// it, which only what is expected to be short may still use. After twice as
	// long only what a time limit ends may. 0: there is no bound.
	MaxBypass time.Duration
	// MinRun is the least that a job runs before it gives way. 0: a minute.
	MinRun time.Duration
	// Slice lets jobs that can be parked take turns: those that had less service
	// go first, and who waited for long gets a while of its own.
	Slice bool
}

// DefaultRules are the rules before the user said anything.
func DefaultRules() Rules {
	return Rules{
		MarginMiB: 512, IdleThresholdMiB: 200, SpikeBuffer: 0.10, Placement: Pack, Policy: Backfill,
		MaxBypass: DefaultMaxBypass, MinRun: minRun, Slice: true,
	}
}

// Policy is the order of jobs of equal priority, and what one that does not fit
// means for those behind it.
type Policy string

// The policies. Under Rules.Fair users take turns first.
const (
	FIFO         Policy = "fifo"         // by submission; nothing passes a job that waits
	Backfill     Policy = "backfill"     // by submission; the first that waits holds its cards, what does not delay it may pass
	Conservative Policy = "conservative" // the same, and so do all that wait behind it
	Shortest     Policy = "shortest"     // what is expected to need the cards least comes first
	LAS          Policy = "las"          // what had the cards least comes first, and sets aside what had them more
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

// Placement says which of the cards that fit a job gets.
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
