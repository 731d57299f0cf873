package predict

import (
	"math"
	"time"
)

// Durations are in whole seconds: starting a job and noticing its end takes about
// one. Ten years count as forever.
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

// prior is the assumed variation of runs of one kind before any was seen: the
// standard deviation of the logarithm of their durations.
type prior float64

// The priors. A factor of two between runs of the same command, because the
// numbers that normalising removes include epochs and sizes. A factor of four on
// another number of cards: twice the cards may halve the time or not change it.
// A factor of seven between a user's jobs of any kind: a minute of debugging, ten
// minutes of evaluation and an hour of training are about that far apart.
var (
	sameCommand = prior(math.Log(2))
	otherGPUs   = prior(math.Log(4))
	sameUser    = prior(math.Log(7))
)

// priorRuns is how many runs the prior counts as: more than one run, which says
// nothing about variation, and less than the eight or sixteen that are kept.
const priorRuns = 3

// sample is a weighted sample of runs, the most relevant added first.
type sample struct {
	count            int
	weight, weights2 float64 // the sum of weights, and of their squares
	mean, squares    float64 // of the logarithms; squares are of distances from the mean
	next, fade       float64 // the weight of the next run, and the factor from one to the next
	longer           float64 // only runs above this logarithm count
}

func newSample(fade float64, longer time.Duration) sample {
	s := sample{next: 1, fade: fade, longer: math.Inf(-1)}
	if longer > 0 {
		s.longer = logOf(longer)
	}
	return s
}

// add adds a run that is long enough. Weights never grow from one run to the next, so that a run
// longer than all others raises the mean wherever it is added.
func (s *sample) add(log float64) {
	if log <= s.longer {
		return
	}
	s.count++
	s.weight += s.next
	s.weights2 += s.next * s.next
	step := log - s.mean
	s.mean += step * s.next / s.weight
	s.squares += s.next * step * (log - s.mean)
	s.next *= s.fade
}

// estimate is the median and the 90 % interval of the next run's duration if
// durations are log-normal, with a variance between the observed one and the
// prior.
func (s *sample) estimate(assumed prior) (low, mid, high time.Duration) {
	equal := s.weight * s.weight / s.weights2 // effective number of runs
	freedom := priorRuns + equal - 1
	variance := (priorRuns*float64(assumed*assumed) + s.squares/s.weight*equal) / freedom
	half := twentieth(freedom) * math.Sqrt(variance*(1+1/equal))
	return fromLog(s.mean - half), fromLog(s.mean), fromLog(s.mean + half)
}

// twentieth is the 95 % quantile of Student's t-distribution (Cornish–Fisher
// expansion, within 2 % from three degrees of freedom on). 5 % on each side leave
// 90 %.
func twentieth(freedom float64) float64 {
	const z = 1.6449 // the same quantile of the normal distribution
	return z + (z*z*z+z)/(4*freedom) + (5*z*z*z*z*z+16*z*z*z+3*z)/(96*freedom*freedom)
}
