package gpu

import (
	"context"
	"time"
)

// Process is one process that the driver lists on a card.
type Process struct {
	PID      int     `json:"pid"`
	UsedMiB  int64   `json:"used_mib"`           // -1: not known
	PeakMiB  int64   `json:"peak_mib,omitempty"` // the most since the last sample, where the source watches in between; 0: it does not
	UtilPct  float64 `json:"util,omitempty"`     // its part of the card's time; -1: not known
	Graphics bool    `json:"graphics,omitempty"` // draws and does not compute: a desktop's, not a job's
}

// Device is one card, or one part of a partitioned card, at the moment of a
// sample.
type Device struct {
	// Index is what berth calls the card: the driver's number when it was
	// first seen. DriverIndex is what the driver calls it now; the two differ
	// where a card before it was lost and the driver counted again.
	Index       int    `json:"index"`
	DriverIndex int    `json:"driver_index"`
	UUID        string `json:"uuid"`
	Name        string `json:"name"`
	BusID       string `json:"bus_id,omitempty"`
	Minor       int    `json:"minor"` // of /dev/nvidiaN; -1: not known
	Part        *Part  `json:"part,omitempty"`

	TotalMiB    int64   `json:"total_mib"`
	ReservedMiB int64   `json:"reserved_mib"` // what the driver keeps for itself
	UsedMiB     int64   `json:"used_mib"`     // without the driver's reserve
	UtilPct     float64 `json:"util"`         // -1: not known

	// What nobody places by, but people look at; -1: not known.
	TempC       float64 `json:"temp_c"`
	PowerW      float64 `json:"power_w"`
	PowerLimitW float64 `json:"power_limit_w"`
	SMClockMHz  int     `json:"sm_clock_mhz"`
	MemClockMHz int     `json:"mem_clock_mhz"`

	Condition Condition `json:"condition"`

	Processes      []Process `json:"processes,omitempty"`
	ProcessesKnown bool      `json:"processes_known"`

	NUMA  int         `json:"numa"`            // -1: not known
	CPUs  string      `json:"cpus,omitempty"`  // the CPUs next to it, "0-7,16-23"
	Links map[int]int `json:"links,omitempty"` // NVLinks to other cards, by index
	Near  map[int]int `json:"near,omitempty"`  // how close other cards are on the PCIe bus, by index: a Nearness
}

// How close two cards are on the PCIe bus. Of what is not known is nothing.
const (
	nearSystem = 1 // only through the link between processors
	nearNode   = 2 // on one NUMA node
	nearHost   = 3 // below one host bridge
	nearSwitch = 4 // below one PCIe switch
)

// Part says which part of which card a device is (MIG).
type Part struct {
	Of      int    `json:"of"`      // Index of the card
	Profile string `json:"profile"` // "1g.10gb"
	// Caps are the minors of /dev/nvidia-caps that open this part; nil: not known.
	Caps []int `json:"caps,omitempty"`
}

// PartIndex is the Index of the n-th part of a card: 100 is the first part of
// card 0, 307 the eighth of card 2. Whole cards have numbers below 100.
func PartIndex(card, n int) int { return 100*(card+1) + n }

// Condition is what the driver itself says about the health of a card.
type Condition struct {
	UncorrectedECC int64  `json:"uncorrected_ecc"` // since the driver was loaded; -1: not known
	CorrectedECC   int64  `json:"corrected_ecc"`   // the same
	RemappedRows   int64  `json:"remapped_rows"`   // -1: not known
	RowsPending    bool   `json:"rows_pending,omitempty"`
	RowsFailed     bool   `json:"rows_failed,omitempty"`
	Recovery       string `json:"recovery,omitempty"` // one of the Recovery words; empty: not known
}

// What the driver asks for to get a card well again.
const (
	RecoveryNone          = "none"
	RecoveryReset         = "reset"
	RecoveryReboot        = "reboot"
	RecoveryDrain         = "drain"
	RecoveryDrainAndReset = "drain and reset"
	RecoveryFabric        = "recover the fabric"
	RecoveryBusReset      = "bus reset"
)

// Unknown is a device of which nothing is known yet but what it is called.
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
	UUID  string `json:"uuid,omitempty"` // where it is known
	Kind  string `json:"kind"`           // one of the Fault words
	Text  string `json:"text"`           // what was said
}

// The kinds of fault.
const (
	FaultLost       = "lost"       // the driver says that it has fallen off the bus
	FaultHangs      = "hangs"      // a call about it did not come back
	FaultUnreadable = "unreadable" // it answers, but not with what placement needs
)

// Xid is a message of the driver about an error on a card.
type Xid struct {
	At   time.Time `json:"at"`
	UUID string    `json:"uuid,omitempty"` // where it is known; else BusID is
	// BusID is as the kernel's log writes it: "0000:3b:00".
	BusID string `json:"bus_id,omitempty"`
	Code  int    `json:"code"` // 0: the log says that the card is gone, without a number
	Text  string `json:"text,omitempty"`
}

// Sample is what a source read in one go. A card that could not be read is
// absent from Devices and named in Faults, so that nothing is placed on it.
type Sample struct {
	At       time.Time `json:"at"`
	Devices  []Device  `json:"devices"`
	Faults   []Fault   `json:"faults,omitempty"`
	Xids     []Xid     `json:"xids,omitempty"`     // since the sample before; also beside an error
	Problems []string  `json:"problems,omitempty"` // sentences for people, about whatever else went wrong
}

// Source gives samples. A failed Sample says nothing about the cards, but may
// still carry Xids; it must never be taken for an empty machine.
type Source interface {
	Name() string
	Sample(ctx context.Context) (Sample, error)
	// Cheap reports whether a sample costs so little that it may be taken at
	// every decision rather than at every poll.
	Cheap() bool
	Close() error
}

// Releaser is a Source that holds the driver open, and can let go of it so
// that cards can be reset or partitioned. Until then samples fail.
type Releaser interface {
	// Release lets go for that long; 0 takes hold again at the next sample.
	Release(d time.Duration)
	// Released is until when; the zero time: it is not.
	Released() time.Time
}

// Limiter is a Source whose driver can hold a cgroup to an amount of device
// memory (R615 and later).
type Limiter interface {
	CanLimit() bool
	Limit(ctx context.Context, l MemoryLimit) error
}

// MemoryLimit is how much of a card the processes in a cgroup may have.
type MemoryLimit struct {
	Cgroup  string `json:"cgroup"` // its directory
	UUID    string `json:"uuid"`
	SoftMiB int64  `json:"soft_mib"` // guaranteed; 0: nothing is
	HardMiB int64  `json:"hard_mib"` // 0: no limit
}

// describer is a Source that knows about its driver.
type describer interface {
	Facts() Facts
}

// Facts are what is known about the driver and the way to it.
type Facts struct {
	Source       string   `json:"source"`           // for people: "NVML through /usr/local/bin/berth-gpu"
	Driver       string   `json:"driver,omitempty"` // "580.159.04"
	NVML         string   `json:"nvml,omitempty"`
	CUDA         string   `json:"cuda,omitempty"` // "13.0"
	Events       bool     `json:"events"`         // Xids come from NVML
	KernelLog    bool     `json:"kernel_log"`     // and from the kernel's log
	MemoryLimits bool     `json:"memory_limits"`  // Limiter works
	Persistence  *bool    `json:"persistence,omitempty"`
	Notes        []string `json:"notes,omitempty"` // what does not work, and why
}
