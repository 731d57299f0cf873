package sim

import (
	"fmt"
	"time"

	"berth/internal/sched"
	"berth/internal/sched/predict"
)

// Estimates name the source of the estimated durations, as users type it. A
// duration such as 24h is a source too: the estimate for every job.
type Estimates string

// The sources of estimates. The empty one is History.
const (
	History Estimates = "history" // earlier jobs, as on a live machine
	Perfect Estimates = "perfect" // the true durations
	Limits  Estimates = "limits"  // time limits only
	None    Estimates = "none"    // no estimates, and no time limits either
)

// Fixed estimates that every job takes this long.
func Fixed(d time.Duration) Estimates { return Estimates(d.String()) }

// ParseEstimates reads the name of a source, or a duration as Go writes it.
func ParseEstimates(text string) (Estimates, error) {
	switch e := Estimates(text); e {
	case History, Perfect, Limits, None:
		return e, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return Fixed(d), nil
	}
	return "", fmt.Errorf("expected %s, %s, %s, %s or a duration such as 24h, found %q", History, Perfect, Limits, None, text)
}

// estimator estimates how long jobs take.
type estimator struct {
	from  Estimates
	fixed time.Duration
	book  *predict.Book
	kinds map[string]string // of commands

	alike  map[string]map[*course]bool // waiting jobs by kind of command
	learnt map[string]int              // how many jobs of a kind ended while others of it waited
}

func newEstimator(from Estimates) estimator {
	g := estimator{from: from, book: predict.NewBook(), kinds: map[string]string{}, alike: map[string]map[*course]bool{}, learnt: map[string]int{}}
	switch from {
	case History, Perfect, Limits, None:
	case "":
		g.from = History
	default:
		d, err := time.ParseDuration(string(from))
		if err != nil {
			panic(fmt.Sprintf("bug: estimates %q were not parsed", from))
		}
		g.fixed = d
	}
	return g
}

// duration is the estimate of how long the job runs in total. Jobs without a
// card need none, because no plan depends on them.
func (g *estimator) duration(j *Job) sched.Estimate {
	switch {
	case j.GPUs == 0:
		return sched.Estimate{}
	case g.fixed > 0:
		return sched.Estimate{Low: g.fixed, Mid: g.fixed, High: g.fixed}
	case g.from == Perfect:
		exact := j.runs().duration()
		return sched.Estimate{Low: exact, Mid: exact, High: exact}
	case g.from == None:
		return sched.Estimate{}
	}
	estimate := g.book.Duration(predict.Ask{User: j.User, Command: j.Command, Key: g.kind(j), GPUs: j.GPUs, Limit: j.Limit.duration()})
	return sched.Estimate{Low: estimate.Low, Mid: estimate.Mid, High: estimate.High, Guess: estimate.Guess()}
}

// expected is how long a job is expected to run in all, with what it has to do again.
// A daemon leaves out what it took to move the job: earlier runs tell it of that.
func (g *estimator) expected(c *course) sched.Estimate {
	again := c.lost
	if g.from == Perfect {
		again += c.moved
	}
	return g.duration(c.job).Plus(again.duration())
}

// limit is what remains of the job's time limit after it did part of its work;
// 0: it has no limit, or limits are not known.
func (g *estimator) limit(j *Job, done Millis) time.Duration {
	if g.from == None || j.Limit == 0 {
		return 0
	}
	return max(1, j.Limit-done).duration()
}

// learn adds an ended job to the history, as a daemon remembers it: with what it took
// to park it or to start it again. Under Limits it adds nothing, so that
// estimates depend on limits alone.
//
// The estimates of running jobs of its kind change at once, and those of waiting
// jobs after the first, the second, the fourth such job and so on.
func (g *estimator) learn(j *Job, ran Millis) (kind string, waiting map[*course]bool) {
	if g.from == History && j.GPUs > 0 {
		g.book.Add(predict.Past{
			User: j.User, Command: j.Command, Key: g.kind(j), GPUs: j.GPUs, Ran: ran.duration(),
			PeakMiB: j.UsedMiB, OK: !j.timesOut(),
		})
	}
	kind = g.kind(j)
	if waiting = g.alike[kind]; len(waiting) == 0 {
		return kind, nil
	}
	g.learnt[kind]++
	if n := g.learnt[kind]; n&(n-1) != 0 {
		return kind, nil
	}
	return kind, waiting
}
