package sched

import (
	"slices"

	"berth/internal/job/reason"
)

// limited reports whether a limit of its user, its array or its JobGroup holds the
// job back, however much room there is. Such a job holds up no other. Within a
// decision usage only grows, so a group that is limited once stays limited.
func (d *decision) limited(g *group, asked *amounts, a *account) bool {
	return d.poolSpent(g) || d.groupShut(g) || a.jobsSpent(g) || a.amountSpent(g, asked)
}

// groupShut reports that the group is paused, or has all the running jobs it may
// have.
func (d *decision) groupShut(g *group) bool {
	of, set := d.state.Groups[g.groupName()]
	return set && (of.PausedBy != "" || of.Limit > 0 && len(of.Running)+len(d.joined[g.groupName()]) >= of.Limit)
}

func (k *groupKey) groupName() GroupName { return GroupName{k.user, k.named} }

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
	case d.groupShut(g):
		return d.whyGroup(g)
	case a.jobsSpent(g):
		return reason.Reason{Kind: reason.WaitsForLimit, User: a.user, Own: a.own, Flag: a.limit.Flag, Amount: int64(a.use.Jobs), Total: int64(a.limit.Jobs), Parked: int64(a.use.Parked)}
	}
	return a.whyExceeded(reason.WaitsForLimit, a.adds(g, asked), asked, &a.use)
}

// whyGroup says whether the group is paused or full.
func (d *decision) whyGroup(g *group) reason.Reason {
	of := d.state.Groups[g.groupName()]
	if of.PausedBy != "" {
		return reason.Reason{Kind: reason.WaitsForResume, Pool: g.named, User: of.PausedBy}
	}
	running := slices.Concat(of.Running, d.joined[g.groupName()])
	slices.SortFunc(running, compareNames)
	return reason.Reason{Kind: reason.WaitsForGroup, Pool: g.named, Jobs: running, Total: int64(of.Limit)}
}

// charge adds a start to its user, its pool and its JobGroup.
func (d *decision) charge(h *head, a *account) {
	g, asked := h.group, &h.amounts
	if a.use.add(asked.countedGPUs(), asked.cpus, asked.memMiB); !g.parked {
		a.use.Jobs++
	}
	if g.unproven {
		a.use.Unmeasured += float64(asked.gpus) - asked.countedGPUs()
	}
	a.charge(d.state, g)
	if g.poolLimit > 0 {
		if d.pooled == nil {
			d.pooled = map[string]int{}
		}
		d.pooled[g.pool]++
	}
	if of := d.state.Groups[g.groupName()]; of.Limit > 0 {
		if d.joined == nil {
			d.joined = map[GroupName][]string{}
		}
		d.joined[g.groupName()] = append(d.joined[g.groupName()], h.job)
	}
}
