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

// observe takes in one look at the cards, or the failure to get one. A failed
// look starts nothing and ends nothing.
func (t *Turn) observe(s gpu.Sample, err error) {
	t.moved = true
	if t.asked || t.busyAt.IsZero() || !t.quiet() {
		t.busyAt = t.Now
	}
	t.asked = false
	first := t.cards.at.IsZero()
	s.Xids = t.heard(s.Xids, err)
	if err != nil {
		t.cards.err, t.cards.failed = err, t.Now
		t.heed(t.health.Failed(t.Now, s))
		if !t.cards.told {
			t.cards.told = true
			t.tell(job.EventGPUsLost, nil, err.Error())
		}
		return
	}
	if t.cards.told {
		t.cards.told = false
		t.tell(job.EventGPUsFound, nil, "")
	}
	if trouble := strings.Join(s.Problems, "; "); trouble != t.cards.trouble {
		t.cards.trouble = trouble
		if trouble != "" {
			t.show(job.EventWarning, nil, trouble)
			t.cfg.Log.Warn("reading the cards", "problem", trouble)
		}
	}
	s.Devices = slices.DeleteFunc(slices.Clone(s.Devices), func(d gpu.Device) bool { return !t.cards.wanted(d.Index) })
	t.cards.take(t.Now, s, t.inUse)
	t.heed(t.health.Observe(t.Now, s, t.cards.expected()))
	if first || t.queue.Len() == 0 {
		t.glanceAtOthers()
	}
	for _, use := range t.meter.Observe(s, t.holdings(), t.owners.Owner) {
		t.cards.use[use.Index] = use
	}
	t.compare()
	t.checkLeft()
	t.watchIdle()
}

// maxEarly bounds what is kept of what was said before any card was read.
const maxEarly = 256

// heard keeps what is said about cards until there are any that it could be
// about: the kernel's log speaks of what happened before berth began.
func (t *Turn) heard(xids []gpu.Xid, err error) []gpu.Xid {
	if !t.cards.at.IsZero() {
		return xids
	}
	t.early = append(slices.Clone(t.early), xids...)
	t.early = t.early[max(0, len(t.early)-maxEarly):]
	if err != nil {
		return nil
	}
	all := t.early
	t.early = nil
	return all
}

// inUse is true of a card that a job holds.
func (t *Turn) inUse(index int) bool {
	for _, a := range t.active {
		if slices.Contains(a.job.Grant.GPUs, index) {
			return true
		}
	}
	return false
}

