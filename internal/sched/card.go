package sched

import (
	"fmt"
	"time"
)

// Card is one GPU as it was last measured.
type Card struct {
	Index       int    `json:"index"`
	UUID        string `json:"uuid,omitempty"`
	Name        string `json:"name,omitempty"`
	TotalMiB    int64  `json:"total_mib"`
	ReservedMiB int64  `json:"reserved_mib,omitempty"`
	UsedMiB     int64  `json:"used_mib"`

	// ForeignMiB is reserved for external processes, spike buffer included.
	// IdleForeignMiB leaves out graphics-only processes: it decides whether the
	// card counts as idle.
	ForeignMiB     int64 `json:"foreign_mib,omitempty"`
	IdleForeignMiB int64 `json:"idle_foreign_mib,omitempty"`

	UtilPct      float64     `json:"util_pct"` // -1: not known
	Paused       bool        `json:"paused,omitempty"`
	Health       Health      `json:"health"`
	HealthReason string      `json:"health_reason,omitempty"`
	Stale        bool        `json:"stale,omitempty"`      // the last reading failed or is too old: no job starts here
	NUMA         int         `json:"numa"`                 // -1: not known
	Links        map[int]int `json:"links,omitempty"`      // count of NVLinks to other cards, by index
	Near         map[int]int `json:"near,omitempty"`       // how close other cards are on the PCIe bus, by index: more is closer
	Part         bool        `json:"part,omitempty"`       // a part of a partitioned card: CUDA gives a program one of them
	ParkedMiB    int64       `json:"parked_mib,omitempty"` // what parked jobs need here when they come back: they can go nowhere else
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
	CPUs   int   `json:"cpus,omitempty"`
	MemMiB int64 `json:"mem_mib,omitempty"`
}

// Allocation is what one running job has: its cards, CPUs and host memory: ours, or another berth's.
type Allocation struct {
	Job       string  `json:"job"`
	Cards     []int   `json:"cards"`
	BudgetMiB []int64 `json:"budget_mib,omitempty"` // parallel to Cards, escalated already; ignored where Alone
	Share     float64 `json:"share,omitempty"`
	OverGPUs  float64 `json:"over_gpus,omitempty"` // what its memory counts as beyond that, in GPUs
	Alone     bool    `json:"alone,omitempty"`
	Exclusive bool    `json:"exclusive,omitempty"`
	CPUs      int     `json:"cpus,omitempty"`
	MemMiB    int64   `json:"mem_mib,omitempty"`
	Other     bool    `json:"other,omitempty"` // another berth's

	// Its owner and place in the order; empty for another berth's.
	User     string `json:"user,omitempty"`
	Priority int    `json:"priority,omitempty"`
	Rank     int64  `json:"rank,omitempty"`
	Seq      int64  `json:"seq,omitempty"`
	Array    string `json:"pool,omitempty"` // the array of which it is one, where that has a limit

	Submitted time.Time     `json:"submitted,omitzero"`
	Started   time.Time     `json:"started,omitzero"`    // of this attempt
	RanBefore time.Duration `json:"served_ns,omitempty"` // service before this attempt
	Waited    time.Duration `json:"waited_ns,omitempty"` // how long it had waited when this attempt began
	Run       Estimate      `json:"run,omitzero"`        // how long it is expected to run in all, earlier service included
	Limit     time.Duration `json:"limit_ns,omitempty"`  // time limit of this attempt; 0: none
	Preempt   Preempt       `json:"aside,omitzero"`

	// BeingPreempted says that it is being preempted for PreemptedFor. Its cards
	// are expected to be free by FreeBy.
	BeingPreempted bool      `json:"leaving,omitempty"`
	PreemptedFor   string    `json:"leaves_for,omitempty"`
	FreeBy         time.Time `json:"leaves_by,omitzero"`
}

// budget is what the job holds on its i-th card. Another berth may report a
// negative budget, which must not make room.
func (h *Allocation) budget(i int) int64 {
	if h.Alone || i >= len(h.BudgetMiB) {
		return 0
	}
	return max(0, h.BudgetMiB[i])
}

// share is the job's share, or 0 for a nonsensical number.
func (h *Allocation) share() float64 {
	if h.Share > 0 {
		return h.Share
	}
	return 0
}
