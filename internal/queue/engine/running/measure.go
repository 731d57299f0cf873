package running

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/machine/run"
	"berth/internal/queue/engine/settings"
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
	if u.set.Parked[j.ID] == a {
		return // they were copied when it was parked, and nothing was measured since
	}
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
		if !a.cpu.idle {
			return false, ""
		}
		return true, fmt.Sprintf("holds %s and has used almost no CPU time", text.Count(a.Job.ChargedCPUs(), "CPU"))
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

// A job without GPUs is idle if it uses next to no CPU time. That is read beside the
// loop, and rarely: the answer only has to be finer than the time after which
// something is done about it.
const (
	cpuInterval      = 30 * time.Second
	cpuIntervalLeast = time.Second
	cpuIdlePart      = 0.01 // of one CPU; sleeping and waiting take less, computing more
)

// cpuReading is the CPU times of jobs at one time, by the token of their supervisors.
type cpuReading struct {
	at   time.Time
	used map[string]time.Duration
}

// cpuWatch is the reading that is under way, if any.
type cpuWatch struct {
	begun time.Time
	next  chan cpuReading // nil: none
}

// cpuUse is what a job without GPUs did by the last readings.
type cpuUse struct {
	at   time.Time
	used time.Duration
	idle bool // it used next to nothing since the reading before
}

// readCPUTimes takes in the last reading, and begins the next one when it is due.
func (u *Uses) readCPUTimes(now time.Time) {
	if u.cpu.next != nil {
		select {
		case r := <-u.cpu.next:
			u.cpu.next = nil
			u.took(r)
		default:
			return
		}
	}
	interval := u.cpuInterval()
	if since := now.Sub(u.cpu.begun); interval == 0 || since >= 0 && since < interval {
		return
	}
	var jobs []run.Identity
	for _, a := range u.set.Active {
		if identity, ok := u.set.Runner.Identity(a.Token); ok && a.withoutGPUs() {
			jobs = append(jobs, identity)
		}
	}
	if len(jobs) == 0 {
		return
	}
	next, times := make(chan cpuReading, 1), u.set.cfg.CPUTimes
	u.cpu = cpuWatch{begun: now, next: next}
	go func() { next <- cpuReading{now, times(jobs)} }()
}

// cpuInterval is the time between readings; 0: nobody wants to know.
func (u *Uses) cpuInterval() time.Duration {
	interval := time.Duration(0)
	for _, after := range []time.Duration{u.set.cfg.IdleAfter, u.set.cfg.IdleCancel} {
		if after > 0 && (interval == 0 || after < interval) {
			interval = after
		}
	}
	if u.set.cfg.CPUTimes == nil || interval == 0 {
		return 0
	}
	return min(max(interval/4, cpuIntervalLeast), cpuInterval)
}

// took compares a reading with the one before. A job whose time could not be read is
// not idle.
func (u *Uses) took(r cpuReading) {
	for _, a := range u.set.Active {
		used, read := r.used[a.Token]
		before, span := a.cpu, r.at.Sub(a.cpu.at)
		switch {
		case !read:
			a.cpu = cpuUse{}
		case before.at.IsZero() || span <= 0:
			a.cpu = cpuUse{at: r.at, used: used}
		default:
			// Less than before means that a process ended: that is a use as well.
			more := (used - before.used).Abs()
			a.cpu = cpuUse{at: r.at, used: used, idle: more.Seconds() < cpuIdlePart*span.Seconds()}
		}
	}
}

// withoutGPUs reports whether the job holds only CPUs. An adopted process holds
// none of them.
func (a *Attempt) withoutGPUs() bool { return len(a.Job.Grant.GPUs) == 0 && a.Job.Spec.Adopt == nil }

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
