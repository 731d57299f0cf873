package sim

import (
	"math"
	"time"

	"berth/internal/sched"
)

// ledger is what users had of the cards in jobs that are over, in GPU-seconds
// that count half after each half-life: the engine's own accounts.
type ledger struct {
	halfLife time.Duration
	at       Millis
	seconds  map[string]float64
}

// longest is the longest age that a Duration holds, near three hundred years.
const longest = Millis(math.MaxInt64 / int64(time.Millisecond))

// decayed is what the ledger counts for at a moment.
func (l *ledger) decayed(now Millis) map[string]float64 {
	return sched.Decayed(l.seconds, (now - l.at).duration(), l.halfLife)
}

// charge books what a job had.
func (l *ledger) charge(user string, now Millis, gpuSeconds float64) {
	l.seconds, l.at = l.decayed(now), now
	l.seconds[user] += gpuSeconds
}

// gpuSeconds is what a running job had until now.
func (a *active) gpuSeconds(now Millis) float64 {
	return a.held.FairWeight() * (now - a.start).Seconds()
}

// usage is what each user had lately, running jobs included. The quantum of
// each card that is held carries the turns on from one plan to the next.
func (r *replay) usage() map[string]float64 {
	usage := r.shares.decayed(r.now)
	for _, a := range r.running {
		usage[a.job.User] += a.gpuSeconds(r.now) + sched.FairQuantum*a.held.FairWeight()
	}
	return usage
}
