package engine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/internal/gpu"
	"berth/internal/job"
	"berth/internal/run"
	"berth/internal/sched"
)

// usageStepMiB is how much a peak must grow before it is shown again.
const usageStepMiB = 256

// Observe takes in one look at the cards, or the failure to get one. A failed
// look starts nothing and ends nothing.
func (e *Engine) Observe(now time.Time, s gpu.Sample, err error) {
	e.now, e.moved = now, true
	if e.asked || e.busyAt.IsZero() || !e.quiet() {
		e.busyAt = now
	}
	e.asked = false
	first := e.cards.at.IsZero()
	s.Xids = e.heard(s.Xids, err)
	if err != nil {
		e.cards.err, e.cards.failed = err, now
		e.heed(e.health.Failed(now, s))
		if !e.cards.told {
			e.cards.told = true
			e.tell(job.EventGPUsLost, nil, err.Error())
		}
		return
	}
	if e.cards.told {
		e.cards.told = false
		e.tell(job.EventGPUsFound, nil, "")
	}
	if trouble := strings.Join(s.Problems, "; "); trouble != e.cards.trouble {
		e.cards.trouble = trouble
		if trouble != "" {
			e.show(job.EventWarning, nil, trouble)
			e.cfg.Log.Warn("reading the cards", "problem", trouble)
		}
	}
	s.Devices = slices.DeleteFunc(slices.Clone(s.Devices), func(d gpu.Device) bool { return !e.cards.wanted(d.Index) })
	e.cards.take(now, s, e.inUse)
	e.heed(e.health.Observe(now, s, e.cards.expected()))
	if first || e.queue.Len() == 0 {
		e.glanceAtOthers()
	}
	for _, use := range e.meter.Observe(s, e.holdings(), e.owners.Owner) {
		e.cards.use[use.Index] = use
	}
	e.compare()
	e.checkLeft()
	e.watchIdle()
}

// maxEarly bounds what is kept of what was said before any card was read.
const maxEarly = 256

// heard keeps what is said about cards until there are any that it could be
// about: the kernel's log speaks of what happened before berth began.
func (e *Engine) heard(xids []gpu.Xid, err error) []gpu.Xid {
	if !e.cards.at.IsZero() {
		return xids
	}
	e.early = append(slices.Clone(e.early), xids...)
	e.early = e.early[max(0, len(e.early)-maxEarly):]
	if err != nil {
		return nil
	}
	all := e.early
	e.early = nil
	return all
}

// inUse is true of a card that a job holds.
func (e *Engine) inUse(index int) bool {
	for _, a := range e.active {
		if slices.Contains(a.job.Grant.GPUs, index) {
			return true
		}
	}
	return false
}

