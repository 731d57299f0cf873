package sim

import (
	"math"
	"time"

	"berth/internal/sched"
)

// pastUsage is each user's usage in ended jobs, in GPU-seconds that count half
// after each half-life, as in the engine.
type pastUsage struct {
	halfLife time.Duration
	at       Millis
	seconds  map[string]float64
}

// longest is the longest time that a Duration holds, nearly 300 years.
const longest = Millis(math.MaxInt64 / int64(time.Millisecond))

// decayed is the usage as of a moment.
func (u *pastUsage) decayed(now Millis) map[string]float64 {
	return sched.Decayed(u.seconds, (now - u.at).duration(), u.halfLife)
}

// charge adds the usage of a job.
func (u *pastUsage) charge(user string, now Millis, gpuSeconds float64) {
	u.seconds, u.at = u.decayed(now), now
	u.seconds[user] += gpuSeconds
}

// gpuSeconds is the usage of a running job until now.
func (a *active) gpuSeconds(now Millis, scale sched.Scale) float64 {
	return a.held.FairWeight(scale) * (now - a.start).Seconds()
}

// usage is each user's usage, running jobs included. The quantum for each held
// card continues the turns of users from one plan to the next.
func (rs running) usage(ended *pastUsage, now Millis, scale sched.Scale) map[string]float64 {
	usage := ended.decayed(now)
	for _, a := range rs {
		usage[a.job.User] += a.gpuSeconds(now, scale) + sched.FairQuantum*a.held.FairWeight(scale)
	}
	return usage
}
