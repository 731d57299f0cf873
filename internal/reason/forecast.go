package reason

import (
	"fmt"
	"strings"
	"time"

	"berth/internal/text"
)

// Forecast is when a queued job is expected to start, if nothing is submitted
// that goes before it; of a running job, when it is expected to end. It is never
// a promise.
type Forecast struct {
	Now time.Time `json:"at" doc:"when this was said"`

	// Low, Mid and High are when it is at the earliest, as a rule and at the
	// latest. Mid and High are zero where nothing says; all are where None is set.
	Low  time.Time `json:"low"`
	Mid  time.Time `json:"mid,omitzero" doc:"as a rule; left out where nothing says"`
	High time.Time `json:"high,omitzero" doc:"at the latest; left out where nothing says"`

	Basis // what is known of the runs that it may have to wait for

	// Beyond says that so many jobs are in front that not all were looked at:
	// Low is when those that were leave room.
	Beyond bool `json:"beyond,omitempty" doc:"more jobs are in front than were looked at: only low says something"`

	None   NoForecast `json:"-"` // a Story says it in its own place
	Behind string     `json:"-"` // the job in front whose run has to be over first, as a rule
}

// String says when the job is expected to start and on what that rests, in the
// zone of Now: "expected to start between 14:05 and 15:30, from the history of
// 3 runs".
func (f Forecast) String() string {
	if f.expected() {
		return "expected to start " + f.Start()
	}
	return f.Start()
}

// Start is the same without saying that it is expected.
func (f Forecast) Start() string {
	if f.None != "" || f.Now.IsZero() {
		return f.None.String()
	}
	words, rests := f.when(), f.Basis.String()
	switch {
	case rests == "" || f.now():
		return words
	case f.known():
		return words + ", " + rests
	}
	return words + "; " + rests
}

// End is when a running job is expected to be over, where something says so.
func (f *Forecast) End() string {
	if f == nil || f.High.IsZero() {
		return ""
	}
	return "expected to end " + between(f.Low, f.High, f.Now) + ", " + f.Basis.String()
}

// now reports that nothing but the next decision is waited for.
func (f *Forecast) now() bool { return !f.High.IsZero() && !f.High.After(f.Now) }

// expected reports that a moment can be named at all.
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
		return fmt.Sprintf("not expected before %s: more than %s are in front", low, text.Count(f.InFront, "job"))
	case f.Mid.IsZero() && low == "now":
		return "nothing says when it starts"
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

// moment writes a time as it is said, with its day where that is another.
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

// Why there is none.
const (
	NoneNotQueued  NoForecast = "not_queued"
	NoneGate       NoForecast = "gate"       // it is held, or waits for a time or for other jobs
	NoneInfeasible NoForecast = "infeasible" // it can never run here
	NoneLimit      NoForecast = "user_limit" // its user has as much as a user may
	NoneArray      NoForecast = "array"      // as many tasks of its array run as may
	NoneUnreadable NoForecast = "unreadable" // the GPUs cannot be read
	NoneClosed     NoForecast = "closed"     // too few of its cards take jobs, or others' processes are on them
)

// String is why there is no forecast, without repeating the reason.
func (n NoForecast) String() string {
	switch n {
	case NoneInfeasible:
		return "it can never start here"
	case NoneLimit:
		return "it starts once its user runs less"
	case NoneArray:
		return "it starts once others of its array have ended"
	case NoneUnreadable:
		return "no start is expected until the GPUs can be read"
	case NoneClosed:
		return "no start is expected while so few of its GPUs take jobs"
	}
	return ""
}

// Basis counts runs, those under way and those that go first, by what is known
// of how long they last.
type Basis struct {
	Running int `json:"running" doc:"runs under way that were looked at"`
	InFront int `json:"in_front" doc:"jobs that go first"`
	Limit   int `json:"by_limit" doc:"of both, those known by their time limit alone"`
	History int `json:"by_history" doc:"those known from what ran before"`
	Unknown int `json:"unknown" doc:"those that nothing is known of, or that outlast what was"`
}

func (b *Basis) known() bool { return b.Limit+b.History > 0 }

// String is what is known of the runs a forecast rests on: "from the time limits
// of 2 runs and the history of 3 runs; of 1 run nothing is known".
func (b Basis) String() string {
	var from []string
	if b.Limit > 0 {
		from = append(from, "the time "+text.Plural(b.Limit, "limit")+" of "+text.Count(b.Limit, "run"))
	}
	if b.History > 0 {
		from = append(from, "the history of "+text.Count(b.History, "run"))
	}
	var parts []string
	if len(from) > 0 {
		parts = append(parts, "from "+strings.Join(from, " and "))
	}
	if b.Unknown > 0 {
		parts = append(parts, "of "+text.Count(b.Unknown, "run")+" nothing is known")
	}
	return strings.Join(parts, "; ")
}
