package gpu

import (
	"context"
	"time"
)

// Process is one process that the driver lists on a card.
type Process struct {
	PID      int
	UsedMiB  int64 // -1: not known
	Graphics bool  // draws and does not compute: a desktop's, not a job's
}

// Device is one card at the moment of a sample.
type Device struct {
	Index       int
	UUID        string
	Name        string
	TotalMiB    int64
	ReservedMiB int64   // what the driver keeps for itself
	UsedMiB     int64   // without the driver's reserve
	UtilPct     float64 // -1: not known

	Processes      []Process
	ProcessesKnown bool

	NUMA  int         // -1: not known
	Links map[int]int // NVLinks to other cards, by index
}

// Sample is what a source read in one go. A card that could not be read is
// absent from Devices and named in Problems, so that nothing is placed on it.
type Sample struct {
	At       time.Time
	Devices  []Device
	Problems []string
}

// Source gives samples. A failed Sample says nothing about the cards; it must
// never be taken for an empty machine.
type Source interface {
	Name() string
	Sample(ctx context.Context) (Sample, error)
	// Cheap reports whether a sample costs so little that it may be taken at
	// every decision rather than at every poll.
	Cheap() bool
	Close() error
}
