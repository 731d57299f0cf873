package daemon

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"berth/internal/gpu"
	"berth/internal/store"
)

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
}

// rememberCards takes in which cards are there, and returns those that are
// missing: they were there lately. A simulated box is what it was made.
func (d *Daemon) rememberCards(now time.Time) (missing []gpu.Device) {
	if d.opt.Sim > 0 {
		return nil
	}
	value, err := d.store.Meta(cardsKey)
	var seen []seenCard
	if err == nil && value != "" {
		err = json.Unmarshal([]byte(value), &seen)
	}
	if err != nil {
		d.log.Warn("read which cards there were", "err", err)
	}
	wanted := d.config().GPUs
	kept := make([]seenCard, 0, len(seen)+len(d.devices))
	for _, dev := range d.devices {
		kept = append(kept, seenCard{dev, now})
	}
	for _, s := range seen {
		there := slices.ContainsFunc(d.devices, func(dev gpu.Device) bool {
			return dev.UUID == s.Device.UUID || dev.Index == s.Device.Index
		})
		if there || now.Sub(s.Seen) > cardsFor || wanted != nil && !slices.Contains(wanted, s.Device.Index) {
			continue
		}
		kept = append(kept, s)
		missing = append(missing, s.Device)
		d.log.Warn("a card is missing; jobs that need it wait", "gpu", s.Device.Index, "uuid", s.Device.UUID, "last_seen", s.Seen)
	}
	d.saveCards(kept)
	return missing
}

func (d *Daemon) saveCards(cards []seenCard) {
	value, err := json.Marshal(cards)
	if err != nil {
		panic("bug: " + err.Error())
	}
	if err := d.store.Commit(store.Tx{Meta: map[string]string{cardsKey: string(value)}}); err != nil {
		d.log.Warn("remember which cards there are", "err", err)
	}
}

// noteCards keeps the memory of the cards young while the daemon runs.
func (d *Daemon) noteCards(ctx context.Context) {
	if d.opt.Sim > 0 {
		return
	}
	var cards []seenCard
	err := d.do(ctx, func(now time.Time) {
		at, _ := d.engine.ReadAt()
		for _, dev := range d.engine.Devices() {
			cards = append(cards, seenCard{dev, at})
		}
	})
	if err == nil && len(cards) > 0 {
		d.saveCards(cards)
	}
}
