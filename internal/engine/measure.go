package engine

import (
	"fmt"
	"time"

	"berth/internal/gpu"
	"berth/internal/job"
	"berth/internal/text"
)

// usageStepMiB is how much a peak must grow to be published again.
const usageStepMiB = 256

// grownDelay bounds how long a grown peak stays in memory only.
const grownDelay = 10 * time.Second

// DefaultIdleAfter is the default time without use after which a job is
// reported.
const DefaultIdleAfter = 30 * time.Minute

// compare takes in what jobs use: their peaks are shown, stored and published as
// they grow.
func (s *attempts) compare(now time.Time) {
	for _, id := range s.ids() {
		a := s.active[id]
		if a.job.Spec.Adopt != nil {
			if cards := len(s.occupied(a.job, nil).Cards); cards != a.occupies {
				a.occupies, s.cards.behind = cards, true
			}
		}
		card, peak := highest(s.cards.meter.Peak(id))
		if peak == 0 {
			continue
		}
		if peak >= a.shownMiB+usageStepMiB {
			a.shownMiB = peak
			s.changes.show(now, job.EventUsage, a.job, fmt.Sprintf("gpu%d:%d MiB", card, peak))
		}
		if peak >= a.storedMiB+a.storedMiB/10+1 {
			if len(s.grown) == 0 {
				s.grownSince = now
			}
			s.grown[id] = struct{}{}
		}
		if budget := a.job.Grant.BudgetMiB; budget > 0 && peak > max(budget, a.bookedMiB) {
			a.bookedMiB, s.cards.behind = peak, true // publish it to the other berths
		}
		if peak >= a.nearMiB+a.nearMiB/100+1 {
			a.nearMiB, a.grewAt = peak, now
		}
	}
}

func highest(peaks map[int]int64) (card int, mib int64) {
	card = -1
	for c, m := range peaks {
		if m > mib || (m == mib && c < card) {
			card, mib = c, m
		}
	}
	return card, mib
}

// saveGrown adds grown peaks to another commit, or makes one after some time.
func (s *attempts) saveGrown(now time.Time, atOnce bool) {
	if len(s.grown) == 0 || len(s.changes.rows) == 0 && !atOnce && now.Sub(s.grownSince) < grownDelay {
		return
	}
	for id := range s.grown {
		a := s.active[id]
		s.measure(a.job)
		_, a.storedMiB = highest(a.job.PeakMiB)
		s.changes.fact(a.job)
	}
	clear(s.grown)
}

// measured copies the measurements of an attempt into its job.
func (s *attempts) measured(a *attempt) {
	j := a.job
	if s.parked[j.ID] == a {
		return // they were copied when it was parked, and nothing was measured since
	}
	s.measure(j)
	j.AvgUtil = nil
	if util, ok := s.cards.meter.AvgUtil(j.ID); ok {
		j.AvgUtil = &util
	}
}

// IdleSince is since when a running job has left its cards unused, once that is
// long enough to be reported.
func (s *attempts) IdleSince(id string) (time.Time, bool) {
	a := s.active[id]
	if a == nil || !a.idleTold {
		return time.Time{}, false
	}
	return a.idleSince, true
}

// watchIdle records which jobs used their cards in the last sample, or any CPU time.
func (s *attempts) watchIdle(now time.Time) {
	s.readCPUTimes(now)
	for _, id := range s.ids() {
		a := s.active[id]
		idle, what := s.idle(a)
		switch {
		case !idle:
			a.idleSince, a.idleTold = time.Time{}, false
			continue
		case a.idleSince.IsZero() || a.idleSince.After(now):
			a.idleSince = now
		}
		span := now.Sub(a.idleSince)
		if after := s.cfg.IdleAfter; after > 0 && span >= after && !a.idleTold {
			a.idleTold = true
			s.changes.tell(now, job.EventIdle, a.job, what+" for "+text.Brief(after))
		}
		if park := s.cfg.Parking.Idle; park > 0 && span >= park {
			s.parkIdle(now, a, what)
		}
		if cancel := s.cfg.IdleCancel; cancel > 0 && span >= cancel && a.job.Stop == job.NoStop && a.job.Spec.Adopt == nil {
			s.stop(now, a.job, job.StopCancel, a.job.Spec.Grace, fmt.Sprintf("idle for %s: it %s; cancelled by the administrator's policy", text.Brief(cancel), what))
		}
	}
}

// idle reports whether a job leaves its cards, or its CPUs, unused while others
// cannot have them, and in words what it does. A job with a small part of a card is
// idle only if it holds memory there.
func (s *attempts) idle(a *attempt) (idle bool, what string) {
	j := a.job
	if a.withoutGPUs() {
		return a.idleOnCPUs()
	}
	card, heldMiB, unused := s.cards.meter.Unused(j.ID, j.Grant.GPUs)
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
