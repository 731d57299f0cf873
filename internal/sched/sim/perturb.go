package sim

import (
	"math"
	"slices"
)

// durationSpread is how much durations vary between copies of a workload: two
// thirds stay within about a tenth, as do repeated runs of one program.
const durationSpread = 0.1

// perturb makes a copy of the workload with small random changes. Each arrival
// moves by up to the mean time between two arrivals, and each duration changes
// by a factor near 1. uniform draws numbers from 0 up to 1; equal draws give
// equal copies, whatever the order of the jobs.
func perturb(jobs []Job, uniform func() float64) []Job {
	perturbed := slices.Clone(jobs)
	order := bySubmission(jobs)
	if len(order) == 0 {
		return perturbed
	}
	first, last := jobs[order[0]].Submit, jobs[order[len(order)-1]].Submit
	gap := (last - first).Seconds() / float64(len(jobs))
	for _, i := range order {
		j := &perturbed[i]
		moved := j.Submit + MillisOf((2*uniform()-1)*gap)
		j.Submit = min(max(moved, first), MaxSubmit)
		// The limit changes with the duration, so that the same jobs time out.
		factor := math.Exp(durationSpread * normal(uniform))
		j.Duration, j.Limit = stretched(j.Duration, factor), stretched(j.Limit, factor)
	}
	return perturbed
}

// stretched never turns a duration above 0 into 0.
func stretched(length Millis, factor float64) Millis {
	if length == 0 {
		return 0
	}
	return min(max(1, MillisOf(length.Seconds()*factor)), MaxDuration)
}

// normal draws from the normal distribution (Box–Muller).
func normal(uniform func() float64) float64 {
	u, v := 1-uniform(), uniform()
	return math.Sqrt(-2*math.Log(u)) * math.Cos(2*math.Pi*v)
}

// uniform draws numbers from 0 up to 1 (SplitMix64): the same for a seed on
// every machine and in every version.
func uniform(seed uint64) func() float64 {
	state := seed
	return func() float64 {
		state += 0x9e3779b97f4a7c15
		z := state
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		z ^= z >> 31
		return float64(z>>11) / (1 << 53)
	}
}
