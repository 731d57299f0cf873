package engine

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"berth/internal/job"
	"berth/internal/text"
)

// Overuse is when a job that uses far more memory than it declared is ended.
type Overuse struct {
	Above float64       // by how much it must exceed the declaration, as a fraction of it
	After time.Duration // for how long; 0: no job is ended
}

// excess is memory beyond a job's declaration on one card.
type excess struct {
	card        int
	usedMiB     int64
	declaredMiB int64
	stray       bool // the card was not allocated to the job
}

func (e excess) String() string {
	if e.stray {
		return fmt.Sprintf("gpu%d:%d MiB used, not allocated to it", e.card, e.usedMiB)
	}
	return fmt.Sprintf("gpu%d:%d MiB used, %d MiB declared", e.card, e.usedMiB, e.declaredMiB)
}

// declaredOn is what a job declared to use on a card. A job with whole cards
// declares nothing there. On other cards it may use what counts as not using
// them.
func (s *attempts) declaredOn(j *job.Job, card int) (e excess, declares bool) {
	e.card = card
	switch {
	case !slices.Contains(j.Grant.GPUs, card):
		e.declaredMiB, e.stray = s.cfg.Rules.IdleThresholdMiB, true
		return e, j.Spec.Adopt == nil // an adopted process goes where it likes
	case j.VRAMMiB > 0:
		e.declaredMiB = j.VRAMMiB
	case j.Grant.Share > 0:
		e.declaredMiB = int64(j.Grant.Share * float64(s.cards.known[card].TotalMiB))
	}
	return e, e.declaredMiB > 0
}

// exceeds finds the card on which a job uses most beyond its declaration, by more
// than a fraction of it.
func (s *attempts) exceeds(j *job.Job, usedMiB map[int]int64, above float64) (worst excess, found bool) {
	for _, card := range slices.Sorted(maps.Keys(usedMiB)) {
		e, declares := s.declaredOn(j, card)
		e.usedMiB = usedMiB[card]
		if declares && float64(e.usedMiB) > float64(e.declaredMiB)*(1+above) &&
			(!found || e.usedMiB-e.declaredMiB > worst.usedMiB-worst.declaredMiB) {
			worst, found = e, true
		}
	}
	return worst, found
}

// watchOveruse reports a job that was seen to use more than it declared, once for
// each attempt, and ends one that uses far more now and has for long. The peak is
// for the report: a short one harms neighbours, but ends nothing.
func (s *attempts) watchOveruse(now time.Time) {
	for _, id := range s.ids() {
		a := s.active[id]
		if e, over := s.exceeds(a.job, s.cards.meter.Peak(id), s.cfg.Tolerance); over && a.exceeds == "" {
			a.exceeds = e.String()
			s.changes.tell(now, job.EventExceeds, a.job, a.exceeds)
		}
		usedMiB := s.cards.meter.Now(id)
		if usedMiB == nil {
			continue // not measured this time: that proves nothing
		}
		e, over := s.exceeds(a.job, usedMiB, s.cfg.Overuse.Above)
		switch {
		case !over:
			a.overSince = time.Time{}
			continue
		case a.overSince.IsZero() || a.overSince.After(now):
			a.overSince = now
		}
		after := s.cfg.Overuse.After
		if after > 0 && now.Sub(a.overSince) >= after && a.job.Stop == job.NoStop && a.job.Spec.Adopt == nil {
			s.stop(now, a.job, job.StopOveruse, a.job.Spec.Grace, fmt.Sprintf("%s, for %s; ended by the administrator's policy", e, text.Brief(after)))
		}
	}
}
