package reason

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"berth/internal/text"
)

// Forecast is when a queued job is expected to start, if no job submitted later
// goes first; for a running job, when it is expected to end. It is never a
// promise.
type Forecast struct {
	Now time.Time `json:"at" doc:"when the forecast was made"`

	// Low, Mid and High are the earliest, likely and latest moment. Mid and High
	// are zero where they cannot be estimated; all three are where None is set.
	Low  time.Time `json:"low" doc:"earliest"`
	Mid  time.Time `json:"mid,omitzero" doc:"likely; left out without an estimate"`
	High time.Time `json:"high,omitzero" doc:"latest; left out without an estimate"`

	Basis // the jobs it may have to wait for, by what is known of each

	// Beyond means that there are too many jobs ahead to look at all of them:
	// Low is when those that were looked at leave room.
	Beyond bool `json:"beyond,omitempty" doc:"too many jobs are ahead to look at all of them: only low is meaningful"`

	None   NoForecast `json:"-"` // Story has a field of its own for it
	Behind string     `json:"-"` // the job ahead that is likely to have to end first
}

// String says when the job is expected to start and how that is known, in the
// zone of Now: "expected to start between 14:05 and 15:30, from earlier
// runs of 3 running jobs".
func (f Forecast) String() string {
	if f.expected() {
		return "expected to start " + f.Start()
	}
	return f.Start()
}

// Start is the same without "expected to start".
func (f Forecast) Start() string {
	if f.None != "" || f.Now.IsZero() {
		return f.None.String()
	}
	words, basis := f.when(), f.Basis.String()
	switch {
	case basis == "" || f.now():
		return words
	case f.Limit+f.History+f.Guessed > 0:
		return words + ", " + basis
	}
	return words + "; " + basis
}

// End is when a running job is expected to end, if there is an estimate.
func (f *Forecast) End() string {
	if f == nil || f.High.IsZero() {
		return ""
	}
	return "expected to end " + between(f.Low, f.High, f.Now) + f.own()
}

// own is how the end of the running job itself is known.
func (f *Forecast) own() string {
	switch {
	case f.Limit > 0:
		return ", from its time limit"
	case f.History > 0:
		return ", from earlier runs"
	case f.Guessed > 0:
		return ", a guess from other jobs of its user"
	}
	return ""
}

// now reports that the job starts with the next decision.
func (f *Forecast) now() bool { return !f.High.IsZero() && !f.High.After(f.Now) }

// expected reports that a likely start can be named.
func (f *Forecast) expected() bool { return f.None == "" && !f.Beyond && !f.Mid.IsZero() || f.now() }

func (f *Forecast) when() string {
	soon := f.Mid
	if f.High.After(soon) {
		soon = f.High
	}
	exact := !soon.IsZero() && soon.Sub(f.Now) < 10*time.Minute
	low, mid, high := f.moment(f.Low, exact), f.moment(f.Mid, exact), f.moment(f.High, exact)
	switch {
	case f.now():
		return "now"
	case f.Beyond:
		return fmt.Sprintf("not expected before %s: more than %s are ahead of it", low, text.Count(f.InFront, "job"))
	case f.Mid.IsZero() && low == "now":
		return "its start cannot be estimated"
	case f.Mid.IsZero():
		return "not expected before " + low
	case f.High.IsZero() && (low == mid || low == "now"):
		return "about " + mid
	case f.High.IsZero():
		return "about " + mid + ", not before " + low
	case low == high:
		return "about " + low
	}
	return "between " + low + " and " + high
}

// moment writes a time, with its date unless that is today.
func (f *Forecast) moment(t time.Time, exact bool) string {
	switch {
	case t.IsZero():
		return ""
	case !t.After(f.Now):
		return "now"
	case exact:
		return onDay(t, f.Now, time.TimeOnly)
	}
	return onDay(t, f.Now, "15:04")
}

// NoForecast is why no start is expected.
type NoForecast string

// The reasons.
const (
	NoneNotQueued  NoForecast = "not_queued"
	NoneGate       NoForecast = "gate"       // it is held, or waits for a time or for other jobs
	NoneInfeasible NoForecast = "infeasible" // it can never run here
	NoneLimit      NoForecast = "user_limit" // its user is at a limit
	NoneArray      NoForecast = "array"      // its array is at its limit of running tasks
	NoneGroup      NoForecast = "group"      // its group is at its limit of running jobs
	NonePaused     NoForecast = "group_paused"
	NoneUnreadable NoForecast = "unreadable" // the GPUs cannot be read
	NoneClosed     NoForecast = "closed"     // too few of its cards accept jobs, or external processes use them
)

// String says what has to happen before a start can be expected. It follows the
// reason and does not repeat it.
func (n NoForecast) String() string {
	switch n {
	case NoneInfeasible:
		return "it can never start here"
	case NoneLimit:
		return "it starts once its user is below the limit"
	case NoneArray:
		return "it starts once another task of its array has ended"
	case NoneGroup:
		return "it starts once another job of its group has ended"
	case NonePaused:
		return "it starts once the group is resumed"
	case NoneUnreadable:
		return "its start cannot be estimated until the GPUs can be read"
	case NoneClosed:
		return "its start cannot be estimated until enough of its GPUs are available"
	}
	return ""
}

// Basis counts running jobs and jobs ahead by how their duration is estimated.
type Basis struct {
	Running int `json:"running" doc:"running jobs that were looked at"`
	InFront int `json:"in_front" doc:"jobs that go first"`
	Limit   int `json:"by_limit" doc:"of both, those with only a time limit"`
	History int `json:"by_history" doc:"of both, those estimated from earlier runs with the same arguments"`
	Guessed int `json:"by_guess" doc:"of both, those guessed from other arguments, or from other jobs of their users"`
	Unknown int `json:"unknown" doc:"of both, those without an estimate, or that have outlasted it"`
}

// String says what a forecast is estimated from: "from the time limits of 2
// running jobs and earlier runs of 3; 1 running job has no time estimate".
func (b Basis) String() string {
	noun := "running job"
	if b.InFront > 0 {
		noun = "job" // some of them are still queued
	}
	var from []string
	add := func(what string, jobs int) {
		count := text.Count(jobs, noun)
		if len(from) > 0 {
			count = strconv.Itoa(jobs) // the noun is there already
		}
		if jobs > 0 {
			from = append(from, what+" "+count)
		}
	}
	add("the time "+text.Plural(b.Limit, "limit")+" of", b.Limit)
	add("earlier runs of", b.History)
	add("a guess at", b.Guessed)
	var parts []string
	if len(from) > 0 {
		parts = append(parts, "from "+listed(from))
	}
	if b.Guessed > 0 {
		parts[0] += " (by other jobs of the same user)"
	}
	if b.Unknown > 0 {
		parts = append(parts, text.Count(b.Unknown, noun)+" "+text.Verb(b.Unknown, "have")+" no time estimate")
	}
	return strings.Join(parts, "; ")
}

// listed joins parts of a sentence: "a, b and c".
func listed(parts []string) string {
	last := len(parts) - 1
	if last < 1 {
		return strings.Join(parts, "")
	}
	return strings.Join(parts[:last], ", ") + " and " + parts[last]
}
