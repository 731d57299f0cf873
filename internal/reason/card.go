package reason

import (
	"cmp"
	"fmt"

	"berth/internal/text"
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
	ObstacleReserved  Obstacle = "kept"      // it is kept for a job that waits
	ObstacleExcluded  Obstacle = "excluded"  // the job's type, ids or list leave it out
)

// Card is how one card stands to the job. An empty Obstacle means that the job
// would fit there.
type Card struct {
	GPU      int      `json:"gpu"`
	Name     string   `json:"name,omitempty"`
	Obstacle Obstacle `json:"obstacle,omitempty" doc:"what keeps the job off it, in a word: excluded, kept, stale, paused, health, memory, load, taken, alone, exclusive, foreign, shares, free"`

	FreeMiB    int64    `json:"free_mib,omitempty" doc:"what such a job could have there now"` // the headroom, less the margin where the job needs one beside it
	FreeShare  float64  `json:"free_share,omitempty" doc:"the same, of a share"`
	ForeignMiB int64    `json:"foreign_mib,omitempty"`
	Holders    []Holder `json:"holders,omitempty" hidden:"true"` // the berth jobs there, or the one it is kept for; a story has Runs
	Percent    float64  `json:"percent,omitempty" doc:"what was measured, where it is over a threshold"`
	Limit      float64  `json:"limit,omitempty" doc:"that threshold, in percent"`
	Detail     string   `json:"detail,omitempty" doc:"its health and the reason, or why it could not be read"`
}

// String is what stands between the job and the card.
func (c Card) String() string {
	if c.Obstacle == ObstacleStale && c.Detail != "" {
		return fmt.Sprintf("gpu%d: %s", c.GPU, c.Detail)
	}
	return fmt.Sprintf("gpu%d %s", c.GPU, c.state())
}

// state is the same without the card's name.
func (c *Card) state() string {
	switch c.Obstacle {
	case ObstacleStale:
		return cmp.Or(c.Detail, "has no recent reading")
	case ObstaclePaused:
		return "paused"
	case ObstacleHealth:
		return c.Detail
	case ObstacleMemory:
		return fmt.Sprintf("has %.0f%% of its memory in use, over %.0f%%", c.Percent, c.Limit)
	case ObstacleLoad:
		return fmt.Sprintf("is at %.0f%% load, over %.0f%%", c.Percent, c.Limit)
	case ObstacleTaken:
		return "runs " + holders(c.Holders)
	case ObstacleAlone, ObstacleExclusive:
		return "runs " + holders(c.Holders) + " alone"
	case ObstacleForeign:
		return fmt.Sprintf("has %d MiB in foreign use", c.ForeignMiB)
	case ObstacleShares:
		return fmt.Sprintf("has share %s left", text.Share(c.FreeShare))
	case ObstacleReserved:
		return "is kept for " + holders(c.Holders)
	case ObstacleFree:
		return fmt.Sprintf("has %d MiB free", c.FreeMiB)
	case ObstacleExcluded:
		return "is not among those it asks for"
	}
	return "fits"
}

func holders(list []Holder) string {
	names := make([]string, len(list))
	for i, h := range list {
		names[i] = h.String()
	}
	return text.Some(names, maxJobsNamed)
}

// CardStory is what stands between the job and one card, and who is there.
type CardStory struct {
	Card
	Fits         bool    `json:"fits" doc:"it would fit there now"`
	What         string  `json:"what" doc:"how the card stands to the job, in words"`
	MissingMiB   int64   `json:"missing_mib,omitempty" doc:"what would have to be free besides"`
	MissingShare float64 `json:"missing_share,omitempty" doc:"the same, of a share"`
	KeptFor      string  `json:"kept_for,omitempty" doc:"the waiting job that the card is kept for"`
	Runs         []Run   `json:"runs,omitempty"`
}

// say puts into words what is missing, or what closes the card.
func (c *CardStory) say() {
	c.Fits = c.Obstacle == ""
	switch {
	case c.Fits:
		c.What = "has room"
	case c.Obstacle == ObstacleExcluded:
		c.What = "not among those it asks for"
	case c.Obstacle == ObstacleReserved:
		c.What = "kept for job " + c.KeptFor
	case c.MissingMiB > 0:
		c.What = fmt.Sprintf("%d MiB free, %d more needed", c.FreeMiB, c.MissingMiB)
	case c.MissingShare > 0:
		c.What = fmt.Sprintf("share %s free, %s more needed", text.Share(c.FreeShare), text.Share(c.MissingShare))
	case c.Obstacle == ObstacleTaken:
		c.What = "taken; the job wants it for itself"
	case c.Obstacle == ObstacleAlone, c.Obstacle == ObstacleExclusive:
		c.What = "taken by a job that shares with nobody"
	default:
		c.What = c.state()
	}
}
