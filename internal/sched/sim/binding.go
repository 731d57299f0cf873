package sim

import (
	"slices"

	"berth/internal/sched"
)

// binding counts for how long each limit of a real machine kept jobs waiting.
type binding struct {
	HostFullSeconds float64 // no running job could be parked, because the host's memory was full
	OwnCardsSeconds float64 // a parked job waited for its cards while as many others were free
	FixedGPUSeconds float64 // of jobs that could not give way
	HostPeakMiB     int64   // what parked jobs took of the host's memory at most
}

// observe counts the time up to a moment.
func (b *binding) observe(seconds float64, now Millis, rs running, host *hostMemory) {
	parkable, fits := false, false
	for _, a := range rs {
		switch p := &a.held.Preempt; {
		case a.held.BeingPreempted || a.works > now: // it is on its way
		case p.Mode == "":
			b.FixedGPUSeconds += seconds * a.gpus
		case p.Mode == sched.Park:
			parkable = true
			fits = fits || host.fits(p.MemMiB)
		}
	}
	if parkable && !fits {
		b.HostFullSeconds += seconds
	}
}

// keptFromOwnCards reports whether some parked job would have enough cards if it
// could come back to others.
func (h *hostMemory) keptFromOwnCards(o *occupancy, m Machine) bool {
	if o.freeParts() == 0 {
		return false
	}
	for c := range h.parked {
		part, free := m.part(c.job), 0
		for card := range o.taken {
			if o.free(card) >= part {
				free++
			}
		}
		busy := func(card int) bool { return o.free(card) < part }
		if free >= c.job.GPUs && slices.ContainsFunc(c.parkedOn, busy) {
			return true
		}
	}
	return false
}
