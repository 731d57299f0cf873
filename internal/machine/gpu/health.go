package gpu

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// HealthState says whether a card may be used.
type HealthState int

// The states. Only HealthOK takes new jobs.
const (
	HealthOK HealthState = iota
	HealthSuspect
	HealthQuarantined
)

var healthWords = [...]string{"ok", "suspect", "quarantined"}

// String is the word users see.
func (s HealthState) String() string {
	if s < 0 || int(s) >= len(healthWords) {
		return fmt.Sprintf("health(%d)", int(s))
	}
	return healthWords[s]
}

// The causes of a bad state. The words are a stable contract.
const (
	CausePerson      = "person"
	CauseXid         = "xid"
	CauseLink        = "nvlink"
	CauseRecovery    = "recovery"
	CauseECC         = "ecc"
	CauseRowsPending = "rows-pending"
	CauseRowsFailed  = "rows-failed"
	CauseLost        = "lost"
	CauseHangs       = "hangs"
	CauseUnreadable  = "unreadable"
	CauseMissing     = "missing"
	CauseLeftover    = "leftover"
	CauseStuck       = "stuck"
)

// The timing of the rules.
const (
	unreadLimit    = 10 * time.Second // a card that cannot be read for this long is quarantined
	goodSamples    = 3                // a problem ends after this many good samples in a row
	goodFor        = 5 * time.Second  // that span at least this long
	xidProbation   = time.Minute      // an Xid is forgotten once the driver has asked for nothing for this long
	eccProbation   = 10 * time.Minute // since the last uncorrected error
	vanishedRow    = 2                // a card missing from this many samples counts as reset when it returns
	notePause      = time.Minute      // the same Xid is noted at most once in this time
	maxHealthCards = 4096             // more than a machine has; healthy cards are forgotten first
)

// Verdict is the state of a card and the reason for it.
type Verdict struct {
	State   HealthState
	Cause   string    // one of the Cause words; "" if the card is ok
	Reason  string    // for display
	Since   time.Time // when the state began; zero: since berth first saw the card
	By      string    // the user who set it; "" if berth detected it
	LastXid *Xid      // the latest one, whatever it meant
}

// HealthChange is a card whose state changed, or a note about it.
type HealthChange struct {
	Index    int
	UUID     string
	From, To Verdict
	By       string // the user who changed it
	// Note is about a card whose state did not change. Odd marks a note about
	// an error that berth does not know.
	Note string
	Odd  bool
}

// String is the change as a sentence.
func (c HealthChange) String() string {
	name := fmt.Sprintf("gpu%d ", c.Index)
	switch {
	case c.Note != "":
		return name + c.Note
	case c.To.State != HealthOK && c.By != "":
		return fmt.Sprintf("%s%s by %s: %s", name, c.To.State, c.By, c.To.Reason)
	case c.To.State != HealthOK:
		return fmt.Sprintf("%s%s: %s", name, c.To.State, c.To.Reason)
	case c.By != "":
		return fmt.Sprintf("%scleared by %s; it was %s: %s", name, c.By, c.From.State, c.From.Reason)
	}
	return fmt.Sprintf("%sok again; it was %s: %s", name, c.From.State, c.From.Reason)
}

// Health derives the state of cards from their samples. It is pure: time and
// samples are arguments, and the order of cards within a sample does not
// matter.
type Health struct {
	cards map[string]*cardHealth // by UUID
	dirty bool
}

// NewHealth knows no cards; unknown cards are ok.
func NewHealth() *Health { return &Health{cards: map[string]*cardHealth{}} }

// Observe takes in a good sample. expected are the cards that should be in it.
func (h *Health) Observe(now time.Time, s Sample, expected []Device) []HealthChange {
	present := make(map[string]*Device, len(s.Devices))
	divided := map[int]bool{} // cards with MIG parts
	for i := range s.Devices {
		d := &s.Devices[i]
		present[d.UUID] = d
		if d.Part != nil {
			divided[d.Part.Of] = true
		}
		h.meet(now, d)
	}
	for i := range expected {
		h.meet(now, &expected[i])
	}
	notes := h.hear(now, s.Xids)
	for uuid, d := range present {
		h.cards[uuid].read(now, d)
	}
	for i := range expected {
		d := &expected[i]
		if _, there := present[d.UUID]; there || divided[d.Index] {
			continue
		}
		h.cards[d.UUID].unread(now, faultOf(s.Faults, d))
	}
	return append(notes, h.judgeAll(now, "")...)
}

// Failed takes in the Xids that came with a failed sample, which says nothing
// else about the cards.
func (h *Health) Failed(now time.Time, s Sample) []HealthChange {
	if len(s.Xids) == 0 {
		return nil
	}
	notes := h.hear(now, s.Xids)
	return append(notes, h.judgeAll(now, "")...)
}

