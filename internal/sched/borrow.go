package sched

import (
	"slices"

	"berth/internal/job/reason"
)

// Borrowed are the running jobs that are beyond their users' shares.
func Borrowed(s State) (list []*Allocation) {
	d := newDecision(&s)
	for _, h := range d.running.list {
		if d.running.borrowed(h) {
			list = append(list, h)
		}
	}
	return list
}

// hasShares reports whether some user has a share of the GPUs.
func (s *State) hasShares() bool {
	has := s.DefaultLimit.Share > 0
	for _, limit := range s.Limits {
		has = has || limit.Share > 0
	}
	return has
}

// beyondShare reports that the job would be borrowed. An overdue job may be that
// could never run within the share: otherwise it might wait for ever.
func (d *decision) beyondShare(h *head, a *account, u urgency) bool {
	if !d.running.shares || u != ordinary && h.countedGPUs() > a.limit.Share+limitTolerance {
		return false
	}
	return a.beyondShare(h.class, &h.amounts)
}

// notYet reports that the job is considered with those that would be borrowed, and
// they are not; or the other way round. While somebody below their share waits for
// a card that it might get, it is not considered at all.
func (d *decision) notYet(h *head, a *account, u urgency) bool {
	if !d.running.lending {
		return d.beyondShare(h, a, u)
	}
	return !d.beyondShare(h, a, u) || d.waitsFor(h) != ""
}

// borrows is beyondShare for a job in its ordinary turn.
func (d *decision) borrows(m *member) bool {
	h := m.class.head(m.entry)
	return d.beyondShare(&h, d.account(m), ordinary)
}

// mayLend begins with those that would be borrowed, unless nothing can start or the
// job `until` is not one of them.
func (d *decision) mayLend(until *member) bool {
	if !d.running.shares || d.blocker != nil || d.full() || until != nil && !d.borrows(until) {
		return false
	}
	d.running.lending = true
	d.walk.restart()
	d.walk.passes = d.closed.has
	return true
}

// want notes that a job within its user's share waits, and for which cards. One for
// which nothing can be done any more needs no note: the job of its family that showed
// this has one, or waits for something else than room.
func (d *decision) want(h *head, a *account) {
	if !d.running.shares || d.running.lending || h.gpus == 0 {
		return
	}
	o := d.outlook(h)
	if o.waits || d.limits.hold(h.class, &h.amounts, a) || !d.fitsOn(d.withoutJobs(), h, reservedNone) {
		return
	}
	if o.waits = true; d.wanted == nil {
		d.wanted = make([]string, len(d.now.slots))
	}
	for _, place := range o.candidates.places {
		if d.wanted[place] == "" {
			d.wanted[place] = h.job
		}
	}
}

// waitsFor is a job within its user's share that waits for a card which this one
// might get.
func (d *decision) waitsFor(h *head) string {
	if d.wanted != nil {
		for _, place := range d.outlook(h).candidates.places {
			if d.wanted[place] != "" {
				return d.wanted[place]
			}
		}
	}
	return ""
}

// whyNotLent says whose job goes before one that would be borrowed.
func (d *decision) whyNotLent(h *head, a *account) reason.Reason {
	return reason.Reason{
		Kind: reason.WaitsForShare, User: a.user, Own: a.own, Job: d.waitsFor(h),
		HeldGPUs: a.use.GPUs + a.use.Unmeasured, MoreGPUs: a.adds(h.class, &h.amounts), LimitGPUs: a.limit.Share, LimitIsShare: true,
	}
}

// done notes that the job has its cards: it is not considered again.
func (d *decision) done(h *head) {
	if d.running.shares {
		d.seen[h.job] = true
	}
}

// borrowed reports that the running job is beyond its user's share. Jobs that cannot
// give way fill the share first, then those that would lose most by it.
func (rs *runningJobs) borrowed(held *Allocation) bool {
	if !rs.shares {
		return false
	}
	if rs.lent == nil {
		rs.lent = map[*Allocation]bool{}
		within := map[string]float64{}
		for _, givesWay := range []bool{false, true} {
			for _, h := range slices.Backward(rs.leastLoss()) {
				limit, _ := rs.state.limitOf(h.User)
				if limit.Share <= 0 || h.Other || h.BeingPreempted || (h.Preempt.Mode != "") != givesWay {
					continue
				}
				if all := within[h.User] + h.CountedGPUs(); all > limit.Share+limitTolerance {
					rs.lent[h] = true
				} else {
					within[h.User] = all
				}
			}
		}
	}
	return rs.lent[held]
}
