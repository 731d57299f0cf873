package daemon

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/engine"
	"berth/internal/gpu"
	"berth/internal/keep"
	"berth/internal/machine"
	"berth/internal/problem"
	"berth/internal/store"
)

// chooseCards judges the first look at the cards.
func (d *Daemon) chooseCards(m *machine.Machine, first gpu.Sample, unread error) ([]gpu.Device, error) {
	switch {
	case unread != nil:
		// A driver that does not answer may do so later, and jobs run meanwhile
		// that have to be looked after.
		m.Log.Error("the GPUs cannot be read; nothing starts until they can", "err", unread)
	case len(first.Devices) == 0 && len(first.Faults) == 0:
		return nil, problem.Newf(problem.Refused, machine.NoCardsHint, "this machine has no GPU")
	}
	wanted := d.config().GPUs
	for _, index := range wanted {
		if unread == nil && !slices.ContainsFunc(first.Devices, func(dev gpu.Device) bool { return dev.Index == index }) {
			if d.opt.TypedGPUs {
				if parts := partsOf(index, first.Devices); len(parts) > 0 {
					return nil, problem.Newf(problem.Invalid, "name the parts in --gpus", "GPU %d is partitioned; its parts are %s", index, indices(parts))
				}
				return nil, problem.Newf(problem.Invalid, "look at --gpus", "GPU %d is to be used, but does not exist; this machine has %s", index, indices(first.Devices))
			}
			m.Log.Error("the config names a GPU that is not there", "gpu", index, "there", indices(first.Devices))
		}
	}
	var devices []gpu.Device
	for _, dev := range first.Devices {
		if wanted == nil || slices.Contains(wanted, dev.Index) {
			devices = append(devices, dev)
		}
	}
	return append(devices, d.rememberCards(m, devices, time.Now())...), nil
}

// knownCards are those that were there since the machine was started, which
// keep the numbers they had. A machine that had any lately waits for its driver.
func (d *Daemon) knownCards(m *machine.Machine) (known []gpu.Device, late bool) {
	for _, s := range d.seenCards(m) {
		if s.Boot == keep.BootID() {
			known = append(known, s.Device)
		}
		late = late || time.Since(s.Seen) <= cardsFor
	}
	return known, late
}

// indices lists cards for people: "0, 1".
func indices(devices []gpu.Device) string {
	words := make([]string, len(devices))
	for i, dev := range devices {
		words[i] = strconv.Itoa(dev.Index)
	}
	return strings.Join(words, ", ")
}

// cardsKey is where the store keeps which cards this machine has had.
const cardsKey = "cards"

// cardsFor is how long a card that cannot be found is still counted as the
// machine's. Jobs that need it wait for it instead of being refused: a driver
// may be late, a card may come back after a reset.
const cardsFor = 24 * time.Hour

// seenCard is a card, and when it was last there.
type seenCard struct {
	Device gpu.Device `json:"device"`
	Seen   time.Time  `json:"seen"`
	Boot   string     `json:"boot,omitempty"` // of the machine: numbers are good for no longer
}

// seenCards are the cards that this machine has had. A simulated box is what it
// was made.
func (d *Daemon) seenCards(m *machine.Machine) (seen []seenCard) {
	if d.opt.Sim > 0 {
		return nil
	}
	value, err := m.Store.Meta(cardsKey)
	if err == nil && value != "" {
		err = json.Unmarshal([]byte(value), &seen)
	}
	if err != nil {
		m.Log.Warn("read which cards there were", "err", err)
	}
	return seen
}

// rememberCards takes in which cards are there, and returns those that are
// missing: they were there lately.
func (d *Daemon) rememberCards(m *machine.Machine, there []gpu.Device, now time.Time) (missing []gpu.Device) {
	if d.opt.Sim > 0 {
		return nil
	}
	seen := d.seenCards(m)
	wanted := d.config().GPUs
	kept := make([]seenCard, 0, len(seen)+len(there))
	for _, dev := range there {
		kept = append(kept, seenCard{dev, now, keep.BootID()})
	}
	for _, s := range seen {
		isThere := slices.ContainsFunc(there, func(dev gpu.Device) bool { return dev.UUID == s.Device.UUID })
		if isThere || now.Sub(s.Seen) > cardsFor || wanted != nil && !slices.Contains(wanted, s.Device.Index) {
			continue
		}
		var free bool
		if s.Device.Index, free = freeNumber(kept, s.Device); !free {
			continue
		}
		kept = append(kept, s)
		missing = append(missing, s.Device)
		m.Log.Warn("a card is missing; jobs that need it wait", "gpu", s.Device.Index, "uuid", s.Device.UUID, "last_seen", s.Seen)
	}
	saveCards(m, kept)
	return missing
}

// freeNumber is what a missing card is called: as before, unless the machine was
// restarted since and another card has that number now. A part of a card has no
// other number to go by.
func freeNumber(kept []seenCard, missing gpu.Device) (index int, free bool) {
	taken := func(index int) bool {
		return slices.ContainsFunc(kept, func(s seenCard) bool { return s.Device.Index == index })
	}
	if !taken(missing.Index) || missing.Part != nil {
		return missing.Index, !taken(missing.Index)
	}
	for index = range gpu.PartIndex(0, 0) {
		if !taken(index) {
			return index, true
		}
	}
	return 0, false
}

func saveCards(m *machine.Machine, cards []seenCard) {
	value, err := json.Marshal(cards)
	if err != nil {
		panic("bug: " + err.Error())
	}
	if err := m.Store.Commit(store.Tx{Meta: map[string]string{cardsKey: string(value)}}); err != nil {
		m.Log.Warn("remember which cards there are", "err", err)
	}
}

// noteCards keeps the memory of the cards young while the daemon runs: of those
// that are there. One that is missing is as old as it was when last seen.
func (d *Daemon) noteCards(ctx context.Context) {
	if d.opt.Sim > 0 {
		return
	}
	before := d.seenCards(d.machine)
	var cards []seenCard
	err := d.do(ctx, func(t *engine.Turn) { cards = seenSince(before, t.Devices(), t.SeenAt) })
	if err == nil && len(cards) > 0 {
		saveCards(d.machine, cards)
	}
}

// seenSince is what is to be remembered of the cards, from what was and from
// when each was read; the zero time: not since.
func seenSince(before []seenCard, devices []gpu.Device, readAt func(index int) time.Time) (cards []seenCard) {
	for _, dev := range devices {
		card := seenCard{dev, readAt(dev.Index), keep.BootID()}
		at := slices.IndexFunc(before, func(s seenCard) bool { return s.Device.UUID == dev.UUID })
		if card.Seen.IsZero() && at >= 0 {
			card = before[at]
		}
		cards = append(cards, card)
	}
	return cards
}
