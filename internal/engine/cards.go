package engine

import (
	"slices"
	"time"

	"berth/internal/gpu"
	"berth/internal/sched"
)

// cards is what berth knows about the machine's cards, their measurements and
// other berths' bookings. It knows no queue, and of jobs only who holds what.
type cards struct {
	cardBook
	bookings
	meter   *gpu.Meter
	source  gpu.Source
	sample  gpu.Sample // the last reading, until it is measured
	cfg     *Config
	changes *changes

	early  []gpu.Xid // errors reported before any card was read
	asked  bool      // a new reading was requested
	busyAt time.Time // when a reading was last needed
	moved  bool      // something changed since the last decision that could change it

	quarantined func(now time.Time, c gpu.HealthChange) // called when a card is quarantined
}

func newCards(cfg *Config, src gpu.Source, l Ledger, o Owners, c *changes) *cards {
	b := newCardBook(cfg.Cards, gpu.NewHealth())
	b.know(cfg.Devices)
	return &cards{
		cardBook: b, bookings: bookings{ledger: l, owners: o, outer: cfg.Outer}, meter: gpu.NewMeter(cfg.Rules.SpikeBuffer),
		source: src, cfg: cfg, changes: c, early: cfg.Xids,
	}
}

// cardBook is every card ever seen, and the last reading of each.
type cardBook struct {
	only    []int
	known   map[int]gpu.Device
	use     map[int]gpu.CardUse
	present map[int]bool      // in the last good sample
	seen    map[int]time.Time // when each was last in a good sample
	at      time.Time         // when that reading began
	arrived time.Time         // when it arrived; a driver may be slow
	err     error             // why the last one failed
	failed  time.Time         // when that was
	freed   map[int]time.Time // when a job last ended there
	paused  map[string]string // by UUID: who paused it
	health  *gpu.Health
	left    map[int]gpu.Left // memory that ended jobs still use, in the last sample
	overdue map[int]bool     // where that takes too long
	told    bool
	trouble string // what the last reading lacked, reported once
}

func newCardBook(only []int, health *gpu.Health) cardBook {
	return cardBook{
		only: only, health: health, known: map[int]gpu.Device{}, use: map[int]gpu.CardUse{}, present: map[int]bool{},
		seen: map[int]time.Time{}, freed: map[int]time.Time{}, paused: map[string]string{}, left: map[int]gpu.Left{}, overdue: map[int]bool{},
	}
}

// unseen reports whether no card was ever seen, so that nothing can be refused:
// the driver may be late.
func (c *cards) unseen() bool { return len(c.known) == 0 && !c.cfg.NoGPUs }

// know records that these cards exist. Nothing starts on them before a reading.
func (b *cardBook) know(devices []gpu.Device) {
	for _, d := range devices {
		if b.wanted(d.Index) {
			b.known[d.Index] = d
		}
	}
}

func (b *cardBook) wanted(index int) bool {
	return b.only == nil || slices.Contains(b.only, index)
}

// take replaces the last reading.
func (b *cardBook) take(now time.Time, s gpu.Sample, inUse func(index int) bool) {
	b.err, b.at, b.arrived = nil, s.At, now
	b.present = make(map[int]bool, len(s.Devices))
	for _, d := range s.Devices {
		b.known[d.Index] = d
		b.present[d.Index], b.seen[d.Index] = true, now
	}
	b.forgetRenumbered(s.Devices, inUse)
	b.forgetDivided(s.Devices, inUse)
}

// forgetRenumbered drops the old number of a card that came back under another
// one.
func (b *cardBook) forgetRenumbered(devices []gpu.Device, inUse func(index int) bool) {
	for _, d := range devices {
		if index, known := b.absent(d.UUID); known && !inUse(index) {
			delete(b.known, index)
		}
	}
}

// absent is the number of the card with this UUID, if it was missing from the
// last sample.
func (b *cardBook) absent(uuid string) (index int, ok bool) {
	for index, d := range b.known {
		if d.UUID == uuid && !b.present[index] {
			return index, true
		}
	}
	return 0, false
}