// compare holds what jobs use against what they declared.
func (e *Engine) compare() {
	for _, id := range e.activeIDs() {
		a := e.active[id]
		card, peak := highest(e.meter.Peak(id))
		if peak == 0 {
			continue
		}
		if peak >= a.shownMiB+usageStepMiB {
			a.shownMiB = peak
			e.show(job.EventUsage, a.job, fmt.Sprintf("gpu%d:%d MiB", card, peak))
		}
		if peak >= a.storedMiB+a.storedMiB/10+1 {
			if len(e.lazyDirty) == 0 {
				e.lazySince = e.now
			}
			e.lazyDirty[id] = struct{}{}
		}
		if budget := a.job.Grant.BudgetMiB; budget > 0 && peak > max(budget, a.bookedMiB) {
			a.bookedMiB, e.unbooked = peak, true // the other berths must know
		}
		declared := a.job.VRAMMiB
		if peak >= a.nearMiB+a.nearMiB/100+1 {
			a.nearMiB, a.grewAt = peak, e.now
		}
		if declared > 0 && !a.warned && float64(peak) > float64(declared)*(1+e.cfg.Tolerance) {
			a.warned = true
			e.tell(job.EventExceeds, a.job, fmt.Sprintf("gpu%d:%d MiB used, %d MiB declared", card, peak, declared))
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

func (e *Engine) activeIDs() []string {
	ids := make([]string, 0, len(e.active))
	for id := range e.active {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// holdings is who is on which card, ours and other berths', for the meter.
func (e *Engine) holdings() []gpu.Holding {
	list := make([]gpu.Holding, 0, len(e.active)+len(e.others))
	for _, h := range e.held() {
		list = append(list, gpu.Holding{Key: h.Job, Cards: h.Cards, BudgetMiB: h.BudgetMiB})
	}
	return list
}

// held is the same for placement: budgets escalate here, once a job was seen
// to use more than it declared.
func (e *Engine) held() []sched.Held {
	list := make([]sched.Held, 0, len(e.active)+len(e.others))
	cards := e.cards.list()
	for _, a := range e.active {
		h := e.hold(a.job, cards)
		e.stands(a, &h)
		list = append(list, h)
	}
	for _, entry := range e.others {
		peaks := e.meter.Peak(entry.Key)
		h := sched.Held{Job: entry.Key, Share: entry.Share, Alone: entry.Alone, Exclusive: entry.Exclusive, Other: true}
		for i, uuid := range entry.UUIDs {
			if index, ok := e.cards.byUUID(uuid); ok {
				h.Cards = append(h.Cards, index)
				h.BudgetMiB = append(h.BudgetMiB, sched.Budget(entry.BudgetMiB[i], peaks[index], e.cfg.Rules.SpikeBuffer))
			}
		}
		if len(h.Cards) > 0 {
			list = append(list, h)
		}
	}
	return list
}

// hold is one job of ours on its cards, with what was measured of it so far.
func (e *Engine) hold(j *job.Job, cards []sched.Card) sched.Held {
	measured := *j
	measured.PeakMiB = e.meter.Peak(j.ID)
	return sched.Hold(&measured, e.cfg.Rules, cards)
}

// setOwners tells attribution which supervisors and sessions are whose.
func (e *Engine) setOwners() {
	holders := make([]run.Holder, 0, len(e.active)+len(e.others))
	for id, a := range e.active {
		identity, _ := e.runner.Identity(a.token)
		holder := run.Holder{
			Key: id, KeepPID: identity.KeepPID, Session: identity.Session, Cgroup: identity.Cgroup, Token: a.token, UID: a.job.UID,
		}
		if p := a.job.Spec.Adopt; p != nil {
			holder.Root = *p
		}
		holders = append(holders, holder)
	}
	for _, entry := range e.others {
		holders = append(holders, run.Holder{Key: entry.Key, KeepPID: entry.HolderPID})
	}
	e.owners.Set(holders)
}

// NeedsSample says whether the next decision wants a newer look at the cards.
// A look older than the end of a job would show memory that is free again,
// or worse, miss memory that is not.
func (e *Engine) NeedsSample(now time.Time) bool {
	if e.asked {
		return true
	}
	if !now.Before(e.sampleDue()) {
		return true
	}
	return e.queue.Len() > 0 && !e.stopping && e.cards.err == nil && e.cards.wantsLook(now, e.freshFor())
}

// Shows reports whether the last look is young enough to be shown, and no
// older than the end of a job.
func (e *Engine) Shows(now time.Time, youngest time.Duration) bool {
	return e.cards.err == nil && !e.cards.wantsLook(now, youngest)
}

// Look asks for a newer look at the cards than there is. With nothing to do
// nobody else would.
func (e *Engine) Look() { e.asked = true }

// Ready says whether the last look at the cards is new enough to place jobs by.
func (e *Engine) Ready(now time.Time) bool { return !e.cards.wantsLook(now, e.freshFor()) }

// freshFor is how long a look may start jobs after it came in.
func (e *Engine) freshFor() time.Duration { return max(e.cfg.Poll, time.Second) }

// A job that has just started is watched closely: that is when memory is
// taken, and short peaks happen. So is one that comes near its declaration, for
// as long as it grows.
const (
	closeWatch    = 10 * time.Second
	closeInterval = 100 * time.Millisecond
	nearShare     = 0.9 // of a declaration: from there on a peak matters
)

// With nothing to do the cards are looked at now and then all the same: one
// that fails is found out before a job is due there. When nobody has had any
// use for them for long they are left alone but for a glance, so that the
// driver is let go of: an open one is in the way of resets, and keeps cards
// without persistence awake.
const (
	restInterval     = 5 * time.Second
	restIntervalSlow = 30 * time.Second // where a look costs something
	restAfter        = 10 * time.Minute
	restGlance       = 6 * time.Hour
)

// troubleInterval is how often cards are looked at while something is wrong
// with one, so that it is known soon what, and when it is over.
const troubleInterval = time.Second

// closely is true of a job that has just started on a card, or that is near
// what it declared and still growing.
func (a *attempt) closely(now time.Time) bool {
	if len(a.job.Grant.GPUs) == 0 {
		return false
	}
	if now.Sub(a.startedAt) < closeWatch {
		return true
	}
	declaredMiB := a.job.VRAMMiB
	return declaredMiB > 0 && float64(a.nearMiB) >= nearShare*float64(declaredMiB) && now.Sub(a.grewAt) < closeWatch
}

// sampleInterval is how long a look serves.
func (e *Engine) sampleInterval() time.Duration {
	cheap := e.source != nil && e.source.Cheap()
	leaving, trouble := e.leavingNow(), e.inTrouble()
	idle := len(e.active) == 0 && e.queue.Len() == 0
	switch {
	case e.Resting():
		return restGlance
	case idle && !leaving && !trouble && !cheap:
		return max(e.cfg.Poll, restIntervalSlow)
	case idle && (trouble && !cheap || !trouble && !leaving):
		return max(e.cfg.Poll, restInterval)
	case !cheap:
		return e.cfg.Poll
	}
	for _, a := range e.active {
		if a.closely(e.now) {
			return min(e.cfg.Poll, closeInterval)
		}
	}
	switch {
	case leaving && e.queue.Len() > 0:
		return min(e.cfg.Poll, closeInterval)
	case trouble:
		return min(e.cfg.Poll, troubleInterval)
	}
	return e.cfg.Poll
}

// leavingNow is true while the memory of a job may still become free. What is
// not free by then is trouble, and a card that is gone never shows it.
func (e *Engine) leavingNow() bool { return e.meter.Leaving(e.now.Add(-leftPatience)) }

// inTrouble is true while there is something to find out about a card.
func (e *Engine) inTrouble() bool { return e.cards.err != nil || !e.health.Settled() }

// quiet is true while there is nothing to look at the cards for.
func (e *Engine) quiet() bool {
	return len(e.active) == 0 && e.queue.Len() == 0 && !e.leavingNow() && !e.inTrouble()
}

// Resting reports whether the cards are left alone, as nobody has had any use
// for them for long. The first look after that may take the driver a moment.
func (e *Engine) Resting() bool {
	return e.cfg.Rest && e.quiet() && e.cards.arrived.Sub(e.busyAt) >= restAfter
}

func (e *Engine) sampleDue() time.Time {
	interval := e.sampleInterval()
	last := e.cards.arrived
	if e.cards.err != nil {
		last = e.cards.failed
	}
	return last.Add(interval)
}
