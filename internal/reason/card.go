package reason

import (
	"fmt"
	"strings"
)

// Obstacle is what keeps a job off a card.
type Obstacle string

// The obstacles; empty is none.
const (
	ObstacleStale     Obstacle = "stale"     // its last reading failed or is too old
	ObstaclePaused    Obstacle = "paused"    // a person said so
	ObstacleHealth    Obstacle = "health"    // it is suspect or quarantined
	ObstacleMemory    Obstacle = "memory"    // over the memory threshold
	ObstacleLoad      Obstacle = "load"      // over the load threshold
	ObstacleTaken     Obstacle = "taken"     // the job wants it free of berth jobs, and it is not
	ObstacleAlone     Obstacle = "alone"     // a job there is not to be joined
	ObstacleExclusive Obstacle = "exclusive" // a job there asked to be the only one of berth's
	ObstacleForeign   Obstacle = "foreign"   // not idle: others' processes use it
	ObstacleShares    Obstacle = "shares"    // its shares would pass 1
	ObstacleFree      Obstacle = "free"      // too little memory free
	ObstacleKept      Obstacle = "kept"      // it is kept for a job that waits
)

// Card is how one card stands to the job. An empty Obstacle means that
// the job would fit there.
type Card struct {
	GPU      int      `json:"gpu"`
	Name     string   `json:"name,omitempty"`
	Obstacle Obstacle `json:"obstacle,omitempty"`

	// FreeMiB is what such a job could be budgeted there now: the headroom,
	// less the margin where the job needs one beside it.
	FreeMiB    int64    `json:"free_mib,omitempty"`
	FreeShare  float64  `json:"free_share,omitempty"`
	ForeignMiB int64    `json:"foreign_mib,omitempty"`
	Holders    []string `json:"holders,omitempty"` // the berth jobs there
	Percent    float64  `json:"percent,omitempty"` // measured, where a threshold is passed
	Limit      float64  `json:"limit,omitempty"`   // that threshold, in percent
	Detail     string   `json:"detail,omitempty"`  // the health and its reason
}

// String is what stands between the job and the card.
func (c Card) String() string {
	name := fmt.Sprintf("gpu%d ", c.GPU)
	switch c.Obstacle {
	case ObstacleStale:
		if c.Detail != "" {
			return strings.TrimSpace(name) + ": " + c.Detail
		}
		return name + "has no recent reading"
	case ObstaclePaused:
		return name + "paused"
	case ObstacleHealth:
		return name + c.Detail
	case ObstacleMemory:
		return fmt.Sprintf("%shas %.0f%% of its memory in use, over %.0f%%", name, c.Percent, c.Limit)
	case ObstacleLoad:
		return fmt.Sprintf("%sis at %.0f%% load, over %.0f%%", name, c.Percent, c.Limit)
	case ObstacleTaken:
		return name + "runs " + some(c.Holders, maxJobsNamed)
	case ObstacleAlone, ObstacleExclusive:
		return name + "runs " + some(c.Holders, maxJobsNamed) + " alone"
	case ObstacleForeign:
		return fmt.Sprintf("%shas %d MiB in foreign use", name, c.ForeignMiB)
	case ObstacleShares:
		return fmt.Sprintf("%shas share %s left", name, fraction(c.FreeShare))
	case ObstacleKept:
		return name + "is kept for " + some(c.Holders, maxJobsNamed)
	case ObstacleFree:
		return fmt.Sprintf("%shas %d MiB free", name, c.FreeMiB)
	}
	return name + "fits"
}

// CardStory is what stands between the job and one card.
type CardStory struct {
	Card
	Excluded     bool     `json:"excluded,omitempty"`      // its type, its ids or its list leave this card out
	MissingMiB   int64    `json:"missing_mib,omitempty"`   // what would have to be free besides
	MissingShare float64  `json:"missing_share,omitempty"` // the same, of a share
	Runs         []Holder `json:"runs,omitempty"`
	KeptFor      string   `json:"kept_for,omitempty"` // the waiting job that the card is kept for; empty: none
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
	text := strings.TrimPrefix(c.Card.String(), fmt.Sprintf("gpu%d", c.GPU))
	return strings.TrimLeft(text, ": ")
}
