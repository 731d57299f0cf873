package reason

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Story is all there is to say of why a queued job waits, and for how long.
type Story struct {
	Job      string    `json:"job"`
	User     string    `json:"user,omitempty"`
	Priority int       `json:"priority,omitempty"`
	Request  Request   `json:"request"`
	Since    time.Time `json:"since,omitzero"` // since when it waits; zero: not known
	Position int       `json:"position"`       // in the order in which jobs are considered, from 1
	Queued   int       `json:"queued"`

	Why    Reason       `json:"why"`
	Cards  []CardStory  `json:"cards,omitempty"`  // every card of the machine, as it stands now
	Behind *Behind      `json:"behind,omitempty"` // the job that has to go first; nil: none
	Kept   *Reservation `json:"kept,omitempty"`   // the cards that are kept for it

	// MaxBypass is how long the oldest waiting job of a user is passed at most; 0:
	// there is no bound. Oldest is since when it has been its user's; zero: it is
	// not.
	MaxBypass time.Duration `json:"max_bypass_ns,omitempty"`
	Oldest    time.Time     `json:"oldest,omitzero"`
	Aside     []string      `json:"aside,omitempty"` // the running jobs that give way to it
	Forecast  Forecast      `json:"forecast"`
}

// String is the story in one line, for people.
func (t Story) String() string {
	return Line(t.Why.String(), t.Request.Words(), t.Behind, t.Forecast) + Passed(t.Oldest, t.MaxBypass, t.Forecast)
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

// Reservation is the cards that are kept for a job that waits.
type Reservation struct {
	Job   string
	Cards []int
	At    time.Time // when it is expected to have them
	Hard  bool      // nothing that may run for longer starts there
}

// Holder is a run on a card.
type Holder struct {
	Job       string    `json:"job"`
	User      string    `json:"user,omitempty"`
	Other     bool      `json:"other,omitempty"` // another berth's
	Since     time.Time `json:"since,omitzero"`
	BudgetMiB int64     `json:"budget_mib,omitempty"` // 0: it has the card alone, or a share
	Share     float64   `json:"share,omitempty"`
	Alone     bool      `json:"alone,omitempty"`
	LeavesFor string    `json:"leaves_for,omitempty"` // it is being set aside, for this job

	// When it is expected to end: at the earliest, as a rule, at the latest. Mid
	// and High are zero where nothing says.
	Low  time.Time `json:"low"`
	Mid  time.Time `json:"mid,omitzero"`
	High time.Time `json:"high,omitzero"`
	By   Source    `json:"by"`
}

// Source is what the expected end of a run rests on.
type Source string

// The sources.
const (
	ByLimit   Source = "limit"
	ByHistory Source = "history"
	ByNothing Source = "none"
)

// Behind is the job that has to go first.
type Behind struct {
	Job      string `json:"job"`
	User     string `json:"user,omitempty"`
	Priority int    `json:"priority,omitempty"`
	First    First  `json:"first"`          // why it goes first
	Kept     bool   `json:"kept,omitempty"` // cards are kept for it that would do
	// HadSeconds is what its user had lately, and OwnSeconds the job's own user,
	// where that decides.
	HadSeconds float64 `json:"had_s,omitempty"`
	OwnSeconds float64 `json:"own_s,omitempty"`
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

// First is why one job goes before another.
type First string

// Why.
const (
	FirstPassed   First = "passed"   // it was passed for as long as a job may be
	FirstWaited   First = "waited"   // it was set aside, and has waited for long
	FirstPriority First = "priority" // its priority is higher
	FirstService  First = "service"  // it had less of the cards so far
	FirstUser     First = "user"     // its user had less of the cards lately
	FirstShorter  First = "shorter"  // it is expected to need the cards less
	FirstEarlier  First = "earlier"  // it was submitted earlier
)
