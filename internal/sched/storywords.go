package sched

import (
	"fmt"
	"math"
	"strings"
	"time"
)

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
		return fmt.Sprintf("not expected before %s: more than %s are in front", low, count(frontBound, "job"))
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

func plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}

// String names the job in front: "job 12 (bob, priority 5)".
func (b Behind) String() string {
	var about []string
	if b.User != "" {
		about = append(about, b.User)
	}
	if b.Priority != 0 {
		about = append(about, fmt.Sprintf("priority %d", b.Priority))
	}
	if len(about) == 0 {
		return "job " + b.Job
	}
	return fmt.Sprintf("job %s (%s)", b.Job, strings.Join(about, ", "))
}

// Because says why it goes first.
func (b Behind) Because() string {
	switch b.First {
	case FirstPassed:
		return "it was passed for as long as a job may be"
	case FirstWaited:
		return "it was set aside, and has waited for long since"
	case FirstPriority:
		return fmt.Sprintf("its priority of %d is higher", b.Priority)
	case FirstService:
		return "it had less of the cards so far"
	case FirstUser:
		return fmt.Sprintf("it is %s's turn: %s had %s GPU hours lately, the job's own user %s",
			b.User, b.User, decimal(b.HadSeconds/3600), decimal(b.OwnSeconds/3600))
	case FirstShorter:
		return "it is expected to need the cards for less"
	}
	return "it was submitted earlier"
}

// Words is what the request asks for: "2 GPUs with 18432 MiB".
func (r Request) Words() string {
	var b strings.Builder
	ids := splitIDs(r.IDs)
	switch {
	case r.GPUs == 0:
		return "no GPU" + r.hostWords()
	case r.Share > 0:
		fmt.Fprintf(&b, "share %s of ", fraction(r.Share))
	}
	switch {
	case len(ids) > 0:
		b.WriteString(gpus(ids))
	case r.undeclared() && r.GPUs == 1:
		b.WriteString("an idle GPU")
	case r.undeclared():
		fmt.Fprintf(&b, "%d idle GPUs", r.GPUs)
	default:
		b.WriteString(count(int64(r.GPUs), "GPU"))
	}
	if len(ids) > 0 && r.undeclared() {
		b.WriteString(" idle")
	}
	b.WriteString(Reason{Type: r.Type, Allow: splitIDs(r.Allow)}.limits())
	if r.VRAMMiB > 0 {
		fmt.Fprintf(&b, " with %d MiB", r.VRAMMiB)
		if r.GPUs > 1 {
			b.WriteString(" each")
		}
	}
	if r.Exclusive && !r.undeclared() {
		b.WriteString(" and no other berth job")
	}
	return b.String() + r.hostWords()
}

func (r *Request) hostWords() string {
	text := ""
	if r.CPUs > 0 {
		text += ", " + count(int64(r.CPUs), "cpu")
	}
	if r.MemMiB > 0 {
		text += fmt.Sprintf(", %d MiB of memory", r.MemMiB)
	}
	return text
}

// Line is why a job waits and when it is expected to start, in one line. What
// it waits behind says more than what is free just now, unless nothing is
// expected: then what is wrong is told.
func Line(why, needs string, b *Behind, f Forecast) string {
	if b != nil && f.None == "" && !strings.HasPrefix(why, "waits behind ") {
		why = "waits behind " + b.String() + " for " + needs
	}
	if expected := f.String(); expected != "" {
		return why + "; " + expected
	}
	return why
}

// String is the story in one line, for people.
func (t Story) String() string {
	return Line(t.Why.String(), t.Request.Words(), t.Behind, t.Forecast) + Passed(t.Oldest, t.MaxBypass, t.Forecast)
}

// Passed says how much is over of the time for which others may go before a job
// that has been its user's oldest since then; it follows a line. It is said from
// a quarter of that on, of what is expected to wait on.
func Passed(oldest time.Time, bound time.Duration, f Forecast) string {
	over := f.Now.Sub(oldest)
	switch {
	case oldest.IsZero() || bound <= 0 || over < bound/4 || f.None != "" || f.now():
		return ""
	case over >= bound:
		return fmt.Sprintf("; it was passed for %s, the most there is, and goes first", Hours(bound))
	}
	return fmt.Sprintf("; it may be passed for %s in all, %s so far", Hours(bound), Hours(over))
}

// Hours writes a time of hours: 48h, 1.5h; one below an hour in minutes.
func Hours(d time.Duration) string {
	switch {
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 10*time.Hour:
		return decimal(math.Floor(d.Hours()*10)/10) + "h"
	}
	return fmt.Sprintf("%dh", d/time.Hour)
}

// Obstacles says what stands between the job and the card: what is missing, or
// what closes it.
func (c CardStory) Obstacles() string {
	switch {
	case c.Excluded:
		return "not among those it asks for"
	case c.Obstacle == "" && c.KeptFor != "":
		return "kept for job " + c.KeptFor
	case c.MissingMiB > 0:
		return fmt.Sprintf("%d MiB free, %d more needed", c.FreeMiB, c.MissingMiB)
	case c.MissingShare > 0:
		return fmt.Sprintf("share %s free, %s more needed", fraction(c.FreeShare), fraction(c.MissingShare))
	case c.Obstacle == "":
		return "has room"
	}
	switch c.Obstacle {
	case ObstacleTaken:
		return "taken; the job wants it for itself"
	case ObstacleAlone, ObstacleExclusive:
		return "taken by a job that shares with nobody"
	}
	text := strings.TrimPrefix(c.CardFact.String(), fmt.Sprintf("gpu%d", c.GPU))
	return strings.TrimLeft(text, ": ")
}
