package sched

import "berth/internal/job/reason"

// shareTolerance lets three thirds be one.
const shareTolerance = 1e-9

// fit is the request's budget on the card, or the obstacle that keeps it off.
// Within a decision an obstacle never goes away, so a request that failed once can
// be skipped.
func (m *machine) fit(c *slot, r *Request) (budgetMiB int64, obstacle reason.Obstacle) {
	taken := len(c.holds) > 0
	switch {
	case c.closed != "":
		return 0, c.closed
	case taken && (r.Exclusive || r.undeclared()):
		return 0, reason.ObstacleTaken
	case c.alone:
		return 0, reason.ObstacleAlone
	case c.exclusive:
		return 0, reason.ObstacleExclusive
	}
	if r.undeclared() {
		if c.IdleForeignMiB >= m.rules.IdleThresholdMiB {
			return 0, reason.ObstacleForeign
		}
		return 0, ""
	}
	if r.Share > 0 && c.shares+r.Share > 1+shareTolerance {
		return 0, reason.ObstacleShares
	}
	budgetMiB = r.budgetOn(c.TotalMiB)
	if m.freeFor(c, r) < budgetMiB {
		return 0, reason.ObstacleFree
	}
	return budgetMiB, ""
}

// budgetOn is the job's budget on a card of this size.
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

// freeFor is the largest budget that such a job could have on the card now.
func (m *machine) freeFor(c *slot, r *Request) int64 {
	return c.headroomMiB - max(m.marginFor(r), c.marginMiB)
}

// marginFor is what must stay free beside the job's budget. A share needs none:
// shares divide only part of the card.
func (m *machine) marginFor(r *Request) int64 {
	if r.VRAMMiB > 0 {
		return m.rules.MarginMiB
	}
	return 0
}
