package running

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"berth/internal/job"
	"berth/internal/text"
)

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
func (u *Uses) declaredOn(j *job.Job, card int) (e excess, declares bool) {
	e.card = card
	switch {
	case !slices.Contains(j.Grant.GPUs, card):
		e.declaredMiB, e.stray = u.set.cfg.Rules.IdleThresholdMiB, true
		return e, j.Spec.Adopt == nil // an adopted process goes where it likes
	case j.VRAMMiB > 0:
		e.declaredMiB = j.VRAMMiB
	case j.Grant.Share > 0:
		e.declaredMiB = int64(j.Grant.Share * float64(u.set.cards.Book.Known[card].TotalMiB))
	}
	return e, e.declaredMiB > 0
}

// exceeds finds the card on which a job uses most beyond its declaration, by more
// than a fraction of it.
func (u *Uses) exceeds(j *job.Job, usedMiB map[int]int64, above float64) (worst excess, found bool) {
	for _, card := range slices.Sorted(maps.Keys(usedMiB)) {
		e, declares := u.declaredOn(j, card)
		e.usedMiB = usedMiB[card]
		if declares && float64(e.usedMiB) > float64(e.declaredMiB)*(1+above) &&
			(!found || e.usedMiB-e.declaredMiB > worst.usedMiB-worst.declaredMiB) {
			worst, found = e, true
		}
	}
	return worst, found
}

// WatchOveruse reports a job that was seen to use more than it declared, once for
// each attempt, and ends one that uses far more now and has for long. The peak is
// for the report: a short one harms neighbours, but ends nothing. It returns the
// jobs that it reported.
func (u *Uses) WatchOveruse(now time.Time, harms func(*Attempt) bool) (reported []*Attempt) {
	for _, id := range u.set.IDs() {
		a := u.set.Active[id]
		if e, over := u.exceeds(a.Job, u.set.cards.Meter.Peak(id), u.set.cfg.Tolerance); over && a.exceeds == "" {
			a.exceeds = e.String()
			u.set.changes.Tell(now, job.EventExceeds, a.Job, a.exceeds)
			reported = append(reported, a)
		}
		usedMiB := u.set.cards.Meter.Now(id)
		if usedMiB == nil {
			continue // not measured this time: that proves nothing
		}
		e, over := u.exceeds(a.Job, usedMiB, u.set.cfg.Overuse.Above)
		switch {
		case !over || u.set.cfg.Overuse.Harmful && u.set.cfg.Overuse.After > 0 && !harms(a):
			a.overSince, a.overTold = time.Time{}, false
			continue
		case a.overSince.IsZero() || a.overSince.After(now):
			a.overSince = now
		}
		u.endOveruse(now, a, e)
	}
	return reported
}

// endOveruse ends a job that has used far too much for long enough. Halfway, its
// user is told.
func (u *Uses) endOveruse(now time.Time, a *Attempt, e excess) {
	after, spent := u.set.cfg.Overuse.After, now.Sub(a.overSince)
	switch {
	case after <= 0 || a.Job.Stop != job.NoStop || a.Job.Spec.Adopt != nil:
	case spent >= after:
		u.set.Stop(now, a.Job, job.StopOveruse, a.Job.Spec.Grace, fmt.Sprintf("%s, for %s; ended by the administrator's policy", e, text.Brief(after)))
	case spent >= after/2 && !a.overTold:
		a.overTold = true
		u.set.changes.Tell(now, job.EventOveruse, a.Job, fmt.Sprintf("%s; %s", e, u.EndsForOveruse(a.Job.ID)))
	}
}

// EndsForOveruse says when a running job will be ended for using far more memory
// than it declared; empty: it will not.
func (u *Uses) EndsForOveruse(id string) string {
	a := u.set.Active[id]
	if a == nil || a.overSince.IsZero() || u.set.cfg.Overuse.After <= 0 || a.Job.Stop != job.NoStop || a.Job.Spec.Adopt != nil {
		return ""
	}
	until := ""
	if u.set.cfg.Overuse.Harmful {
		until = ", or nobody suffers from it any more"
	}
	return fmt.Sprintf("it will be ended at %s unless it goes back to what it declared%s", a.overSince.Add(u.set.cfg.Overuse.After).Local().Format(time.DateTime), until)
}
