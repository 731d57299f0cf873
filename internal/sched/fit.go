package sched

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

// shareTolerance lets three thirds be one.
const shareTolerance = 1e-9

// fit says what keeps the request off the card, or what it would be budgeted
// there. Nothing a decision gives away can turn an obstacle into a fit: that
// is what lets it forget a request that failed once.
func (b *board) fit(c *slot, r *Request) (budgetMiB int64, obstacle Obstacle) {
	taken := len(c.holders) > 0
	switch {
	case c.closed != "":
		return 0, c.closed
	case taken && (r.Exclusive || r.undeclared()):
		return 0, ObstacleTaken
	case c.alone:
		return 0, ObstacleAlone
	case c.exclusive:
		return 0, ObstacleExclusive
	}
	if r.undeclared() {
		if c.IdleForeignMiB >= b.rules.IdleThresholdMiB {
			return 0, ObstacleForeign
		}
		return 0, ""
	}
	if r.Share > 0 && c.shares+r.Share > 1+shareTolerance {
		return 0, ObstacleShares
	}
	budgetMiB = r.budgetOn(c.TotalMiB)
	if b.freeFor(c, r) < budgetMiB {
		return 0, ObstacleFree
	}
	return budgetMiB, ""
}

// budgetOn is what the job is held at on a card of this size.
func (a *amounts) budgetOn(totalMiB int64) int64 {
	switch {
	case a.vramMiB > 0:
		return a.vramMiB
	case a.share > 0:
		return shareBudget(a.share, totalMiB)
	}
	return 0
}

func (r *Request) budgetOn(totalMiB int64) int64 {
	a := r.amounts()
	return a.budgetOn(totalMiB)
}

// freeFor is how much a job of this kind could be budgeted on the card now.
func (b *board) freeFor(c *slot, r *Request) int64 { return c.headroomMiB - b.marginFor(r) }

// marginFor is what must stay free beside the job's budget. A share keeps
// none: the part of the card that shares do not divide is its margin.
func (b *board) marginFor(r *Request) int64 {
	if r.VRAMMiB > 0 {
		return b.rules.MarginMiB
	}
	return 0
}
