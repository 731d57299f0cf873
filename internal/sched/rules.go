package sched

import "fmt"

// Rules are the settings of a berth that bear on placement.
type Rules struct {
	MarginMiB        int64     // kept free beside a declaration
	IdleThresholdMiB int64     // foreign use below this leaves a card idle
	SpikeBuffer      float64   // added to a peak that passed its declaration
	Exclusive        bool      // every job keeps other berth jobs off its cards
	JobsPerGPU       int       // N gives jobs that ask for neither VRAM nor a share 1/N; 0: off
	MemThreshold     float64   // measured use over total above which nothing starts; 0: off
	LoadThreshold    float64   // utilisation, 0 to 1, above which nothing starts; 0: off
	Placement        Placement // empty: Pack
	Policy           Policy    // empty: Backfill
	Fair             bool      // of equal priority, the user who had least comes first
}

// DefaultRules are the rules before the user said anything.
func DefaultRules() Rules {
	return Rules{MarginMiB: 512, IdleThresholdMiB: 200, SpikeBuffer: 0.10, Placement: Pack, Policy: Backfill}
}

// Policy says what a job that does not fit means for those behind it.
type Policy string

// The policies.
const (
	Backfill Policy = "backfill" // later jobs that fit may pass it
	FIFO     Policy = "fifo"     // nothing passes it
)

// ParsePolicy reads a policy's name.
func ParsePolicy(name string) (Policy, error) {
	switch p := Policy(name); p {
	case Backfill, FIFO:
		return p, nil
	}
	return "", fmt.Errorf("unknown policy %q: known are %s, %s", name, Backfill, FIFO)
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
