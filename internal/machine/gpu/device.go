package gpu

import (
	"context"
	"time"
)

// Process is one process that the driver lists on a card.
type Process struct {
	PID      int     `json:"pid"`
	UsedMiB  int64   `json:"used_mib"`           // -1: unknown
	PeakMiB  int64   `json:"peak_mib,omitempty"` // the most since the last sample; 0 if the source does not watch in between
	UtilPct  float64 `json:"util,omitempty"`     // its share of the card's time; -1: unknown
	Graphics bool    `json:"graphics,omitempty"` // draws but does not compute: a desktop, not a job
}

// Device is one card, or one MIG part of a card, at the time of a sample.
type Device struct {
	// Index is berth's number for the card: the driver's when it was first
	// seen. DriverIndex is the driver's number now. They differ once an earlier
	// card is lost and the driver renumbers the rest.
	Index       int    `json:"index"`
	DriverIndex int    `json:"driver_index"`
	UUID        string `json:"uuid"`
	Name        string `json:"name"`
	BusID       string `json:"bus_id,omitempty"`
	Minor       int    `json:"minor"` // of /dev/nvidiaN; -1: unknown
	Part        *Part  `json:"part,omitempty"`

	TotalMiB    int64   `json:"total_mib"`
	ReservedMiB int64   `json:"reserved_mib"` // held by the driver itself
	UsedMiB     int64   `json:"used_mib"`     // without the driver's reserve
	UtilPct     float64 `json:"util"`         // -1: unknown

	// For display only; placement ignores these. -1: unknown.
	TempC       float64 `json:"temp_c"`
	PowerW      float64 `json:"power_w"`
	PowerLimitW float64 `json:"power_limit_w"`
	SMClockMHz  int     `json:"sm_clock_mhz"`
	MemClockMHz int     `json:"mem_clock_mhz"`

	Condition Condition `json:"condition"`

	Processes      []Process `json:"processes,omitempty"`
	ProcessesKnown bool      `json:"processes_known"`

	NUMA  int         `json:"numa"`            // -1: unknown
	CPUs  string      `json:"cpus,omitempty"`  // the CPUs near it, such as "0-7,16-23"
	Links map[int]int `json:"links,omitempty"` // NVLinks to other cards, by index
	Near  map[int]int `json:"near,omitempty"`  // how close other cards are on the PCIe bus, by index: nearSystem to nearSwitch
}

// How close two cards are on the PCIe bus. Unknown pairs have no entry.
const (
	nearSystem = 1 // across the link between processors
	nearNode   = 2 // on one NUMA node
	nearHost   = 3 // below one host bridge
	nearSwitch = 4 // below one PCIe switch
)

// Part says which MIG part of which card a device is.
type Part struct {
	Of      int    `json:"of"`      // Index of the card
	Profile string `json:"profile"` // "1g.10gb"
	// Caps are the minors of /dev/nvidia-caps that open this part; nil: unknown.
	Caps []int `json:"caps,omitempty"`
}

// PartIndex is the Index of the n-th part of a card: 100 is the first part of
// card 0, 307 the eighth part of card 2. Whole cards have numbers below 100.
func PartIndex(card, n int) int { return 100*(card+1) + n }

// Condition is what the driver reports about the health of a card.
type Condition struct {
	UncorrectedECC int64  `json:"uncorrected_ecc"` // since the driver was loaded; -1: unknown
	CorrectedECC   int64  `json:"corrected_ecc"`   // likewise
	RemappedRows   int64  `json:"remapped_rows"`   // -1: unknown
	RowsPending    bool   `json:"rows_pending,omitempty"`
	RowsFailed     bool   `json:"rows_failed,omitempty"`
	Recovery       string `json:"recovery,omitempty"` // one of the Recovery words; "": unknown
}

// The actions that the driver may ask for to repair a card.
const (
	RecoveryNone          = "none"
	RecoveryReset         = "reset"
	RecoveryReboot        = "reboot"
	RecoveryDrain         = "drain"
	RecoveryDrainAndReset = "drain and reset"
	RecoveryFabric        = "recover the fabric"
	RecoveryBusReset      = "bus reset"
)

