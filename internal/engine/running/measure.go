package running

import (
	"fmt"
	"time"

	"berth/internal/engine/settings"
	"berth/internal/gpu"
	"berth/internal/job"
	"berth/internal/text"
)

// usageStepMiB is how much a peak must grow to be published again.
const usageStepMiB = 256

// GrownDelay bounds how long a grown peak stays in memory only.
const GrownDelay = 10 * time.Second

// Uses watches what running jobs use of their cards and CPUs.
type Uses struct {
	set        *Set
	cpu        cpuWatch
	Grown      map[string]struct{} // peaks to store with another commit
	GrownSince time.Time
}

// Compare takes in what jobs use: their peaks are shown, stored and published as
// they grow.
func (u *Uses) Compare(now time.Time) {
	for _, id := range u.set.IDs() {
		a := u.set.Active[id]
		if a.Job.Spec.Adopt != nil {
			if cards := len(u.set.Holdings.occupied(a.Job, nil).Cards); cards != a.occupies {
				a.occupies, u.set.cards.Bookings.Behind = cards, true
			}
		}
		card, peak := job.Highest(u.set.cards.Meter.Peak(id))
		if peak == 0 {
			continue
		}
		if peak >= a.shownMiB+usageStepMiB {
			a.shownMiB = peak
			u.set.changes.Show(now, job.EventUsage, a.Job, fmt.Sprintf("gpu%d:%d MiB", card, peak))
		}
		if peak >= a.StoredMiB+a.StoredMiB/10+1 {
			if len(u.Grown) == 0 {
				u.GrownSince = now
			}
			u.Grown[id] = struct{}{}
		}
		if budget := a.Job.Grant.BudgetMiB; budget > 0 && peak > max(budget, a.bookedMiB) {
			a.bookedMiB, u.set.cards.Bookings.Behind = peak, true // publish it to the other berths
		}
		if peak >= a.nearMiB+a.nearMiB/100+1 {
			a.nearMiB, a.grewAt = peak, now
		}
	}
}

// SaveGrown adds grown peaks to another commit, or makes one after some time.
func (u *Uses) SaveGrown(now time.Time, atOnce bool) {
	if len(u.Grown) == 0 || len(u.set.changes.Rows) == 0 && !atOnce && now.Sub(u.GrownSince) < GrownDelay {
		return
	}
	for id := range u.Grown {
		a := u.set.Active[id]
		u.set.measure(a.Job)
		_, a.StoredMiB = job.Highest(a.Job.PeakMiB)
		u.set.changes.Fact(a.Job)
	}
	clear(u.Grown)
}

// Measured copies the measurements of an attempt into its job.
func (u *Uses) Measured(a *Attempt) {
	j := a.Job
	u.set.measure(j)
	j.AvgUtil = nil
	if util, ok := u.set.cards.Meter.AvgUtil(j.ID); ok {
		j.AvgUtil = &util
	}
}

// IdleSince is since when a running job has left its cards unused, once that is
// long enough to be reported.
func (u *Uses) IdleSince(id string) (time.Time, bool) {
	a := u.set.Active[id]
	if a == nil || !a.IdleTold {
		return time.Time{}, false
	}
	return a.IdleSince, true
}

// WatchIdle records which jobs used their cards in the last sample, or any CPU time.
func (u *Uses) WatchIdle(now time.Time) {
	u.readCPUTimes(now)
	for _, id := range u.set.IDs() {
		a := u.set.Active[id]
		idle, what := u.idle(a)
		switch {
		case !idle:
			a.IdleSince, a.IdleTold = time.Time{}, false
			continue
		case a.IdleSince.IsZero() || a.IdleSince.After(now):
			a.IdleSince = now
		}
		span := now.Sub(a.IdleSince)
		if after := u.set.cfg.IdleAfter; after > 0 && span >= after && !a.IdleTold {
			a.IdleTold = true
			u.set.changes.Tell(now, job.EventIdle, a.Job, what+" for "+text.Brief(after))
		}
		if park := u.set.cfg.Parking.Idle; park > 0 && span >= park {
			u.set.Parking.parkIdle(now, a, what)
		}
		if cancel := u.set.cfg.IdleCancel; cancel > 0 && span >= cancel && a.Job.Stop == job.NoStop && a.Job.Spec.Adopt == nil {
			u.set.Stop(now, a.Job, job.StopCancel, a.Job.Spec.Grace, fmt.Sprintf("idle for %s: it %s; cancelled by the administrator's policy", text.Brief(cancel), what))
		}
	}
}

// idle reports whether a job leaves its cards, or its CPUs, unused while others
// cannot have them, and in words what it does. A job with a small part of a card is
// idle only if it holds memory there.
func (u *Uses) idle(a *Attempt) (idle bool, what string) {
	j := a.Job
	if a.withoutGPUs() {
		return a.idleOnCPUs()
	}
	card, heldMiB, unused := u.set.cards.Meter.Unused(j.ID, j.Grant.GPUs)
	switch {
	case !unused:
		return false, ""
	case heldMiB > gpu.IdleHoldMiB:
		return true, fmt.Sprintf("holds %d MiB on gpu%d and has not used it", heldMiB, card)
	case !keepsOthersOff(&j.Grant):
		return false, ""
	case len(j.Grant.GPUs) == 1:
		return true, fmt.Sprintf("holds gpu%d and has used neither its memory nor its cores", j.Grant.GPUs[0])
	}
	return true, fmt.Sprintf("holds %d GPUs and has used neither their memory nor their cores", len(j.Grant.GPUs))
}

// keepsOthersOff reports whether a job has at least half of each of its cards: no
// other like it fits there.
func keepsOthersOff(g *job.Grant) bool {
	return g.Alone || g.Exclusive || g.Share >= 0.5 || g.Share == 0 && 2*g.BudgetMiB >= g.CardMiB
}

// SettleAfter is how long the memory of a share must not have grown noticeably
// before it counts as measured.
const SettleAfter = 3 * time.Second

// Settle finds the shares that count as measured from now on.
func (u *Uses) Settle(now time.Time) (settled []*Attempt) {
	for _, a := range u.set.Active {
		if !a.Unmeasured {
			continue
		}
		still := a.nearMiB > 0 && now.Sub(a.grewAt) >= SettleAfter
		if still || now.Sub(a.StartedAt) >= settings.SettleAtMost {
			a.Unmeasured, u.set.cards.Moved = false, true
			settled = append(settled, a)
		}
	}
	return settled
}
