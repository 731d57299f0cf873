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
	Other bool   `json:"other,omitempty" doc:"a job of another berth on this machine"`
}

func (h Holder) String() string {
	if h.Other {
		return "another berth's job " + h.ID
	}
	return "job " + h.ID
}

// Run is a running job on a card, and when it is expected to end.
type Run struct {
	Holder
	User      string    `json:"user,omitempty"`
	Since     time.Time `json:"since,omitzero"`
	BudgetMiB int64     `json:"budget_mib,omitempty"` // 0: it has the whole card, or a share
	Share     float64   `json:"share,omitempty"`
	Alone     bool      `json:"alone,omitempty" doc:"no other job may join it"`
	LeavesFor string    `json:"leaves_for,omitempty" doc:"the job it is being preempted for"`

	Low  time.Time `json:"low,omitzero" doc:"earliest expected end"`
	Mid  time.Time `json:"mid,omitzero" doc:"likely end; left out without an estimate"`
	High time.Time `json:"high,omitzero" doc:"latest expected end; left out without an estimate"`
	By   Source    `json:"by" doc:"source of the estimate: limit, history (earlier runs with the same arguments), guess (other arguments, or other jobs of its user) or none"`
}

// Source is where an estimate comes from.
type Source string

// The sources.
const (
	ByLimit   Source = "limit"
	ByHistory Source = "history"
	ByGuess   Source = "guess"
	ByNothing Source = "none"
)

// Words describes the job: its user, how much of the card it has, since when and
// until when.
func (r Run) Words(now time.Time) string {
	name := r.String()
	if r.User != "" {
		name += " (" + r.User + ")"
	}
	parts := []string{name}
	switch {
	case r.Alone:
		parts = append(parts, "exclusive")
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
		source := "from earlier runs"
		switch r.By {
		case ByLimit:
			source = "from its time limit"
		case ByGuess:
			source = "a guess from other jobs of its user"
		}
		return "ends " + between(r.Low, r.High, now) + " (" + source + ")"
	case !r.Mid.IsZero():
		return "ends about " + clock(r.Mid, now) + " if it runs for as long again"
	}
	return "no time estimate"
}
