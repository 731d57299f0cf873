package sched

import "berth/internal/reason"

// limited reports whether a limit of its user or its array holds the job back,
// however much room there is. Such a job holds up no other. Within a decision usage
// only grows, so a group that is limited once stays limited.
func (d *decision) limited(g *group, asked *amounts, a *account) bool {
	return d.poolSpent(g) || a.jobsSpent() || a.gpusSpent(asked)
}

func (d *decision) poolSpent(g *group) bool {
	return g.poolLimit > 0 && d.poolRuns(g.pool) >= g.poolLimit
}

// poolRuns counts the running jobs of a pool, including those of this plan.
func (d *decision) poolRuns(pool string) int { return d.state.Pools[pool] + d.pooled[pool] }

// whyLimited names the limit that holds the job back.
func (d *decision) whyLimited(g *group, asked *amounts, a *account) reason.Reason {
	switch {
	case d.poolSpent(g):
		return reason.Reason{Kind: reason.WaitsForArray, Pool: g.pool, Amount: int64(d.poolRuns(g.pool)), Total: int64(g.poolLimit)}
	case a.jobsSpent():
		return reason.Reason{Kind: reason.WaitsForLimit, User: a.user, Own: a.own, Flag: a.limit.Flag, Amount: int64(a.use.Jobs), Total: int64(a.limit.Jobs)}
	}
	return reason.Reason{
		Kind: reason.WaitsForLimit, User: a.user, Own: a.own,
		HeldGPUs: a.use.GPUs, MoreGPUs: asked.countedGPUs(), LimitGPUs: a.limit.GPUs,
	}
}

// charge adds a start to its user and its pool.
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
