package sched

import (
	"slices"
	"time"
)

// runningJobs are the running jobs, and which of them give way.
type runningJobs struct {
	state *State
	now   *machine

	list           []*Allocation        // in order
	byLoss         []*Allocation        // by what their preemption costs; nil until needed
	beingPreempted map[*Allocation]bool // by this plan or an earlier one
	parkedMiB      int64                // host memory for the jobs that this plan parks
	parkedOfMiB    map[string]int64     // the same by user

	preemptible bool // one can be preempted, or is being
	parkingFull bool // a preemption failed for lack of host memory

	shares  bool                 // some user has a share
	lending bool                 // those are considered who would be borrowed, after all others
	lent    map[*Allocation]bool // the borrowed ones; nil until needed
}

// outranks reports whether a running job can be preempted for a waiting one, once
// it has run for long enough. Jobs that lose their work are preempted only for a
// higher priority: otherwise two jobs longer than the overtake limit would end each
// other for ever.
func (rs *runningJobs) outranks(h *head, held *Allocation, u urgency) bool {
	return rs.wouldOutrank(h, held, u) && rs.parkingFits(held)
}

// wouldOutrank is outranks for a host with memory enough to park any job.
func (rs *runningJobs) wouldOutrank(h *head, held *Allocation, u urgency) bool {
	if held.Preempt.Mode == "" || held.Other || rs.beingPreempted[held] {
		return false
	}
	rules, now := &rs.state.Rules, rs.state.Now
	switch {
	case now.Before(held.protectedUntil(rules)) || rs.lending && !rs.borrowed(held):
		return false
	case !rs.lending && h.gpus > 0 && h.priority >= held.Priority && rs.borrowed(held):
		return true
	case u != ordinary && held.Preempt.keepsWork():
		return true
	case h.priority != held.Priority:
		return h.priority > held.Priority
	case !held.Preempt.keepsWork() || !rules.TakesTurns() && rules.Policy != LAS:
		return false
	}
	class, _ := held.class(rules, now)
	own := h.entry.service
	if h.class.fixed && rules.TakesTurns() {
		own = classLong
	}
	if own == class && class == classLong && rules.TakesTurns() {
		return h.rank < held.Rank || h.rank == held.Rank && h.seq < held.Seq
	}
	return own < class
}

// protectedUntil is how long a job that was overdue when it started cannot be
// preempted.
func (h *Allocation) protectedUntil(r *Rules) time.Time {
	if r.MaxBypass <= 0 || h.Waited < r.MaxBypass {
		return time.Time{}
	}
	return h.Started.Add(boostLeast)
}

// preemptibleFrom is when a running job can be preempted for the waiting one.
func (rs *runningJobs) preemptibleFrom(held *Allocation, h *head) time.Time {
	return held.Started.Add(held.minRun(&rs.state.Rules, gpuWeight(h.countedGPUs(), h.cpus)))
}

// preemptibleAt is when a running job can be preempted for the waiting one, as far as
// that can be foreseen: some classes of service protect it for a time.
func (rs *runningJobs) preemptibleAt(h *head, held *Allocation) (at time.Time, some bool) {
	rs.borrowed(held) // as of now
	then, later := *rs.state, *rs
	later.state = &then
	then.Now = latest(then.Now, held.protectedUntil(&then.Rules))
	for range classLong {
		if later.outranks(h, held, ordinary) {
			return latest(then.Now, later.preemptibleFrom(held, h)), true
		}
		_, until := held.class(&then.Rules, then.Now)
		if !until.After(then.Now) {
			break
		}
		then.Now = until
	}
	return time.Time{}, false
}

// parkingFits reports whether the host has memory for these jobs to be parked too,
// and each of their users a large enough part of it. ParkMiB no longer includes the
// jobs of earlier plans.
func (rs *runningJobs) parkingFits(chosen ...*Allocation) bool {
	if rs.state.ParkMiB == 0 || !slices.ContainsFunc(chosen, (*Allocation).parks) {
		return true
	}
	left, ofUser := rs.state.ParkMiB-rs.parkedMiB, map[string]int64{}
	for _, held := range chosen {
		if held.parks() {
			left -= held.Preempt.MemMiB
			most, bounded := rs.state.ParkOfMiB[held.User]
			if !bounded {
				continue
			}
			if ofUser[held.User] += held.Preempt.MemMiB; rs.parkedOfMiB[held.User]+ofUser[held.User] > most {
				return false
			}
		}
	}
	return left >= 0
}

// parks reports whether the job keeps its work when it is preempted.
func (h *Allocation) parks() bool { return h.Preempt.Mode == Park }