// compare holds what jobs use against what they declared.
func (t *Turn) compare() {
	for _, id := range t.activeIDs() {
		a := t.active[id]
		card, peak := highest(t.meter.Peak(id))
		if peak == 0 {
			continue
		}
		if peak >= a.shownMiB+usageStepMiB {
			a.shownMiB = peak
			t.show(job.EventUsage, a.job, fmt.Sprintf("gpu%d:%d MiB", card, peak))
		}
		if peak >= a.storedMiB+a.storedMiB/10+1 {
			if len(t.lazyDirty) == 0 {
				t.lazySince = t.Now
			}
			t.lazyDirty[id] = struct{}{}
		}
		if budget := a.job.Grant.BudgetMiB; budget > 0 && peak > max(budget, a.bookedMiB) {
			a.bookedMiB, t.unbooked = peak, true // the other berths must know
		}
		declared := a.job.VRAMMiB
		if peak >= a.nearMiB+a.nearMiB/100+1 {
			a.nearMiB, a.grewAt = peak, t.Now
		}
		if declared > 0 && !a.warned && float64(peak) > float64(declared)*(1+t.cfg.Tolerance) {
			a.warned = true
			t.tell(job.EventExceeds, a.job, fmt.Sprintf("gpu%d:%d MiB used, %d MiB declared", card, peak, declared))
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

func (t *Turn) activeIDs() []string {
	ids := make([]string, 0, len(t.active))
	for id := range t.active {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// holdings is who is on which card, ours and other berths', for the meter.
func (t *Turn) holdings() []gpu.Holding {
	list := make([]gpu.Holding, 0, len(t.active)+len(t.others))
	for _, h := range t.held() {
		list = append(list, gpu.Holding{Key: h.Job, Cards: h.Cards, BudgetMiB: h.BudgetMiB})
	}
	return list
}

// held is the same for placement: budgets escalate here, once a job was seen
// to use more than it declared.
func (t *Turn) held() []sched.Held {
	list := make([]sched.Held, 0, len(t.active)+len(t.others))
	cards := t.cards.list()
	for _, a := range t.active {
		h := t.hold(a.job, cards)
		t.stands(a, &h)
		list = append(list, h)
	}
	for _, entry := range t.others {
		peaks := t.meter.Peak(entry.Key)
		h := sched.Held{Job: entry.Key, Share: entry.Share, Alone: entry.Alone, Exclusive: entry.Exclusive, Other: true}
		for i, uuid := range entry.UUIDs {
			if index, ok := t.cards.byUUID(uuid); ok {
				h.Cards = append(h.Cards, index)
				h.BudgetMiB = append(h.BudgetMiB, sched.Budget(entry.BudgetMiB[i], peaks[index], t.cfg.Rules.SpikeBuffer))
			}
		}
		if len(h.Cards) > 0 {
			list = append(list, h)
		}
	}
	return list
}

// hold is one job of ours on its cards, with what was measured of it so far.
func (t *Turn) hold(j *job.Job, cards []sched.Card) sched.Held {
	measured := *j
	measured.PeakMiB = t.meter.Peak(j.ID)
	return sched.Hold(&measured, t.cfg.Rules, cards)
}

// setOwners tells attribution which supervisors and sessions are whose.
func (t *Turn) setOwners() {
	holders := make([]run.Holder, 0, len(t.active)+len(t.others))
	for id, a := range t.active {
		identity, _ := t.runner.Identity(a.token)
		holder := run.Holder{
			Key: id, KeepPID: identity.KeepPID, Session: identity.Session, Cgroup: identity.Cgroup, Token: a.token, UID: a.job.UID,
		}
		if p := a.job.Spec.Adopt; p != nil {
			holder.Root = *p
		}
		holders = append(holders, holder)
	}
	for _, entry := range t.others {
		holders = append(holders, run.Holder{Key: entry.Key, KeepPID: entry.HolderPID})
	}
	t.owners.Set(holders)
}

// needsSample says whether the next decision wants a newer look at the cards.
// A look older than the end of a job would show memory that is free again,
// or worse, miss memory that is not.
func (t *Turn) needsSample() bool {
	if t.asked {
		return true
	}
	if !t.Now.Before(t.sampleDue()) {
		return true
	}
	return t.queue.Len() > 0 && !t.stopping && t.cards.err == nil && t.cards.wantsLook(t.Now, t.freshFor())
}

// Shows reports whether the last look is young enough to be shown, and no
// older than the end of a job.
func (t *Turn) Shows(youngest time.Duration) bool {
	return t.cards.err == nil && !t.cards.wantsLook(t.Now, youngest)
}

// Look asks for a newer look at the cards than there is. With nothing to do
// nobody else would.
func (t *Turn) Look() { t.asked = true }

// Ready says whether the last look at the cards is new enough to place jobs by.
func (t *Turn) Ready() bool { return !t.cards.wantsLook(t.Now, t.freshFor()) }

// freshFor is how long a look may start jobs after it came in.
func (t *Turn) freshFor() time.Duration { return max(t.cfg.Poll, time.Second) }

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
func (t *Turn) sampleInterval() time.Duration {
	cheap := t.source != nil && t.source.Cheap()
	leaving, trouble := t.leavingNow(), t.inTrouble()
	idle := len(t.active) == 0 && t.queue.Len() == 0
	switch {
	case t.Resting():
		return restGlance
	case idle && !leaving && !trouble && !cheap:
		return max(t.cfg.Poll, restIntervalSlow)
	case idle && (trouble && !cheap || !trouble && !leaving):
		return max(t.cfg.Poll, restInterval)
	case !cheap:
		return t.cfg.Poll
	}
	for _, a := range t.active {
		if a.closely(t.Now) {
			return min(t.cfg.Poll, closeInterval)
		}
	}
	switch {
	case leaving && t.queue.Len() > 0:
		return min(t.cfg.Poll, closeInterval)
	case trouble:
		return min(t.cfg.Poll, troubleInterval)
	}
	return t.cfg.Poll
}

// leavingNow is true while the memory of a job may still become free. What is
// not free by then is trouble, and a card that is gone never shows it.
func (t *Turn) leavingNow() bool { return t.meter.Leaving(t.Now.Add(-leftPatience)) }

// inTrouble is true while there is something to find out about a card.
func (t *Turn) inTrouble() bool { return t.cards.err != nil || !t.health.Settled() }

// quiet is true while there is nothing to look at the cards for.
func (t *Turn) quiet() bool {
	return len(t.active) == 0 && t.queue.Len() == 0 && !t.leavingNow() && !t.inTrouble()
}

// Resting reports whether the cards are left alone, as nobody has had any use
// for them for long. The first look after that may take the driver a moment.
func (t *Turn) Resting() bool {
	return t.cfg.Rest && t.quiet() && t.cards.arrived.Sub(t.busyAt) >= restAfter
}

func (t *Turn) sampleDue() time.Time {
	interval := t.sampleInterval()
	last := t.cards.arrived
	if t.cards.err != nil {
		last = t.cards.failed
	}
	return last.Add(interval)
}
