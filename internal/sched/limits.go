package sched

import (
	"slices"

	"berth/internal/job/reason"
)

// limits are those on users, arrays and groups, with what the plan starts.
type limits struct {
	state       *State
	arrayStarts map[string]int         // by limited array
	groupStarts map[GroupName][]string // by limited group
}

// hold reports whether a limit of its user, its array or its group holds the
// job back, however much room there is. Such a job holds up no other. Within a
// decision usage only grows, so a class that is limited once stays limited.
func (l *limits) hold(g *class, asked *amounts, a *account) bool {
	return l.arraySpent(g) || l.groupFull(g) || a.jobsSpent(g) || a.amountSpent(g, asked)
}

// groupFull reports that the job's group is paused, or has all the running jobs it may
// have.
func (l *limits) groupFull(g *class) bool {
	of, set := l.state.Groups[g.groupName()]
	return set && (of.PausedBy != "" || of.Limit > 0 && len(of.Running)+len(l.groupStarts[g.groupName()]) >= of.Limit)
}

func (k *classKey) groupName() GroupName { return GroupName{k.user, k.group} }

func (l *limits) arraySpent(g *class) bool {
	return g.arrayLimit > 0 && l.arrayRuns(g.array) >= g.arrayLimit
}

// arrayRuns counts the running tasks of an array, including those of this plan.
func (l *limits) arrayRuns(pool string) int { return l.state.ArrayRuns[pool] + l.arrayStarts[pool] }

// why names the limit that holds the job back.
func (l *limits) why(g *class, asked *amounts, a *account) reason.Reason {
	switch {
	case l.arraySpent(g):
		return reason.Reason{Kind: reason.WaitsForArray, Pool: g.array, Amount: int64(l.arrayRuns(g.array)), Total: int64(g.arrayLimit)}
	case l.groupFull(g):
		return l.whyGroup(g)
	case a.jobsSpent(g):
		return reason.Reason{Kind: reason.WaitsForLimit, User: a.user, Own: a.own, Flag: a.limit.Flag, Amount: int64(a.use.Jobs), Total: int64(a.limit.Jobs), Parked: int64(a.use.Parked)}
	}
	return a.whyExceeded(reason.WaitsForLimit, g, a.adds(g, asked), asked, &a.use)
}

// whyGroup says whether the group is paused or full.
func (l *limits) whyGroup(g *class) reason.Reason {
	of := l.state.Groups[g.groupName()]
	if of.PausedBy != "" {
		return reason.Reason{Kind: reason.WaitsForResume, Pool: g.group, User: of.PausedBy}
	}
	running := slices.Concat(of.Running, l.groupStarts[g.groupName()])
	slices.SortFunc(running, compareNames)
	return reason.Reason{Kind: reason.WaitsForGroup, Pool: g.group, Jobs: running, Total: int64(of.Limit)}
}

// charge adds a start to its user, its array and its group.
func (l *limits) charge(h *head, a *account) {
	g, asked := h.class, &h.amounts
	if a.use.add(asked.countedGPUs(), asked.cpus, asked.memMiB); !g.parked {
		a.use.Jobs++
	}
	if g.unproven {
		a.use.Unmeasured += float64(asked.gpus) - asked.countedGPUs()
	}
	a.charge(l.state, g)
	if g.arrayLimit > 0 {
		if l.arrayStarts == nil {
			l.arrayStarts = map[string]int{}
		}
		l.arrayStarts[g.array]++
	}
	if of := l.state.Groups[g.groupName()]; of.Limit > 0 {
		if l.groupStarts == nil {
			l.groupStarts = map[GroupName][]string{}
		}
		l.groupStarts[g.groupName()] = append(l.groupStarts[g.groupName()], h.job)
	}
}
