package gpu

import (
	"cmp"
	"fmt"
	"time"
)

// troubleKind orders problems: of two at the same level, the first kind gives
// the reason.
type troubleKind int

const (
	kindPerson troubleKind = iota
	kindXid
	kindReading
	kindRecovery
	kindRowsFailed
	kindRowsPending
	kindECC
	kindLink
	kindLeftover
	kindStuck
	troubleKinds
)

// trouble is one problem with a card.
type trouble struct {
	Level  HealthState `json:"level"`
	Cause  string      `json:"cause"`
	Reason string      `json:"reason"`
	Since  time.Time   `json:"since"`
	Last   time.Time   `json:"last"` // when it was last seen or reported
	By     string      `json:"by,omitempty"`
	// Waived is the level up to which a user has waived it.
	Waived   HealthState `json:"waived,omitempty"`
	LimitMiB int64       `json:"limit_mib,omitempty"` // of leftover memory

	good      int       // samples in a row without it
	goodSince time.Time // the time of the first of them
	orphan    bool      // leftover memory that the meter does not track
}

// weight is the level that still counts.
func (t *trouble) weight() HealthState {
	if t.Level <= t.Waived {
		return HealthOK
	}
	return t.Level
}

// cardHealth is the health of one card.
type cardHealth struct {
	uuid    string
	health  *Health
	Index   int
	BusID   string
	of      int  // the card this is a part of; -1: a whole card
	met     bool // seen by this berth, not only by an earlier one
	verdict Verdict
	trouble map[troubleKind]*trouble
	LastXid *Xid
	// Forgiven is the time up to which Xids are ignored: every berth reads the
	// kernel log again when it starts.
	Forgiven time.Time
	ECC      int64 // uncorrected errors at the last reading; -1: never read

	noted     map[int]time.Time // by code: when it was last reported
	readAt    time.Time         // when the card was last in a sample
	unreadAt  time.Time         // when the card was last missing from one
	unreadRow int               // samples in a row without the card
	vanished  bool              // missing for long enough to have been reset
}

func newCardHealth(h *Health, uuid string) *cardHealth {
	return &cardHealth{uuid: uuid, health: h, of: -1, ECC: -1, trouble: map[troubleKind]*trouble{}, noted: map[int]time.Time{}}
}

// raise records a problem. A problem that is already known can get worse this
// way, but not better.
func (c *cardHealth) raise(now time.Time, kind troubleKind, level HealthState, cause, reason string) {
	t := c.trouble[kind]
	if t == nil {
		t = &trouble{Since: now}
		c.trouble[kind] = t
	}
	if level >= t.Level && (level != t.Level || cause != t.Cause || reason != t.Reason) {
		t.Level, t.Cause, t.Reason = level, cause, reason
		c.health.dirty = true
	}
	t.Last, t.good, t.goodSince = now, 0, time.Time{}
}

func (c *cardHealth) end(kind troubleKind) {
	if c.trouble[kind] != nil {
		delete(c.trouble, kind)
		c.health.dirty = true
	}
}

// better records a sample without some problem. Several of them over some time
// end the problem, so that the state does not flap.
func (c *cardHealth) better(now time.Time, kind troubleKind) (over bool) {
	t := c.trouble[kind]
	if t == nil {
		return false
	}
	if t.good == 0 {
		t.goodSince = now
	}
	t.good++
	if t.good < goodSamples || now.Sub(t.goodSince) < goodFor {
		return false
	}
	c.end(kind)
	return true
}

// read takes in the card as it was in a good sample.
func (c *cardHealth) read(now time.Time, d *Device) {
	c.vanished = c.vanished || c.unreadRow >= vanishedRow
	c.unreadRow = 0
	if c.trouble[kindReading] == nil || c.better(now, kindReading) {
		if c.vanished {
			c.wasReset(c.unreadAt)
		}
		c.vanished = false
	}
	c.readRecovery(now, d.Condition.Recovery)
	c.readMemory(now, d.Condition)
	c.probation(now, d.Condition.Recovery)
	c.readAt = now
	if t := c.trouble[kindLeftover]; t != nil && t.orphan && unexplainedMiB(d) <= t.LimitMiB {
		c.end(kindLeftover)
	}
}

// unread records that a good sample lacks the card.
func (c *cardHealth) unread(now time.Time, f Fault) {
	level, cause, reason := HealthSuspect, f.Kind, f.Text
	switch f.Kind {
	case FaultLost:
		level = HealthQuarantined
		reason = orElse(reason, "has fallen off the bus")
	case FaultHangs:
		reason = orElse(reason, "does not answer the driver")
	case FaultUnreadable:
		reason = orElse(reason, "cannot be read")
	default:
		cause, reason = CauseMissing, orElse(reason, "missing from the driver's list")
	}
	if cause == CauseLost || cause == CauseMissing {
		c.unreadRow++
		c.unreadAt = now
	}
	if c.unreadFor(now) { // no duration in the reason: it is measured from another moment than "since"
		level = HealthQuarantined
	}
	c.raise(now, kindReading, level, cause, reason)
	c.probation(now, "") // the driver asks for nothing while a card cannot be read
}

// unreadFor reports whether a card has been unreadable for too long: since it
// was first missing, or since it was last read if nothing could be read at
// first because of it.
func (c *cardHealth) unreadFor(now time.Time) bool {
	t := c.trouble[kindReading]
	if t == nil {
		return false
	}
	missed := now.Sub(t.Since)
	return missed >= unreadLimit || missed >= goodFor && !c.readAt.IsZero() && now.Sub(c.readAt) >= unreadLimit
}

