package sched

import (
	"slices"

	"berth/internal/job/reason"
)

// limited reports whether a limit of its user, its array or its group holds the
// job back, however much room there is. Such a job holds up no other. Within a
// decision usage only grows, so a class that is limited once stays limited.
func (d *decision) limited(g *class, asked *amounts, a *account) bool {
	return d.arraySpent(g) || d.groupFull(g) || a.jobsSpent(g) || a.amountSpent(g, asked)
}

// groupFull reports that the job's group is paused, or has all the running jobs it may
// have.
func (d *decision) groupFull(g *class) bool {
	of, set := d.state.Groups[g.groupName()]
	return set && (of.PausedBy != "" || of.Limit > 0 && len(of.Running)+len(d.groupStarts[g.groupName()]) >= of.Limit)
}

func (k *classKey) groupName() GroupName { return GroupName{k.user, k.group} }

func (d *decision) arraySpent(g *class) bool {
	return g.arrayLimit > 0 && d.arrayRuns(g.array) >= g.arrayLimit
}

// arrayRuns counts the running tasks of an array, including those of this plan.
func (d *decision) arrayRuns(pool string) int { return d.state.ArrayRuns[pool] + d.arrayStarts[pool] }

// whyLimited names the limit that holds the job back.
func (d *decision) whyLimited(g *class, asked *amounts, a *account) reason.Reason {
	switch {
	case d.arraySpent(g):
		return reason.Reason{Kind: reason.WaitsForArray, Pool: g.array, Amount: int64(d.arrayRuns(g.array)), Total: int64(g.arrayLimit)}
	case d.groupFull(g):
		return d.whyGroup(g)
	case a.jobsSpent(g):
		return reason.Reason{Kind: reason.WaitsForLimit, User: a.user, Own: a.own, Flag: a.limit.Flag, Amount: int64(a.use.Jobs), Total: int64(a.limit.Jobs), Parked: int64(a.use.Parked)}
	}
	return a.whyExceeded(reason.WaitsForLimit, g, a.adds(g, asked), asked, &a.use)
}

// whyGroup says whether the group is paused or full.
func (d *decision) whyGroup(g *class) reason.Reason {
	of := d.state.Groups[g.groupName()]
	if of.PausedBy != "" {
		return reason.Reason{Kind: reason.WaitsForResume, Pool: g.group, User: of.PausedBy}
	}
	running := slices.Concat(of.Running, d.groupStarts[g.groupName()])
	slices.SortFunc(running, compareNames)
	return reason.Reason{Kind: reason.WaitsForGroup, Pool: g.group, Jobs: running, Total: int64(of.Limit)}
}

// charge adds a start to its user, its array and its group.
func (d *decision) charge(h *head, a *account) {
	g, asked := h.class, &h.amounts
	if a.use.add(asked.countedGPUs(), asked.cpus, asked.memMiB); !g.parked {
		a.use.Jobs++
	}
	if g.unproven {
		a.use.Unmeasured += float64(asked.gpus) - asked.countedGPUs()
	}
	a.charge(d.state, g)
	if g.arrayLimit > 0 {
		if d.arrayStarts == nil {
			d.arrayStarts = map[string]int{}
		}
		d.arrayStarts[g.array]++
	}
	if of := d.state.Groups[g.groupName()]; of.Limit > 0 {
		if d.groupStarts == nil {
			d.groupStarts = map[GroupName][]string{}
		}
		d.groupStarts[g.groupName()] = append(d.groupStarts[g.groupName()], h.job)
	}
}
