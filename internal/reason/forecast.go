package reason

import (
	"fmt"
	"strings"
	"time"
)

// Forecast is when a queued job is expected to start, if nothing is submitted
// that goes before it.
type Forecast struct {
	Now time.Time `json:"now"`

	// Low, Mid and High are when it starts at the earliest, as a rule and at the
	// latest. Mid and High are zero where nothing says; all are where None is set.
	Low  time.Time `json:"low,omitzero"`
	Mid  time.Time `json:"mid,omitzero"`
	High time.Time `json:"high,omitzero"`

	// Rests is what is known of the runs that it may have to wait for.
	Rests Basis `json:"rests"`
	// Beyond says that so many jobs are in front that not all were looked at:
	// Low is when those that were leave room.
	Beyond bool       `json:"beyond,omitempty"`
	None   NoForecast `json:"none,omitempty"`

	// Behind is the job in front whose run has to be over first, as a rule.
	Behind string `json:"-"`
}

// String says when the job is expected to start and on what that rests, in the
// zone of the forecast's own times: "expected to start between 14:05 and 15:30,
// from the history of 3 runs".
func (f Forecast) String() string {
	if f.None != "" {
		return f.None.String()
	}
	text := f.when()
	switch rests := f.Rests.String(); {
	case rests == "" || f.now():
	case strings.HasPrefix(rests, "from "):
		text += ", " + rests
	default:
		text += "; " + rests
	}
	return text
}

// now reports that nothing but the next decision is waited for.
func (f Forecast) now() bool { return !f.High.IsZero() && !f.High.After(f.Now) }

func (f Forecast) when() string {
	soon := f.Mid
	if f.High.After(soon) {
		soon = f.High
	}
	exact := !soon.IsZero() && soon.Sub(f.Now) < 10*time.Minute
	low, mid, high := f.moment(f.Low, exact), f.moment(f.Mid, exact), f.moment(f.High, exact)
	switch {
	case f.now():
		return "expected to start now"
	case f.Beyond:
		return fmt.Sprintf("not expected before %s: more than %s are in front", low, count(int64(f.Rests.InFront), "job"))
	case f.Mid.IsZero() && low == "now":
		return "nothing says when it starts"
	case f.Mid.IsZero():
		return fmt.Sprintf("not expected before %s", low)
	case f.High.IsZero() && (low == mid || low == "now"):
		return fmt.Sprintf("expected to start about %s", mid)
	case f.High.IsZero():
		return fmt.Sprintf("expected to start about %s, not before %s", mid, low)
	case low == high:
		return fmt.Sprintf("expected to start about %s", low)
	}
	return fmt.Sprintf("expected to start between %s and %s", low, high)
}

// moment writes a time as it is said, with its day where that is another.
func (f Forecast) moment(t time.Time, exact bool) string {
	if t.IsZero() {
		return ""
	}
	now := f.Now.In(t.Location())
	clock := "15:04"
	if exact {
		clock = "15:04:05"
	}
	switch sameDay := t.YearDay() == now.YearDay() && t.Year() == now.Year(); {
	case !t.After(now):
		return "now"
	case sameDay:
		return t.Format(clock)
	}
	return t.Format("2006-01-02 15:04")
}

// NoForecast is why no start is expected.
type NoForecast string

// Why there is none.
const (
	NoneNotQueued  NoForecast = "not_queued"
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
	Running int `json:"running"` // of them, those under way
	InFront int `json:"in_front"`
	Limit   int `json:"limit"`   // by a time limit alone
	History int `json:"history"` // from what ran before
	Unknown int `json:"unknown"` // not at all, or they outlast what was known
}

// String is what is known of the runs a forecast rests on: "from the time limits
// of 2 runs and the history of 3 runs; of 1 run nothing is known".
func (b Basis) String() string {
	var from []string
	if b.Limit > 0 {
		from = append(from, "the time "+plural(b.Limit, "limit")+" of "+count(int64(b.Limit), "run"))
	}
	if b.History > 0 {
		from = append(from, "the history of "+count(int64(b.History), "run"))
	}
	var parts []string
	if len(from) > 0 {
		parts = append(parts, "from "+strings.Join(from, " and "))
	}
	if b.Unknown > 0 {
		parts = append(parts, "of "+count(int64(b.Unknown), "run")+" nothing is known")
	}
	return strings.Join(parts, "; ")
}
