package reason

import (
	"fmt"
	"strings"
	"time"

	"berth/internal/text"
)

// Holder is a job on a card.
type Holder struct {
	ID    string `json:"id"`
	Other bool   `json:"other,omitempty" doc:"another berth's"`
}

// String names it.
func (h Holder) String() string {
	if h.Other {
		return "another berth's job " + h.ID
	}
	return "job " + h.ID
}

// Run is a run on a card, and when it is expected to end.
type Run struct {
	Holder
	User      string    `json:"user,omitempty"`
	Since     time.Time `json:"since,omitzero"`
	BudgetMiB int64     `json:"budget_mib,omitempty"` // 0: it has the card alone, or a share
	Share     float64   `json:"share,omitempty"`
	Alone     bool      `json:"alone,omitempty" doc:"nothing joins it"`
	LeavesFor string    `json:"leaves_for,omitempty" doc:"it is being set aside, for this job"`

	Low  time.Time `json:"low,omitzero" doc:"when it is expected to end, at the earliest"`
	Mid  time.Time `json:"mid,omitzero" doc:"as a rule; left out where nothing says"`
	High time.Time `json:"high,omitzero" doc:"at the latest; left out where nothing says"`
	By   Source    `json:"by" doc:"what that rests on: limit, history or none"`
}

// Source is what the expected end of a run rests on.
type Source string

// The sources.
const (
	ByLimit   Source = "limit"
	ByHistory Source = "history"
	ByNothing Source = "none"
)

// Words is whose run it is, with how much of the card, since when and for how
// long.
func (r Run) Words(now time.Time) string {
	name := r.String()
	if r.User != "" {
		name += " (" + r.User + ")"
	}
	parts := []string{name}
	switch {
	case r.Alone:
		parts = append(parts, "alone")
	case r.Share > 0:
		parts = append(parts, "share "+text.Share(r.Share))
	case r.BudgetMiB > 0:
		parts = append(parts, fmt.Sprintf("%d MiB", r.BudgetMiB))
	}
	if !r.Since.IsZero() {
		parts = append(parts, "since "+onDay(r.Since, now, time.TimeOnly))
	}
	return strings.Join(append(parts, r.end(now)), ", ")
}

func (r *Run) end(now time.Time) string {
	switch {
	case r.LeavesFor != "":
		return "being " + Preempted(r.LeavesFor)
	case !r.High.IsZero() && !r.Low.IsZero():
		source := "from what ran before"
		if r.By == ByLimit {
			source = "from its time limit"
		}
		return "ends " + between(r.Low, r.High, now) + " (" + source + ")"
	case !r.Mid.IsZero():
		return "ends about " + clock(r.Mid, now) + " if it takes as long again"
	}
	return "nothing is known of its end"
}
