package gpu

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// savedHealth outlives berth. After a reboot, only states set by users remain.
type savedHealth struct {
	Boot  string      `json:"boot"`
	Cards []savedCard `json:"cards"`
}

type savedCard struct {
	UUID     string              `json:"uuid"`
	Index    int                 `json:"index"`
	BusID    string              `json:"bus_id,omitempty"`
	Since    time.Time           `json:"since"`
	Trouble  map[string]*trouble `json:"trouble,omitempty"`
	LastXid  *Xid                `json:"last_xid,omitempty"`
	Forgiven time.Time           `json:"forgiven"`
	ECC      int64               `json:"ecc"`
}

// troubleNames are the names of the kinds on disk.
var troubleNames = [troubleKinds]string{
	"person", "xid", "reading", "recovery", "rows-failed", "rows-pending", "ecc", "link", "leftover", "stuck",
}

// Changed reports whether there is something new to save.
func (h *Health) Changed() bool { return h.dirty }

// Save encodes what the next berth needs.
func (h *Health) Save(bootID string) ([]byte, error) {
	saved := savedHealth{Boot: bootID, Cards: []savedCard{}}
	for _, uuid := range slices.Sorted(maps.Keys(h.cards)) {
		c := h.cards[uuid]
		if len(c.trouble) == 0 && c.LastXid == nil && c.Forgiven.IsZero() && c.ECC < 0 && c.verdict.Since.IsZero() {
			continue
		}
		card := savedCard{
			UUID: uuid, Index: c.Index, BusID: c.BusID, Since: c.verdict.Since, Trouble: map[string]*trouble{},
			LastXid: c.LastXid, Forgiven: c.Forgiven, ECC: c.ECC,
		}
		for kind, t := range c.trouble {
			card.Trouble[troubleNames[kind]] = t
		}
		saved.Cards = append(saved.Cards, card)
	}
	data, err := json.Marshal(saved)
	if err != nil {
		return nil, fmt.Errorf("save GPU health: %w", err)
	}
	h.dirty = false
	return data, nil
}

// Restore loads what an earlier berth saved. After a reboot, only states set
// by users remain.
func (h *Health) Restore(data []byte, bootID string) error {
	var saved savedHealth
	if err := json.Unmarshal(data, &saved); err != nil {
		return fmt.Errorf("read GPU health: %w", err)
	}
	sameBoot := saved.Boot == bootID
	for _, card := range saved.Cards[:min(len(saved.Cards), maxHealthCards)] {
		c := newCardHealth(h, card.UUID)
		c.Index, c.BusID, c.LastXid = card.Index, card.BusID, card.LastXid
		if sameBoot {
			c.Forgiven, c.ECC, c.verdict.Since = card.Forgiven, card.ECC, card.Since
		}
		for name, t := range card.Trouble {
			kind := troubleKind(slices.Index(troubleNames[:], name))
			if kind < 0 || t == nil || t.Level < HealthOK || t.Level > HealthQuarantined || !sameBoot && kind != kindPerson {
				continue
			}
			t.orphan = kind == kindLeftover
			c.trouble[kind] = t
		}
		c.judge(card.Since)
		h.cards[card.UUID] = c
	}
	return nil
}