// Leftover reports memory that a job left behind on a card for too long; an
// empty text means that it is gone. limitMiB is the unexplained memory that
// was there before, so that the end is recognised even if the meter forgets.
func (h *Health) Leftover(now time.Time, uuid, text string, limitMiB int64) []HealthChange {
	c := h.cards[uuid]
	if c == nil || text == "" && c.trouble[kindLeftover] == nil {
		return nil
	}
	if text == "" {
		c.end(kindLeftover)
		return h.judgeAll(now, "")
	}
	c.raise(now, kindLeftover, HealthSuspect, CauseLeftover, text)
	c.trouble[kindLeftover].LimitMiB, c.trouble[kindLeftover].orphan = limitMiB, false
	return h.judgeAll(now, "")
}

// Stuck reports a job's process that does not end although it was killed, and
// may still use the card; an empty text means that it is gone.
func (h *Health) Stuck(now time.Time, uuid, text string) []HealthChange {
	c := h.cards[uuid]
	if c == nil || text == "" && c.trouble[kindStuck] == nil {
		return nil
	}
	if text == "" {
		c.end(kindStuck)
	} else {
		c.raise(now, kindStuck, HealthSuspect, CauseStuck, text)
	}
	return h.judgeAll(now, "")
}

// Set is a user's decision. It holds until a user sets ok. Setting ok waives
// everything that is wrong now, until it gets worse or happens again.
func (h *Health) Set(now time.Time, d Device, state HealthState, by, reason string) []HealthChange {
	h.meet(now, &d)
	c := h.cards[d.UUID]
	if state == HealthOK {
		c.pardon(now)
		return h.judgeAll(now, by)
	}
	reason = cmp.Or(reason, "set manually")
	c.end(kindPerson) // the new decision replaces the old one, even if it is milder
	c.raise(now, kindPerson, state, CausePerson, reason)
	c.trouble[kindPerson].By = by
	return h.judgeAll(now, by)
}

// Of is the verdict on a card.
func (h *Health) Of(uuid string) Verdict {
	c := h.cards[uuid]
	if c == nil {
		return Verdict{}
	}
	v := c.verdict
	if c.LastXid != nil {
		x := *c.LastXid
		v.LastXid = &x
	}
	return v
}

// Settled is false while a card has a problem that may pass by itself, so
// another sample soon is worthwhile. Cards known only from an earlier berth do
// not count.
func (h *Health) Settled() bool {
	for _, c := range h.cards {
		if c.met && c.passing() {
			return false
		}
	}
	return true
}

// meet makes a card known, or updates its name.
func (h *Health) meet(now time.Time, d *Device) {
	c := h.cards[d.UUID]
	if c == nil {
		if len(h.cards) >= maxHealthCards {
			h.forgetTheWell()
		}
		c = newCardHealth(h, d.UUID)
		h.cards[d.UUID] = c
	}
	c.met = true
	c.Index, c.BusID, c.of = d.Index, plainBus(d.BusID), -1
	if d.Part != nil {
		c.of = d.Part.Of
	}
	c.notAfter(now)
}

// Forget drops a card that is gone, unless a user set its state: no reading
// could end its problems.
func (h *Health) Forget(uuid string) {
	c := h.cards[uuid]
	if c == nil {
		return
	}
	h.dirty = true
	if c.trouble[kindPerson] == nil {
		delete(h.cards, uuid)
		return
	}
	for kind := range c.trouble {
		if kind != kindPerson {
			c.end(kind)
		}
	}
}

func (h *Health) forgetTheWell() {
	for uuid, c := range h.cards {
		if len(c.trouble) == 0 {
			delete(h.cards, uuid)
		}
	}
}

// judgeAll recomputes the verdicts and returns those that changed.
func (h *Health) judgeAll(now time.Time, by string) []HealthChange {
	var changes []HealthChange
	for _, c := range h.cards {
		was := c.verdict
		if !c.judge(now) {
			continue
		}
		h.dirty = true
		changes = append(changes, HealthChange{Index: c.Index, UUID: c.uuid, From: was, To: c.verdict, By: by})
	}
	slices.SortFunc(changes, byCard)
	return changes
}

func byCard(a, b HealthChange) int {
	if a.Index != b.Index {
		return a.Index - b.Index
	}
	return strings.Compare(a.UUID, b.UUID)
}

// faultOf is why a card is not in a sample.
func faultOf(faults []Fault, d *Device) Fault {
	for _, f := range faults {
		if f.UUID != "" && f.UUID == d.UUID || f.UUID == "" && f.Index == d.Index {
			return f
		}
	}
	return Fault{Index: d.Index, UUID: d.UUID, Kind: CauseMissing}
}
