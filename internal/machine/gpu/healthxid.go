package gpu

import (
	"slices"
	"strings"
	"time"
)

// hear takes in Xids and returns notes about those that change no state.
func (h *Health) hear(now time.Time, xids []Xid) []HealthChange {
	var notes []HealthChange
	for _, x := range xids {
		if x.At.IsZero() || x.At.After(now) {
			x.At = now
		}
		for _, c := range h.about(x) {
			if note, worth := c.hear(now, x); worth {
				notes = append(notes, note)
			}
		}
	}
	slices.SortStableFunc(notes, byCard)
	return notes
}

// about lists the cards that an Xid concerns: the card it names and its MIG
// parts.
func (h *Health) about(x Xid) []*cardHealth {
	var list []*cardHealth
	bus := plainBus(x.BusID)
	named, known := h.cards[x.UUID]
	for uuid, c := range h.cards {
		switch {
		case x.UUID != "" && uuid == x.UUID,
			known && c.of >= 0 && c.of == named.Index,
			!known && bus != "" && c.BusID == bus:
			list = append(list, c)
		}
	}
	return list
}

// hear takes in an Xid about this card.
func (c *cardHealth) hear(now time.Time, x Xid) (note HealthChange, worth bool) {
	if x.At.Before(c.Forgiven) {
		return note, false
	}
	if c.LastXid == nil || !x.At.Before(c.LastXid.At) {
		kept := x
		kept.Text = orElse(kept.Text, xidTable[x.Code].text)
		c.LastXid = &kept
		c.health.dirty = true
	}
	reason, odd := x.String(), false
	switch xidTable[x.Code].class {
	case xidReset:
		c.raise(now, kindXid, HealthQuarantined, CauseXid, reason)
		return note, false
	case xidGone:
		c.raise(now, kindXid, HealthQuarantined, CauseLost, reason)
		return note, false
	case xidLink:
		c.raise(now, kindLink, HealthSuspect, CauseLink, reason)
		return note, false
	case xidApplication:
		reason += ": an application error, not a fault of the GPU"
	case xidNote:
		reason += ": noted"
	case xidUnknown:
		odd = true
	}
	if last, told := c.noted[x.Code]; told && now.Sub(last) < notePause {
		return note, false
	}
	c.noted[x.Code] = now
	return HealthChange{Index: c.Index, UUID: c.uuid, From: c.verdict, To: c.verdict, Note: "reports " + reason, Odd: odd}, true
}

// plainBus is a bus address in one spelling: both "00000000:3B:00.0" and
// "0000:3b:00" become "3b:00".
func plainBus(address string) string {
	address, _, _ = strings.Cut(strings.ToLower(strings.TrimSpace(address)), ".")
	domain, rest, found := strings.Cut(address, ":")
	if !found || !strings.Contains(rest, ":") {
		return address
	}
	return strings.TrimLeft(domain, "0") + ":" + rest
}
