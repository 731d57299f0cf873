package sched

import (
	"fmt"
	"time"
)

// Card is one GPU as it was last measured.
type Card struct {
	Index                          int
	UUID, Name                     string
	TotalMiB, ReservedMiB, UsedMiB int64

	// ForeignMiB is reserved for external processes, spike buffer included.
	// IdleForeignMiB leaves out graphics-only processes: it decides whether the
	// card counts as idle.
	ForeignMiB     int64
	IdleForeignMiB int64

	UtilPct      float64 // -1: not known
	Paused       bool
	Health       Health
	HealthReason string
	Stale        bool        // the last reading failed or is too old: no job starts here
	NUMA         int         // -1: not known
	Links        map[int]int // count of NVLinks to other cards, by index
	Near         map[int]int // how close other cards are on the PCIe bus, by index: more is closer
	Part         bool        // a part of a partitioned card: CUDA gives a program one of them
	ParkedMiB    int64       // what parked jobs need here when they come back: they can go nowhere else
}

// Health is whether a card can be trusted.
type Health int

// The healths. Only HealthOK takes new jobs.
const (
	HealthOK Health = iota
	HealthSuspect
	HealthQuarantined
)

var healthNames = [...]string{"ok", "suspect", "quarantined"}

// String is the word users see.
func (h Health) String() string {
	if h < 0 || int(h) >= len(healthNames) {
		return fmt.Sprintf("health(%d)", int(h))
	}
	return healthNames[h]
}

// MarshalText writes the word users see.
func (h Health) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads that word.
func (h *Health) UnmarshalText(text []byte) error {
	for i, name := range healthNames {
		if name == string(text) {
			*h = Health(i)
			return nil
		}
	}
	return fmt.Errorf("unknown health %q", text)
}

// Host is what the machine has besides its cards. Zero is "not known", and not
// checked.
type Host struct {
	CPUs   int
	MemMiB int64
}

// Held is one berth job on its cards: ours, or another berth's.
type Held struct {
	Job       string
	Cards     []int
	BudgetMiB []int64 // parallel to Cards, escalated already; ignored where Alone
	Share     float64
	OverGPUs  float64 // what its memory counts as beyond that, in GPUs
	Alone     bool
	Exclusive bool
	CPUs      int
	MemMiB    int64
	Other     bool // another berth's

	// Its owner and place in the order; empty for another berth's.
	User      string
	Priority  int
	Rank, Seq int64
	Pool      string // the array of which it is one, where that has a limit

	Submitted time.Time
	Started   time.Time     // of this attempt
	Served    time.Duration // service before this attempt
	Waited    time.Duration // how long it had waited when this attempt began
	Run       Estimate      // how long it is expected to run in all, earlier service included
	Limit     time.Duration // time limit of this attempt; 0: none
	Preempt   Preempt

	// Leaving says that it is being preempted for LeavesFor, and expected to be
	// gone by LeavesBy.
	Leaving   bool
	LeavesFor string
	LeavesBy  time.Time
}

// budget is what the job holds on its i-th card. Another berth may report a
// negative budget, which must not make room.
func (h *Held) budget(i int) int64 {
	if h.Alone || i >= len(h.BudgetMiB) {
		return 0
	}
	return max(0, h.BudgetMiB[i])
}

// share is the job's share, or 0 for a nonsensical number.
func (h *Held) share() float64 {
	if h.Share > 0 {
		return h.Share
	}
	return 0
}