// forgetDivided drops cards that are gone because a card was partitioned again:
// a card that now has parts, and a part that was replaced. Nothing is wrong with
// those.
func (b *cardBook) forgetDivided(devices []gpu.Device, inUse func(index int) bool) {
	divided, whole := map[int]bool{}, map[int]bool{}
	for _, d := range devices {
		if d.Part != nil {
			divided[d.Part.Of] = true
		} else {
			whole[d.Index] = true
		}
	}
	for index, d := range b.known {
		partGone := d.Part != nil && (divided[d.Part.Of] || whole[d.Part.Of])
		if !b.present[index] && (partGone || d.Part == nil && divided[index]) && !inUse(index) {
			delete(b.known, index)
			b.health.Forget(d.UUID)
		}
	}
}

// expected is the cards that a good sample should show.
func (b *cardBook) expected() []gpu.Device {
	devices := make([]gpu.Device, 0, len(b.known))
	for _, d := range b.known {
		devices = append(devices, d)
	}
	return devices
}

// list is every card ever seen, by index, as last read.
func (b *cardBook) list() []sched.Card {
	cards := make([]sched.Card, 0, len(b.known))
	for index, d := range b.known {
		use := b.use[index]
		card := sched.Card{
			Index: index, UUID: d.UUID, Name: d.Name,
			TotalMiB: d.TotalMiB, ReservedMiB: d.ReservedMiB, UsedMiB: d.UsedMiB,
			ForeignMiB: use.ForeignMiB, IdleForeignMiB: use.IdleForeignMiB,
			UtilPct: d.UtilPct, NUMA: d.NUMA, Links: d.Links, Near: d.Near, Part: d.Part != nil,
		}
		_, card.Paused = b.paused[d.UUID]
		verdict := b.health.Of(d.UUID)
		card.Health, card.HealthReason = sched.Health(verdict.State), verdict.Reason
		if left, is := b.left[index]; is && card.HealthReason == "" {
			card.HealthReason = left.String()
		}
		if !b.present[index] && !b.at.IsZero() {
			card.Stale = true
			if card.HealthReason == "" {
				card.HealthReason = "missing from the last reading"
			}
		}
		cards = append(cards, card)
	}
	slices.SortFunc(cards, func(a, c sched.Card) int { return a.Index - c.Index })
	return cards
}

// placeable is the list for a decision. A card with an old reading, or one from
// before the end of a job there, starts nothing: the reading would show the
// job's memory as used or, worse, miss memory that is still in use. Nor does a
// card where an ended job's memory is not free yet.
func (b *cardBook) placeable(now time.Time, freshFor time.Duration) []sched.Card {
	cards := b.list()
	// The next reading is made after freshFor and may take longer than this one:
	// without this, a card read with nvidia-smi would be without one in between.
	slow := min(2*b.arrived.Sub(b.at), freshFor)
	for i := range cards {
		_, left := b.left[cards[i].Index]
		if left || b.at.Before(b.freed[cards[i].Index]) || now.Sub(b.arrived) > freshFor+slow {
			cards[i].Stale = true
		}
	}
	return cards
}

// wantsLook reports whether a new reading would make more cards placeable.
func (b *cardBook) wantsLook(now time.Time, freshFor time.Duration) bool {
	if b.at.IsZero() || now.Sub(b.arrived) > freshFor {
		return true
	}
	for _, at := range b.freed {
		if b.at.Before(at) {
			return true
		}
	}
	return false
}

// device is a card as last read.
func (b *cardBook) device(uuid string) (gpu.Device, bool) {
	index, ok := b.byUUID(uuid)
	return b.known[index], ok
}

// given is a card as its job sees it. A process that opens the driver anew does
// not count a lost card, so later numbers move up, while our reader keeps the
// numbers it had. While a card is missing, no number is certain.
func (b *cardBook) given(uuid string) (gpu.Device, bool) {
	d, ok := b.device(uuid)
	for index := range b.known {
		if !b.present[index] && !b.seen[index].IsZero() {
			d.DriverIndex = -1
		}
	}
	return d, ok
}

// byUUID prefers a card's current number to an earlier one.
func (b *cardBook) byUUID(uuid string) (index int, ok bool) {
	for index, d := range b.known {
		if d.UUID == uuid && b.present[index] {
			return index, true
		}
	}
	return b.absent(uuid)
}

func (b *cardBook) smallest(indices []int) int64 {
	var least int64
	for i, index := range indices {
		if total := b.known[index].TotalMiB; i == 0 || total < least {
			least = total
		}
	}
	return least
}
