package reason

import (
	"fmt"
	"strings"

	"berth/internal/text"
)

// Behind is the job that has to go first.
type Behind struct {
	ID       string `json:"id"`
	User     string `json:"user,omitempty"`
	Priority int    `json:"priority"`
	First    First  `json:"first" doc:"why it goes first: passed, waited, priority, service, user, shorter or earlier"`
	Because  string `json:"because" doc:"the same in words"`
	Kept     bool   `json:"kept,omitempty" doc:"cards are kept for it that would do"`

	HadS float64 `json:"had_s,omitempty" doc:"where its user's turn decides: what that user had of the cards lately, in GPU seconds"`
	OwnS float64 `json:"own_s,omitempty" doc:"the same of the waiting job's user"`
}

// First is why one job goes before another.
type First string

// Why.
const (
	FirstOvertaken First = "passed"   // it was passed for as long as a job may be
	FirstWaited    First = "waited"   // it was set aside, and has waited for long
	FirstPriority  First = "priority" // its priority is higher
	FirstService   First = "service"  // it had less of the cards so far
	FirstUser      First = "user"     // its user had less of the cards lately
	FirstShorter   First = "shorter"  // it is expected to need the cards less
	FirstEarlier   First = "earlier"  // it was submitted earlier
)

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
		return "job " + b.ID
	}
	return fmt.Sprintf("job %s (%s)", b.ID, strings.Join(about, ", "))
}

func (b *Behind) because() string {
	switch b.First {
	case FirstOvertaken:
		return "it was passed for as long as a job may be"
	case FirstWaited:
		return "it was set aside, and has waited for long since"
	case FirstPriority:
		return fmt.Sprintf("its priority of %d is higher", b.Priority)
	case FirstService:
		return "it had less of the cards so far"
	case FirstUser:
		return fmt.Sprintf("it is %s's turn: %s had %s GPU hours lately, the job's own user %s",
			b.User, b.User, text.Decimal(b.HadS/3600), text.Decimal(b.OwnS/3600))
	case FirstShorter:
		return "it is expected to need the cards for less"
	}
	return "it was submitted earlier"
}
