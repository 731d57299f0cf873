package cards

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/queue/engine/journal"
	"berth/internal/queue/engine/settings"
	"berth/internal/sched"
)

// Cards is what berth knows about the machine's cards, their measurements and
// other berths' bookings. It knows no queue, and of jobs only who holds what.
type Cards struct {
	Book     Book
	Bookings Bookings
	Meter    *gpu.Meter
	Source   gpu.Source
	sample   gpu.Sample // the last reading, until it is measured
	cfg      *settings.Settings
	changes  *journal.Journal

	Early  []gpu.Xid // errors reported before any card was read
	busyAt time.Time // when a reading was last needed
	Moved  bool      // something changed since the last decision that could change it

	Holders Holders
}

func New(cfg *settings.Settings, src gpu.Source, l Ledger, o Owners, c *journal.Journal) *Cards {
	b := newCardBook(cfg.Cards, gpu.NewHealth())
	b.know(cfg.Devices)
	return &Cards{
		Book: b, Bookings: Bookings{Ledger: l, Owners: o, outer: cfg.Outer}, Meter: gpu.NewMeter(cfg.Rules.SpikeBuffer),
		Source: src, cfg: cfg, changes: c, Early: cfg.Xids,
	}
}

// Holders is the running jobs, as far as the cards concern them.
type Holders interface {
	TellJobsOn(now time.Time, c gpu.HealthChange) // a card was quarantined
	StrayBookings() []gpu.Entry                   // what supervisors that the store does not know hold
}

// Book is every card ever seen, and the last reading of each.
type Book struct {
	only    []int
	Known   map[int]gpu.Device
	use     map[int]gpu.CardUse
	Present map[int]bool      // in the last good sample
	seen    map[int]time.Time // when each was last in a good sample
	At      time.Time         // when that reading began
	arrived time.Time         // when it arrived; a driver may be slow
	Err     error             // why the last one failed
	failed  time.Time         // when that was
	Freed   map[int]time.Time // when a job last ended there
	paused  map[string]string // by UUID: who paused it
	Health  *gpu.Health
	left    map[int]gpu.Left // memory that ended jobs still use, in the last sample
	overdue map[int]bool     // where that takes too long
	told    bool
	Asked   bool   // a new reading was requested
	trouble string // what the last reading lacked, reported once
}

func newCardBook(only []int, health *gpu.Health) Book {
	return Book{
		only: only, Health: health, Known: map[int]gpu.Device{}, use: map[int]gpu.CardUse{}, Present: map[int]bool{},
		seen: map[int]time.Time{}, Freed: map[int]time.Time{}, paused: map[string]string{}, left: map[int]gpu.Left{}, overdue: map[int]bool{},
	}
}

// Unseen reports whether no card was ever seen, so that nothing can be refused:
// the driver may be late.
func (c *Cards) Unseen() bool { return len(c.Book.Known) == 0 && !c.cfg.NoGPUs }

// know records that these cards exist. Nothing starts on them before a reading.
func (b *Book) know(devices []gpu.Device) {
	for _, d := range devices {
		if b.wanted(d.Index) {
			b.Known[d.Index] = d
		}
	}
}

func (b *Book) wanted(index int) bool {
	return b.only == nil || slices.Contains(b.only, index)
}

// update replaces the last reading.
func (b *Book) update(now time.Time, s gpu.Sample, inUse func(index int) bool) {
	b.Err, b.At, b.arrived = nil, s.At, now
	b.Present = make(map[int]bool, len(s.Devices))
	for _, d := range s.Devices {
		b.Known[d.Index] = d
		b.Present[d.Index], b.seen[d.Index] = true, now
	}
	b.forgetRenumbered(s.Devices, inUse)
	b.forgetDivided(s.Devices, inUse)
}

// forgetRenumbered drops the old number of a card that came back under another
// one.
func (b *Book) forgetRenumbered(devices []gpu.Device, inUse func(index int) bool) {
	for _, d := range devices {
		if index, known := b.absent(d.UUID); known && !inUse(index) {
			delete(b.Known, index)
		}
	}
}

// absent is the number of the card with this UUID, if it was missing from the
// last sample.
func (b *Book) absent(uuid string) (index int, ok bool) {
	for index, d := range b.Known {
		if d.UUID == uuid && !b.Present[index] {
			return index, true
		}
	}
	return 0, false
}

// forgetDivided drops cards that are gone because a card was partitioned again:
// a card that now has parts, and a part that was replaced. Nothing is wrong with
// those.
func (b *Book) forgetDivided(devices []gpu.Device, inUse func(index int) bool) {
	divided, whole := map[int]bool{}, map[int]bool{}
	for _, d := range devices {
		if d.Part != nil {
			divided[d.Part.Of] = true
		} else {
			whole[d.Index] = true
		}
	}
	for index, d := range b.Known {
		partGone := d.Part != nil && (divided[d.Part.Of] || whole[d.Part.Of])
		if !b.Present[index] && (partGone || d.Part == nil && divided[index]) && !inUse(index) {
			delete(b.Known, index)
			b.Health.Forget(d.UUID)
		}
	}
}

// expected is the cards that a good sample should show.
func (b *Book) expected() []gpu.Device {
	devices := make([]gpu.Device, 0, len(b.Known))
	for _, d := range b.Known {
		devices = append(devices, d)
	}
	return devices
}

