package predict

import (
	"math"
	"time"
)

// Run times are told in whole seconds: starting and noticing an end cost about
// one. Ten years are for ever.
const (
	shortestRun = time.Second
	longestRun  = 10 * 365 * 24 * time.Hour
)

func logOf(ran time.Duration) float64 {
	return math.Log(min(max(ran, shortestRun), longestRun).Seconds())
}

func fromLog(log float64) time.Duration {
	seconds := math.Exp(min(log, math.Log(longestRun.Seconds())))
	return time.Duration(math.Round(seconds)) * time.Second
}

// belief is how runs of one kind are thought to scatter before any was seen: the
// standard deviation of the logarithm of their time.
type belief float64

// The beliefs. A factor of two between runs of the same command: its numbers,
// which are taken out, are epochs and sizes too. A factor of four where it runs on
// another number of cards, since twice the cards take anything from half the time
// to the same. A factor of seven between a user's jobs of any kind: debugging for
// a minute, an evaluation of ten, a training of hours, each about that apart.
var (
	sameCommand = belief(math.Log(2))
	otherGPUs   = belief(math.Log(4))
	sameUser    = belief(math.Log(7))
)

// beliefRuns is how many runs the belief weighs as much as. Three outweigh one
// run, which says nothing of scatter, and give way to the eight or sixteen that
// are kept.
const beliefRuns = 3

// sample sums up runs, the most telling first.
type sample struct {
	count            int
	weight, weights2 float64 // the sum of weights, and of their squares
	mean, squares    float64 // of the logarithms; squares are of distances from the mean
	next, fade       float64 // the weight of the next run, and what it is multiplied by then
}

func newSample(fade float64) sample { return sample{next: 1, fade: fade} }

// add counts one more run. Weights never grow from one to the next: with that, a
// run longer than all others raises the mean wherever it is put in.
func (s *sample) add(log float64) {
	s.count++
	s.weight += s.next
	s.weights2 += s.next * s.next
	step := log - s.mean
	s.mean += step * s.next / s.weight
	s.squares += s.next * step * (log - s.mean)
	s.next *= s.fade
}

// guess is what the next run takes if run times are log-normal, with the
// scatter of those seen and that believed in, weighed against each other: the
// middle, and the interval in which nine of ten lie.
func (s *sample) guess(believed belief) (low, mid, high time.Duration) {
	equal := s.weight * s.weight / s.weights2 // as many runs of equal weight say as much
	freedom := beliefRuns + equal - 1
	variance := (beliefRuns*float64(believed*believed) + s.squares/s.weight*equal) / freedom
	half := twentieth(freedom) * math.Sqrt(variance*(1+1/equal))
	return fromLog(s.mean - half), fromLog(s.mean), fromLog(s.mean + half)
}

// twentieth is what a variable of Student's distribution passes in one of twenty
// cases (the expansion of Cornish and Fisher: within 2 % from three degrees of
// freedom on). One of twenty on each side leaves nine of ten.
func twentieth(freedom float64) float64 {
	const z = 1.6449 // the same of the normal distribution
	return z + (z*z*z+z)/(4*freedom) + (5*z*z*z*z*z+16*z*z*z+3*z)/(96*freedom*freedom)
}
