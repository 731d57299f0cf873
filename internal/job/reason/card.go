package reason

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"berth/internal/text"
)

// Obstacle is what keeps a job off a card.
type Obstacle string

// The obstacles; empty means that the job fits.
const (
	ObstacleStale     Obstacle = "stale"     // its last reading failed or is too old
	ObstaclePaused    Obstacle = "paused"    // an administrator paused it
	ObstacleHealth    Obstacle = "health"    // it is suspect or quarantined
	ObstacleMemory    Obstacle = "memory"    // over the memory threshold
	ObstacleLoad      Obstacle = "load"      // over the load threshold
	ObstacleTaken     Obstacle = "taken"     // berth jobs run there, and this job needs it without any
	ObstacleAlone     Obstacle = "alone"     // a job there declared no memory, so none may join it
	ObstacleExclusive Obstacle = "exclusive" // a job there asked for no other berth job beside it
	ObstacleForeign   Obstacle = "foreign"   // not idle: external processes use it
	ObstacleShares    Obstacle = "shares"    // the shares there would exceed 1
	ObstacleFree      Obstacle = "free"      // too little free memory
	ObstacleReserved  Obstacle = "kept"      // it is reserved for a waiting job
	ObstacleExcluded  Obstacle = "excluded"  // the job's type, ids or allow list exclude it
)

// Card is one card as a job sees it. An empty Obstacle means that the job would
// fit there.
type Card struct {
	GPU      int      `json:"gpu"`
	Name     string   `json:"name,omitempty"`
	Obstacle Obstacle `json:"obstacle,omitempty" doc:"what keeps the job off it: excluded, kept (reserved for another job), stale, paused, health, memory, load, taken, alone, exclusive, foreign (external processes), shares, free"`

	FreeMiB    int64    `json:"free_mib,omitempty" doc:"memory that this job could have there now"` // the headroom, less the margin where the job needs one
	FreeShare  float64  `json:"free_share,omitempty" doc:"share that this job could have there now"`
	ForeignMiB int64    `json:"foreign_mib,omitempty" doc:"memory that external processes use"`
	Holders    []Holder `json:"holders,omitempty" hidden:"true"` // the berth jobs there, or the one it is reserved for; a story has Runs
	Percent    float64  `json:"percent,omitempty" doc:"the measured value, where it is over a threshold"`
	Limit      float64  `json:"limit,omitempty" doc:"that threshold, in percent"`
	Detail     string   `json:"detail,omitempty" doc:"its health and the reason, or why it could not be read"`
}

// clause is what keeps the job off the card; it follows the card's name in a
// sentence.
func (c *Card) clause() string {
	switch {
	case c.Obstacle == "":
		return " is idle"
	case c.Obstacle == ObstacleStale && c.Detail != "":
		return ": " + c.Detail
	case c.Obstacle == ObstaclePaused || c.Obstacle == ObstacleHealth:
		return " is " + c.state()
	}
	return " " + c.state()
}

// grouped describes cards that have the same obstacle together:
// "gpu0-2,5 run job 36 exclusively".
func grouped(cards []Card) []string {
	var clauses []string
	indices := map[string][]int{}
	for i := range cards {
		clause := cards[i].clause()
		if indices[clause] == nil {
			clauses = append(clauses, clause)
		}
		indices[clause] = append(indices[clause], cards[i].GPU)
	}
	sentences := make([]string, len(clauses))
	for i, clause := range clauses {
		list := indices[clause]
		if len(list) > 1 {
			clause = plural(clause)
		}
		sentences[i] = "gpu" + ranges(list) + clause
	}
	return sentences
}

// plural turns the verb that a clause begins with into its plural.
func plural(clause string) string {
	for _, verb := range [][2]string{{" is ", " are "}, {" has ", " have "}, {" runs ", " run "}} {
		if rest, found := strings.CutPrefix(clause, verb[0]); found {
			return verb[1] + strings.Replace(rest, "of its memory", "of their memory", 1)
		}
	}
	return clause
}

// ranges writes ascending numbers as a user types them: "0-2,5".
func ranges(list []int) string {
	var b strings.Builder
	for i := 0; i < len(list); {
		last := i
		for last+1 < len(list) && list[last+1] == list[last]+1 {
			last++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(list[i]))
		if last > i {
			fmt.Fprintf(&b, "-%d", list[last])
		}
		i = last + 1
	}
	return b.String()
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
		return "runs " + holders(c.Holders) + " exclusively"
	case ObstacleForeign:
		return fmt.Sprintf("has %d MiB in use by external processes", c.ForeignMiB)
	case ObstacleShares:
		return fmt.Sprintf("has share %s left", text.Share(c.FreeShare))
	case ObstacleReserved:
		return "is reserved for " + holders(c.Holders)
	case ObstacleFree:
		return fmt.Sprintf("has %d MiB free", c.FreeMiB)
	}
	return "is not among the GPUs it asks for"
}

func holders(list []Holder) string {
	names := make([]string, len(list))
	for i, h := range list {
		names[i] = h.String()
	}
	return text.Some(names, maxJobsNamed)
}

// CardStory is what keeps the job off one card, and the jobs that run there.
type CardStory struct {
	Card
	Fits         bool    `json:"fits" doc:"the job would fit there now"`
	What         string  `json:"what" doc:"what keeps the job off the GPU, as a sentence"`
	MissingMiB   int64   `json:"missing_mib,omitempty" doc:"how much more memory would have to be free"`
	MissingShare float64 `json:"missing_share,omitempty" doc:"how much more of a share would have to be free"`
	KeptFor      string  `json:"kept_for,omitempty" doc:"the waiting job that the GPU is reserved for"`
	Runs         []Run   `json:"runs,omitempty" doc:"the jobs that run there"`
}

// say writes the sentence: what is missing, or what closes the card.
func (c *CardStory) say() {
	c.Fits = c.Obstacle == ""
	switch {
	case c.Fits:
		c.What = "has room"
	case c.Obstacle == ObstacleExcluded:
		c.What = "not among the GPUs it asks for"
	case c.Obstacle == ObstacleReserved:
		c.What = "reserved for job " + c.KeptFor
	case c.MissingMiB > 0:
		c.What = fmt.Sprintf("%d MiB free, %d more needed", c.FreeMiB, c.MissingMiB)
	case c.MissingShare > 0:
		c.What = fmt.Sprintf("share %s free, %s more needed", text.Share(c.FreeShare), text.Share(c.MissingShare))
	case c.Obstacle == ObstacleTaken:
		c.What = "in use; the job needs it to itself"
	case c.Obstacle == ObstacleAlone, c.Obstacle == ObstacleExclusive:
		c.What = "in use by a job that does not share it"
	default:
		c.What = c.state()
	}
}
