package sched

import (
	"slices"
	"time"
)

// outranks reports whether a running job can be preempted for a waiting one, once
// it has run for long enough. Jobs that lose their work are preempted only for a
// higher priority: otherwise two jobs longer than the overtake limit would end each
// other for ever.
func (d *decision) outranks(h *head, held *Held, u urgency) bool {
	if held.Preempt.Mode == "" || held.Other || d.leaving[held] || !d.parkingFits(held) {
		return false
	}
	rules, now := &d.state.Rules, d.state.Now
	switch {
	case now.Before(held.protectedUntil(rules)):
		return false
	case u != ordinary && held.parks():
		return true
	case h.priority != held.Priority:
		return h.priority > held.Priority
	case !held.parks() || !rules.slices() && rules.Policy != LAS:
		return false
	}
	class, _ := held.class(rules, now)
	if h.entry.service == class && class == classLong && rules.slices() {
		return h.rank < held.Rank || h.rank == held.Rank && h.seq < held.Seq
	}
	return h.entry.service < class
}

// protectedUntil is how long a job that was overdue when it started cannot be
// preempted.
func (h *Held) protectedUntil(r *Rules) time.Time {
	if r.MaxBypass <= 0 || h.Waited < r.MaxBypass {
		return time.Time{}
	}
	return h.Started.Add(boostLeast)
}

// mayLeave is when a running job can be preempted for the waiting one.
func (d *decision) mayLeave(held *Held, h *head) time.Time {
	return held.Started.Add(held.minRun(&d.state.Rules, fairWeight(h.countedGPUs(), h.cpus)))
}

// parkingFits reports whether the host has memory for all jobs to be parked.
// ParkMiB no longer includes those of earlier plans.
func (d *decision) parkingFits(chosen ...*Held) bool {
	if d.state.ParkMiB == 0 || !slices.ContainsFunc(chosen, (*Held).parks) {
		return true
	}
	left := d.state.ParkMiB
	for _, held := range d.running {
		if held.parks() && (d.leaving[held] && !held.Leaving || slices.Contains(chosen, held)) {
			left -= held.Preempt.MemMiB
		}
	}
	return left >= 0
}

// parks reports whether the job keeps its work when it is preempted.
func (h *Held) parks() bool { return h.Preempt.Mode == Park }
