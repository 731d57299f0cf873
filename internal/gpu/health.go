package gpu

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// HealthState is how far a card can be trusted.
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

// What a card can be in trouble for. The words are a stable contract.
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
)

// The patience of the rules.
const (
	unreadLimit    = 10 * time.Second // a card that cannot be read for so long is quarantined
	goodSamples    = 3                // so many good samples in a row,
	goodFor        = 5 * time.Second  // over so long, and what they speak against is over
	xidProbation   = time.Minute      // that long the driver asks for nothing, and an Xid is forgotten
	eccProbation   = 10 * time.Minute // after the last uncorrected error
	vanishedRow    = 2                // so many samples without a card, and its return is a reset
	notePause      = time.Minute      // the same Xid is noted once in that time
	maxHealthCards = 4096             // more than a machine has; what is well is forgotten first
)

// Verdict is how a card stands.
type Verdict struct {
	State   HealthState
	Cause   string    // one of the Cause words; empty: none
	Reason  string    // for people
	Since   time.Time // of the state; zero: ever since berth knows the card
	By      string    // who said so; empty: berth found out itself
	LastXid *Xid      // the last one of the card, whatever it meant
}

// HealthChange is one card whose state changed, or something worth noting
// about it.
type HealthChange struct {
	Index    int
	UUID     string
	From, To Verdict
	By       string // the person who changed it
	// Note is said of a card whose state is the same. Odd is a note that
	// berth does not know what to make of.
	Note string
	Odd  bool
}

// String is the change in a sentence.
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

// Health judges cards by what is read of them. It is pure: time and samples
// come in as arguments, and the order of cards within a sample does not matter.
type Health struct {
	cards map[string]*cardHealth // by UUID
	dirty bool
}

// NewHealth knows of no card; what it does not know is ok.
func NewHealth() *Health { return &Health{cards: map[string]*cardHealth{}} }

// Observe takes in a good sample. expected are the cards that should be in it.
func (h *Health) Observe(now time.Time, s Sample, expected []Device) []HealthChange {
	present := make(map[string]*Device, len(s.Devices))
	divided := map[int]bool{} // cards of which parts are there
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
	return append(notes, h.settle(now, "")...)
}

// Failed takes in the Xids that came with a failed sample. It says nothing
// else about any card.
func (h *Health) Failed(now time.Time, s Sample) []HealthChange {
	if len(s.Xids) == 0 {
		return nil
	}
	notes := h.hear(now, s.Xids)
	return append(notes, h.settle(now, "")...)
}

// Leftover says what a job left behind on a card beyond all patience; an empty
// text, that it is gone. limitMiB is how much memory that no process explains
// was there before: should the one who watches forget, that tells the end too.
func (h *Health) Leftover(now time.Time, uuid, text string, limitMiB int64) []HealthChange {
	c := h.cards[uuid]
	if c == nil || text == "" && c.trouble[kindLeftover] == nil {
		return nil
	}
	if text == "" {
		c.end(kindLeftover)
		return h.settle(now, "")
	}
	c.raise(now, kindLeftover, HealthSuspect, CauseLeftover, text)
	c.trouble[kindLeftover].LimitMiB, c.trouble[kindLeftover].orphan = limitMiB, false
	return h.settle(now, "")
}

// Set is a person's word. It stands until a person says ok; and ok means that
// what is known to be wrong now is no reason any more, until it gets worse or
// happens anew.
func (h *Health) Set(now time.Time, d Device, state HealthState, by, reason string) []HealthChange {
	h.meet(now, &d)
	c := h.cards[d.UUID]
	if state == HealthOK {
		c.pardon(now)
		return h.settle(now, by)
	}
	if reason == "" {
		reason = "set by hand"
	}
	c.end(kindPerson) // the new word replaces an old one, also where it is milder
	c.raise(now, kindPerson, state, CausePerson, reason)
	c.trouble[kindPerson].By = by
	return h.settle(now, by)
}

// Of is how a card stands.
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

// Settled is false while a card is in trouble that may pass by itself, so that
// it is worth looking again soon. A card that an earlier berth knew and that
// nobody asks for any more is not looked at anyway.
func (h *Health) Settled() bool {
	for _, c := range h.cards {
		if c.met && c.passing() {
			return false
		}
	}
	return true
}

// meet makes a card known, or takes in what it is called now.
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

// Forget drops what is known of a card that is no more, but for a person's word.
// Nothing would be read that could end its trouble.
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

// settle works out the verdicts anew and says which changed.
func (h *Health) settle(now time.Time, by string) []HealthChange {
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
