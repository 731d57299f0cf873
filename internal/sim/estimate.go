package sim

import (
	"fmt"
	"time"

	"berth/internal/predict"
	"berth/internal/sched"
)

// Estimates say what the lengths of jobs are guessed from, by names that users
// type. A duration is one as well: every job is then expected to take that.
type Estimates string

// The estimates. The empty ones are History.
const (
	History Estimates = "history" // what ran before, as on a live machine
	Perfect Estimates = "perfect" // what will happen
	Limits  Estimates = "limits"  // time limits and nothing else
	None    Estimates = "none"    // nothing is known, not even time limits
)

// Fixed expects every job to take this long.
func Fixed(d time.Duration) Estimates { return Estimates(d.String()) }

// ParseEstimates reads a name of estimates, or a duration as Go writes it.
func ParseEstimates(text string) (Estimates, error) {
	switch e := Estimates(text); e {
	case History, Perfect, Limits, None:
		return e, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return Fixed(d), nil
	}
	return "", fmt.Errorf("unknown estimates %q: known are %s, %s, %s, %s and a duration such as 24h", text, History, Perfect, Limits, None)
}

// guesser guesses how long jobs take.
type guesser struct {
	from  Estimates
	fixed time.Duration
	book  *predict.Book
	kinds map[string]string // of commands
}

func newGuesser(from Estimates) guesser {
	g := guesser{from: from, book: predict.NewBook(), kinds: map[string]string{}}
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

// span is how long the job is expected to run in all. Nobody plans with jobs that
// hold no card.
func (g *guesser) span(j *Job) sched.Estimate {
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
	guess := g.book.Duration(predict.Ask{User: j.User, Command: j.Command, Key: g.kind(j), GPUs: j.GPUs, Limit: j.Limit.duration()})
	return sched.Estimate{Low: guess.Low, Mid: guess.Mid, High: guess.High}
}

// limit is what the job's time limit leaves of it after that much of its work,
// as far as limits are known; 0: it has none.
func (g *guesser) limit(j *Job, done Millis) time.Duration {
	if g.from == None || j.Limit == 0 {
		return 0
	}
	return max(1, j.Limit-done).duration()
}

// learn takes in a job that is over. Under Limits nothing is learnt, so that
// limits are all there is to go by.
func (g *guesser) learn(j *Job) {
	if g.from == History && j.GPUs > 0 {
		g.book.Add(predict.Past{
			User: j.User, Command: j.Command, Key: g.kind(j), GPUs: j.GPUs, Ran: j.runs().duration(),
			PeakMiB: j.UsedMiB, OK: !j.timesOut(),
		})
	}
}
