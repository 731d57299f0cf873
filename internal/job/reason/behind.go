package reason

import (
	"fmt"
	"strings"

	"berth/internal/text"
)

// Behind is the job ahead of a waiting one.
type Behind struct {
	ID       string `json:"id"`
	User     string `json:"user,omitempty"`
	Priority int    `json:"priority"`
	First    First  `json:"first" doc:"why it goes first: passed (overtake limit reached), waited, share (its user is within theirs), priority, service, user, shorter or earlier"`
	Because  string `json:"because" doc:"the same as a sentence"`
	Kept     bool   `json:"kept,omitempty" doc:"GPUs that would suit this job are reserved for it"`

	HadS float64 `json:"had_s,omitempty" doc:"where fair share decides: the recent usage of its user, in GPU seconds"`
	OwnS float64 `json:"own_s,omitempty" doc:"the recent usage of the waiting job's user"`
}

// First is why one job goes before another.
type First string

// The rules that order two jobs, strongest first.
const (
	FirstOvertaken First = "passed"   // it reached the overtake limit
	FirstWaited    First = "waited"   // it was preempted and has waited long since
	FirstShare     First = "share"    // its user has less than their share, the other more
	FirstPriority  First = "priority" // its priority is higher
	FirstService   First = "service"  // its service class is better
	FirstUser      First = "user"     // its user has less usage
	FirstShorter   First = "shorter"  // it is expected to need less GPU time
	FirstEarlier   First = "earlier"  // it was submitted earlier
)

// String names the job ahead: "job 12 (bob, priority 5)".
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
		return "it has reached the overtake limit"
	case FirstWaited:
		return "it was preempted and has waited a long time since"
	case FirstShare:
		return "its user is within their share of the GPUs"
	case FirstPriority:
		return fmt.Sprintf("its priority (%d) is higher", b.Priority)
	case FirstService:
		return "it has received less GPU time so far"
	case FirstUser:
		return fmt.Sprintf("%s has used less: %s GPU hours recently, against %s by this job's user",
			b.User, text.Decimal(b.HadS/3600), text.Decimal(b.OwnS/3600))
	case FirstShorter:
		return "it is expected to need less GPU time"
	}
	return "it was submitted earlier"
}