// readRecovery takes in the action the driver asks for; an unknown action
// changes nothing.
func (c *cardHealth) readRecovery(now time.Time, action string) {
	reason := "the driver asks for: " + action
	switch action {
	case "":
	case RecoveryNone:
		c.better(now, kindRecovery)
	case RecoveryDrain, RecoveryFabric:
		if t := c.trouble[kindRecovery]; t != nil && t.Level > HealthSuspect && !c.better(now, kindRecovery) {
			return // a worse action is not forgotten at once
		}
		c.raise(now, kindRecovery, HealthSuspect, CauseRecovery, reason)
	default:
		c.raise(now, kindRecovery, HealthQuarantined, CauseRecovery, reason)
	}
}

// readMemory takes in the state of the card's memory.
func (c *cardHealth) readMemory(now time.Time, condition Condition) {
	if condition.RowsPending {
		c.raise(now, kindRowsPending, HealthSuspect, CauseRowsPending, "memory rows are waiting to be remapped, which needs a reset")
	} else {
		c.better(now, kindRowsPending)
	}
	if condition.RowsFailed {
		c.raise(now, kindRowsFailed, HealthQuarantined, CauseRowsFailed, "a broken memory row could not be remapped")
	} else {
		c.better(now, kindRowsFailed)
	}
	count := condition.UncorrectedECC
	switch {
	case count < 0:
	case c.ECC >= 0 && count > c.ECC:
		c.end(kindECC) // new errors restart the wait
		c.raise(now, kindECC, HealthSuspect, CauseECC, fmt.Sprintf("uncorrected ECC errors rose from %d to %d", c.ECC, count))
	case count < c.ECC:
		c.wasReset(c.readAt) // the count starts when the driver is loaded
	}
	if count >= 0 && count != c.ECC {
		c.health.dirty = c.health.dirty || count > 0 || c.ECC > 0 // a first count of zero is not worth a commit
		c.ECC = count
	}
	if t := c.trouble[kindECC]; t != nil && now.Sub(t.Since) >= eccProbation {
		c.end(kindECC)
	}
}

// probation forgets an Xid after the driver has asked for nothing for
// xidProbation.
func (c *cardHealth) probation(now time.Time, action string) {
	for _, kind := range []troubleKind{kindXid, kindLink} {
		t := c.trouble[kind]
		switch {
		case t == nil:
		case action != RecoveryNone:
			t.goodSince = time.Time{}
		case t.goodSince.IsZero():
			t.goodSince = now
		case now.Sub(t.goodSince) >= xidProbation:
			c.end(kind)
			c.Forgiven = now
		}
	}
}

// wasReset forgets earlier problems that a reset repairs. If one remains, the
// next sample shows it.
func (c *cardHealth) wasReset(at time.Time) {
	for _, kind := range []troubleKind{kindXid, kindLink, kindECC} {
		if t := c.trouble[kind]; t != nil && !t.Last.After(at) {
			c.end(kind)
		}
	}
	c.Forgiven, c.health.dirty = at, true
}

// pardon is a user's ok: events are forgotten, and lasting conditions do not
// count until they get worse.
func (c *cardHealth) pardon(now time.Time) {
	for _, kind := range []troubleKind{kindPerson, kindXid, kindLink, kindECC, kindLeftover, kindStuck} {
		c.end(kind)
	}
	for _, t := range c.trouble {
		t.Waived = t.Level
	}
	c.Forgiven, c.health.dirty = now, true
}

// judge computes the verdict and reports whether the state or its author
// changed.
func (c *cardHealth) judge(now time.Time) bool {
	worst := &trouble{}
	for kind := range troubleKinds {
		if t := c.trouble[kind]; t != nil && t.weight() > worst.weight() {
			worst = t
		}
	}
	was := c.verdict
	c.verdict = Verdict{State: worst.weight(), Cause: worst.Cause, Reason: worst.Reason, By: worst.By, Since: was.Since}
	if c.verdict.State == was.State && c.verdict.By == was.By {
		return false
	}
	c.verdict.Since = now
	return true
}

// passing reports whether time and good samples can end all problems.
func (c *cardHealth) passing() bool {
	for kind, t := range c.trouble {
		if kind != kindPerson && t.weight() > HealthOK {
			return true
		}
	}
	return false
}

// notAfter keeps a clock that was set back from making a wait longer.
func (c *cardHealth) notAfter(now time.Time) {
	early := func(t *time.Time) {
		if t.After(now) {
			*t = now
		}
	}
	for _, t := range c.trouble {
		early(&t.Since)
		early(&t.Last)
		early(&t.goodSince)
	}
	early(&c.verdict.Since)
	early(&c.Forgiven)
	early(&c.readAt)
	early(&c.unreadAt)
	for code, at := range c.noted {
		if at.After(now) {
			delete(c.noted, code)
		}
	}
}

func orElse(text, other string) string {
	return cmp.Or(text, other)
}

// unexplainedMiB is the memory in use that no listed process holds: all of it
// if processes are not listed.
func unexplainedMiB(d *Device) int64 {
	restMiB := d.UsedMiB
	if d.ProcessesKnown {
		for _, p := range d.Processes {
			restMiB -= max(0, p.UsedMiB)
		}
	}
	return max(0, restMiB)
}