// Unknown is a device with a name and no readings yet.
func Unknown(index int, uuid, name string) Device {
	return Device{
		Index: index, DriverIndex: index, UUID: uuid, Name: name, Minor: -1, UtilPct: -1,
		TempC: -1, PowerW: -1, PowerLimitW: -1, SMClockMHz: -1, MemClockMHz: -1, NUMA: -1,
		Condition: Condition{UncorrectedECC: -1, CorrectedECC: -1, RemappedRows: -1},
	}
}

// Fault is a card that could not be read.
type Fault struct {
	Index int    `json:"index"`
	UUID  string `json:"uuid,omitempty"` // "" if unknown
	Kind  string `json:"kind"`           // one of the Fault words
	Text  string `json:"text"`           // the driver's message
}

// The kinds of fault.
const (
	FaultLost       = "lost"       // it has fallen off the bus, according to the driver
	FaultHangs      = "hangs"      // a driver call about it did not return
	FaultUnreadable = "unreadable" // it answers, but without the values that placement needs
)

// Xid is an error message from the driver about a card.
type Xid struct {
	At   time.Time `json:"at"`
	UUID string    `json:"uuid,omitempty"` // if unknown, BusID is set
	// BusID is in the form of the kernel log: "0000:3b:00".
	BusID string `json:"bus_id,omitempty"`
	Code  int    `json:"code"` // 0: the kernel log reports the card as gone, without a code
	Text  string `json:"text,omitempty"`
}

// Sample is one reading of all cards. A card that could not be read is not in
// Devices but in Faults, so that nothing is placed on it.
type Sample struct {
	At       time.Time `json:"at"`
	Devices  []Device  `json:"devices"`
	Faults   []Fault   `json:"faults,omitempty"`
	Xids     []Xid     `json:"xids,omitempty"`     // since the previous sample; set even if Sample returns an error
	Problems []string  `json:"problems,omitempty"` // other problems, as sentences for the user
}

// Source takes samples. A failed Sample says nothing about the cards, except
// for its Xids; it must never be taken for an empty machine.
type Source interface {
	Name() string
	Sample(ctx context.Context) (Sample, error)
	// Cheap reports whether a sample is cheap enough to be taken at every
	// decision instead of at every poll.
	Cheap() bool
	Close() error
}

// Releaser is a Source that can close the driver, so that cards can be reset
// or partitioned. Samples fail in the meantime.
type Releaser interface {
	// Release closes the driver for d; 0 ends the release.
	Release(d time.Duration)
	// Released is when the release ends; zero if the driver is not released.
	Released() time.Time
}

// Limiter is a Source whose driver can limit the GPU memory of a cgroup (R615
// and newer).
type Limiter interface {
	CanLimit() bool
	Limit(ctx context.Context, l MemoryLimit) error
}

// MemoryLimit is how much of a card's memory the processes in a cgroup may
// use.
type MemoryLimit struct {
	Cgroup  string `json:"cgroup"` // its directory
	UUID    string `json:"uuid"`
	SoftMiB int64  `json:"soft_mib"` // guaranteed; 0: no guarantee
	HardMiB int64  `json:"hard_mib"` // 0: no limit
}

// describer is a Source that can describe its driver.
type describer interface {
	Facts() Facts
}

// Facts describe the driver and how it is accessed.
type Facts struct {
	Source       string   `json:"source"`           // for display: "NVML through /usr/local/bin/berth-gpu"
	Driver       string   `json:"driver,omitempty"` // "580.159.04"
	NVML         string   `json:"nvml,omitempty"`
	CUDA         string   `json:"cuda,omitempty"` // "13.0"
	Events       bool     `json:"events"`         // NVML reports Xids
	KernelLog    bool     `json:"kernel_log"`     // the kernel log is read for Xids, too
	MemoryLimits bool     `json:"memory_limits"`  // Limiter works
	Persistence  *bool    `json:"persistence,omitempty"`
	Notes        []string `json:"notes,omitempty"` // what does not work, and why
}