// List is every card ever seen, by index, as last read.
func (b *Book) List() []sched.Card {
	cards := make([]sched.Card, 0, len(b.Known))
	for index, d := range b.Known {
		use := b.use[index]
		card := sched.Card{
			Index: index, UUID: d.UUID, Name: d.Name,
			TotalMiB: d.TotalMiB, ReservedMiB: d.ReservedMiB, UsedMiB: d.UsedMiB,
			ForeignMiB: use.ForeignMiB, IdleForeignMiB: use.IdleForeignMiB,
			UtilPct: d.UtilPct, NUMA: d.NUMA, Links: d.Links, Near: d.Near, Part: d.Part != nil,
		}
		_, card.Paused = b.paused[d.UUID]
		verdict := b.Health.Of(d.UUID)
		card.Health, card.HealthReason = sched.Health(verdict.State), verdict.Reason
		if left, is := b.left[index]; is && card.HealthReason == "" {
			card.HealthReason = left.String()
		}
		if !b.Present[index] && !b.At.IsZero() {
			card.Stale = true
			card.HealthReason = cmp.Or(card.HealthReason, "missing from the last reading")
		}
		cards = append(cards, card)
	}
	slices.SortFunc(cards, func(a, c sched.Card) int { return a.Index - c.Index })
	return cards
}

// Placeable is the list for a decision. A card with an old reading, or one from
// before the end of a job there, starts nothing: the reading would show the
// job's memory as used or, worse, miss memory that is still in use. Nor does a
// card where an ended job's memory is not free yet.
func (b *Book) Placeable(now time.Time, freshFor time.Duration) []sched.Card {
	cards := b.List()
	// The next reading is made after freshFor and may take longer than this one:
	// without this, a card read with nvidia-smi would be without one in between.
	slow := min(2*b.arrived.Sub(b.At), freshFor)
	for i := range cards {
		_, left := b.left[cards[i].Index]
		if left || b.At.Before(b.Freed[cards[i].Index]) || now.Sub(b.arrived) > freshFor+slow {
			cards[i].Stale = true
		}
	}
	return cards
}

// WantsLook reports whether a new reading would make more cards placeable.
func (b *Book) WantsLook(now time.Time, freshFor time.Duration) bool {
	if b.At.IsZero() || now.Sub(b.arrived) > freshFor {
		return true
	}
	for _, at := range b.Freed {
		if b.At.Before(at) {
			return true
		}
	}
	return false
}

// Device is a card as last read.
func (b *Book) Device(uuid string) (gpu.Device, bool) {
	index, ok := b.byUUID(uuid)
	return b.Known[index], ok
}

// Given is a card as its job sees it. A process that opens the driver anew does
// not count a lost card, so later numbers move up, while our reader keeps the
// numbers it had. While a card is missing, no number is certain.
func (b *Book) Given(uuid string) (gpu.Device, bool) {
	d, ok := b.Device(uuid)
	for index := range b.Known {
		if !b.Present[index] && !b.seen[index].IsZero() {
			d.DriverIndex = -1
		}
	}
	return d, ok
}

// byUUID prefers a card's current number to an earlier one.
func (b *Book) byUUID(uuid string) (index int, ok bool) {
	for index, d := range b.Known {
		if d.UUID == uuid && b.Present[index] {
			return index, true
		}
	}
	return b.absent(uuid)
}

func (b *Book) Smallest(indices []int) int64 {
	var least int64
	for i, index := range indices {
		if total := b.Known[index].TotalMiB; i == 0 || total < least {
			least = total
		}
	}
	return least
}

// Devices is every known card as last seen.
func (b *Book) Devices() []gpu.Device {
	devices := slices.Collect(maps.Values(b.Known))
	slices.SortFunc(devices, func(a, b gpu.Device) int { return a.Index - b.Index })
	return devices
}

// HealthOf is the health of a card.
func (b *Book) HealthOf(uuid string) gpu.Verdict { return b.Health.Of(uuid) }

// PausedBy says who paused a card; empty: it is not paused.
func (b *Book) PausedBy(uuid string) string { return b.paused[uuid] }

// ReadAt is when the cards were last read, and why they could not be read since.
func (b *Book) ReadAt() (at time.Time, trouble error) { return b.arrived, b.Err }

// SeenAt is when a card was last read; zero: not since berth started.
func (b *Book) SeenAt(index int) time.Time { return b.seen[index] }

// FailedAt is when reading the cards last failed.
func (b *Book) FailedAt() time.Time { return b.failed }

// Look asks for a new reading of the cards, which an idle engine would not make.
func (b *Book) Look() { b.Asked = true }

// Occupants are the processes on each card as last read. A card that hides them
// has no entry.
func (b *Book) Occupants() map[int][]gpu.Process {
	occupants := make(map[int][]gpu.Process, len(b.Known))
	for index, d := range b.Known {
		if d.ProcessesKnown && b.Present[index] {
			occupants[index] = slices.Clone(d.Processes)
		}
	}
	return occupants
}

// Occupied is the grant of a process that uses these cards already. Other jobs
// may join it. A budget of zero would mean the whole card.
func (b *Book) Occupied(indices []int, budgetMiB int64) job.Grant {
	g := job.Grant{GPUs: indices, BudgetMiB: max(1, budgetMiB), CardMiB: b.Smallest(indices)}
	for _, index := range indices {
		g.UUIDs = append(g.UUIDs, b.Known[index].UUID)
	}
	return g
}
