package sched

import "berth/internal/reason"

// limited reports whether a limit keeps the job, however much room there is:
// of its user, or of its array. Such a job is not in anybody's way. Within a
// decision what is in use only grows, so that a group limited once stays so.
func (d *decision) limited(g *group, asked *amounts, a *account) bool {
	return d.poolSpent(g) || a.jobsSpent() || a.gpusSpent(asked)
}

func (d *decision) poolSpent(g *group) bool {
	return g.poolLimit > 0 && d.poolRuns(g.pool) >= g.poolLimit
}

// poolRuns counts the jobs of a pool that run, those of this plan included.
func (d *decision) poolRuns(pool string) int { return d.state.Pools[pool] + d.pooled[pool] }

// whyLimited says which limit keeps the job.
func (d *decision) whyLimited(g *group, asked *amounts, a *account) reason.Reason {
	switch {
	case d.poolSpent(g):
		return reason.Reason{Kind: reason.WaitsForArray, Pool: g.pool, Amount: int64(d.poolRuns(g.pool)), Total: int64(g.poolLimit)}
	case a.jobsSpent():
		return reason.Reason{Kind: reason.WaitsForLimit, User: a.user, Own: a.own, Amount: int64(a.use.Jobs), Total: int64(a.limit.Jobs)}
	}
	return reason.Reason{
		Kind: reason.WaitsForLimit, User: a.user, Own: a.own,
		HeldGPUs: a.use.GPUs, MoreGPUs: asked.countedGPUs(), LimitGPUs: a.limit.GPUs,
	}
}

// charge puts a start down to its user and its pool.
func (d *decision) charge(g *group, asked *amounts, a *account) {
	a.use.Jobs++
	a.use.GPUs += asked.countedGPUs()
	a.charge(d.state, g)
	if g.poolLimit > 0 {
		if d.pooled == nil {
			d.pooled = map[string]int{}
		}
		d.pooled[g.pool]++
	}
}
