package machine

import (
	"berth/internal/engine"
	"berth/internal/site"
)

// How preemptible jobs are preempted.
const (
	PreemptNever   = "never"
	PreemptRequeue = "requeue" // stopped, and queued again
	PreemptPark    = "park"    // parked if that is possible, else stopped and queued again
)

// Preempts lists the ways to preempt a preemptible job, the usual one first.
func Preempts() []string { return []string{PreemptRequeue, PreemptPark, PreemptNever} }

// Which jobs are parked for others.
const (
	ParkNone        = "off"
	ParkPreemptible = "preemptible"
	ParkAll         = "all"
)

// Parkings lists which jobs can be parked for others, the usual choice first.
func Parkings() []string { return []string{ParkPreemptible, ParkAll, ParkNone} }

// ParkingFor is how jobs are parked under these two settings.
func ParkingFor(preempt, parking string) engine.Parking {
	p := engine.DefaultParking
	p.All, p.First = parking == ParkAll, preempt == PreemptPark
	if parking == ParkNone {
		p.Cannot = "parking is switched off (scheduling.parking)"
	}
	return p
}

// Parking adds what this machine can do to how its owner wants jobs to be parked.
// Simulated cards have no memory to move.
func (m *Machine) Parking(p engine.Parking) engine.Parking {
	if p.Cannot == "" {
		p.Cannot = m.CannotPark
	}
	if m.SimDir == "" {
		p.FreeMiB = func() int64 { return site.FreeMiB(m.Runner.Cgroup()) }
	}
	return p
}
