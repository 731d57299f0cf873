package queue

import (
	"cmp"

	"berth/internal/machine/site"
	"berth/internal/queue/engine/settings"
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
func ParkingFor(preempt, parking string) settings.Parking {
	p := settings.DefaultParking
	p.All, p.First = parking == ParkAll, preempt == PreemptPark
	if parking == ParkNone {
		p.Cannot = "parking is switched off (scheduling.parking)"
	}
	return p
}

// ParkPart is the part of the host's memory that parked jobs may take, if nobody
// says otherwise.
const ParkPart = 0.5

// Parking adds what this machine can do to how its owner wants jobs to be parked.
func (q *Queue) Parking(p settings.Parking) settings.Parking {
	p.Cannot = cmp.Or(p.Cannot, q.CannotPark)
	if p.MemoryMiB == 0 {
		p.MemoryMiB = int64(ParkPart * float64(q.ParkHostMiB()))
	}
	p.FreeMiB = func(int64) int64 { return site.FreeMiB(q.Runner.Cgroups.Parent) }
	if q.SimDir != "" {
		p.FreeMiB = func(parkedMiB int64) int64 { return q.ParkHostMiB() - parkedMiB }
	}
	return p
}

// ParkHostMiB is the host memory of which parked jobs may take a part. Simulated
// cards move none, so they come with a simulated host that has twice as much as
// they have: it is the same on every machine.
func (q *Queue) ParkHostMiB() int64 {
	if q.SimDir == "" {
		return q.Host().MemMiB
	}
	var mib int64
	for _, d := range q.Devices {
		mib += 2 * d.TotalMiB
	}
	return mib
}
