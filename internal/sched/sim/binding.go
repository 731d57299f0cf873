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

// observeBinding counts the time up to a moment.
func (r *replay) observeBinding(seconds float64) {
	if !r.turns || r.queue.Len() == 0 || seconds == 0 {
		return
	}
	b := &r.result.binding
	parkable, fits := false, false
	for _, a := range r.running {
		switch p := &a.held.Preempt; {
		case a.held.BeingPreempted || a.works > r.now: // it is on its way
		case p.Mode == "":
			b.FixedGPUSeconds += seconds * a.gpus
		case p.Mode == sched.Park:
			parkable = true
			fits = fits || r.host.fits(p.MemMiB)
		}
	}
	if parkable && !fits {
		b.HostFullSeconds += seconds
	}
	if r.keptFromOwnCards() {
		b.OwnCardsSeconds += seconds
	}
}

// keptFromOwnCards reports whether some parked job would have enough cards if it
// could come back to others.
func (r *replay) keptFromOwnCards() bool {
	if r.occupancy.freeParts() == 0 {
		return false
	}
	for place := range r.parked {
		j, c := r.jobAt(place)
		part, free := r.in.Machine.part(j), 0
		for card := range r.occupancy.taken {
			if r.occupancy.free(card) >= part {
				free++
			}
		}
		busy := func(card int) bool { return r.occupancy.free(card) < part }
		if free >= j.GPUs && slices.ContainsFunc(c.parkedOn, busy) {
			return true
		}
	}
	return false
}
