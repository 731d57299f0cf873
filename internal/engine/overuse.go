package engine

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"berth/internal/job"
	"berth/internal/sched"
	"berth/internal/text"
)

// Overuse is when a job that uses far more memory than it declared is ended.
type Overuse struct {
	Above float64       // by how much it must exceed the declaration, as a fraction of it
	After time.Duration // for how long; 0: no job is ended
	// Harmful means that only the time counts during which others suffer: the user is
	// over the limit on GPUs, or somebody else's job waits for room on the job's GPUs.
	Harmful bool
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
func (u *uses) declaredOn(j *job.Job, card int) (e excess, declares bool) {
	e.card = card
	switch {
	case !slices.Contains(j.Grant.GPUs, card):
		e.declaredMiB, e.stray = u.set.cfg.Rules.IdleThresholdMiB, true
		return e, j.Spec.Adopt == nil // an adopted process goes where it likes
	case j.VRAMMiB > 0:
		e.declaredMiB = j.VRAMMiB
	case j.Grant.Share > 0:
		e.declaredMiB = int64(j.Grant.Share * float64(u.set.cards.book.known[card].TotalMiB))
	}
	return e, e.declaredMiB > 0
}

// exceeds finds the card on which a job uses most beyond its declaration, by more
// than a fraction of it.
func (u *uses) exceeds(j *job.Job, usedMiB map[int]int64, above float64) (worst excess, found bool) {
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

// watchOveruse reports a job that was seen to use more than it declared, once for
// each attempt, and ends one that uses far more now and has for long. The peak is
// for the report: a short one harms neighbours, but ends nothing. It returns the
// jobs that it reported.
func (u *uses) watchOveruse(now time.Time, harms func(*attempt) bool) (reported []*attempt) {
	for _, id := range u.set.ids() {
		a := u.set.active[id]
		if e, over := u.exceeds(a.job, u.set.cards.meter.Peak(id), u.set.cfg.Tolerance); over && a.exceeds == "" {
			a.exceeds = e.String()
			u.set.changes.tell(now, job.EventExceeds, a.job, a.exceeds)
			reported = append(reported, a)
		}
		usedMiB := u.set.cards.meter.Now(id)
		if usedMiB == nil {
			continue // not measured this time: that proves nothing
		}
		e, over := u.exceeds(a.job, usedMiB, u.set.cfg.Overuse.Above)
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
func (u *uses) endOveruse(now time.Time, a *attempt, e excess) {
	after, spent := u.set.cfg.Overuse.After, now.Sub(a.overSince)
	switch {
	case after <= 0 || a.job.Stop != job.NoStop || a.job.Spec.Adopt != nil:
	case spent >= after:
		u.set.stop(now, a.job, job.StopOveruse, a.job.Spec.Grace, fmt.Sprintf("%s, for %s; ended by the administrator's policy", e, text.Brief(after)))
	case spent >= after/2 && !a.overTold:
		a.overTold = true
		u.set.changes.tell(now, job.EventOveruse, a.job, fmt.Sprintf("%s; %s", e, u.EndsForOveruse(a.job.ID)))
	}
}

// EndsForOveruse says when a running job will be ended for using far more memory
// than it declared; empty: it will not.
func (u *uses) EndsForOveruse(id string) string {
	a := u.set.active[id]
	if a == nil || a.overSince.IsZero() || u.set.cfg.Overuse.After <= 0 || a.job.Stop != job.NoStop || a.job.Spec.Adopt != nil {
		return ""
	}
	until := ""
	if u.set.cfg.Overuse.Harmful {
		until = ", or nobody suffers from it any more"
	}
	return fmt.Sprintf("it will be ended at %s unless it goes back to what it declared%s", a.overSince.Add(u.set.cfg.Overuse.After).Local().Format(time.DateTime), until)
}

// harms reports whether others suffer from what a job takes. What that depends on is
// worked out when it is asked for the first time.
func (t *Turn) harms() func(*attempt) bool {
	var state *sched.State
	var contended map[int]sched.Contenders
	return func(a *attempt) bool {
		if state == nil {
			s := t.State()
			state, contended = &s, sched.Contended(s)
		}
		if limit := t.cfg.Limits.of(a.job.User).GPUs; limit > 0 && state.InUse[a.job.User].GPUs > limit+overTolerance {
			return true
		}
		for card, usedMiB := range t.cards.meter.Now(a.job.ID) {
			if usedMiB > 0 && contended[card].Besides(a.job.User) {
				return true
			}
		}
		return false
	}
}

// overTolerance keeps the last bit of a sum from putting a user over a limit.
const overTolerance = 1e-6
