package cards

import (
	"context"
	"slices"
	"time"

	"berth/internal/machine/gpu"
	"berth/internal/machine/run"
	"berth/internal/sched"
)

func BookingKey(token, id string) string { return token + "/" + id }

// Bookings is what the berths on this machine tell each other: what they hold,
// and whose processes are on the cards.
type Bookings struct {
	Ledger Ledger
	Owners Owners
	outer  string      // the booking of the job this berth itself runs in
	others []gpu.Entry // what other berths hold
	keeps  []int       // the supervisors of this berth's jobs
	Behind bool        // the ledger still has jobs that are gone, or less than jobs use
}

// takeOthers replaces the other berths' bookings and returns those that are
// gone. ours reports whether a job is this berth's.
func (b *Bookings) takeOthers(others []gpu.Entry, ours func(id string) bool) (gone []string, changed bool) {
	others = slices.DeleteFunc(others, func(entry gpu.Entry) bool { return b.within(entry, ours) })
	changed = !slices.EqualFunc(others, b.others, func(a, b gpu.Entry) bool {
		return a.Key == b.Key && a.HolderPID == b.HolderPID
	})
	for _, old := range b.others {
		if !slices.ContainsFunc(others, func(entry gpu.Entry) bool { return entry.Key == old.Key }) {
			gone = append(gone, old.Key)
		}
	}
	b.others = others
	return gone, changed
}

// within reports bookings that are this berth's: an earlier version of it made them
// under another name, for a job that it has taken over. And bookings inside one
// another: the job that this berth runs in
// made room for everything inside it, and a berth inside one of our jobs books
// within that job's share.
func (b *Bookings) within(entry gpu.Entry, ours func(id string) bool) bool {
	if b.outer != "" && entry.Key == b.outer || slices.Contains(b.keeps, entry.HolderPID) {
		return true
	}
	holder, ok := b.Owners.Local(entry.HolderPID)
	return ok && ours(holder)
}

// SetOwners tells attribution which supervisors and sessions belong to which
// job.
func (b *Bookings) SetOwners(holders []run.Holder) {
	b.keeps = b.keeps[:0]
	for _, own := range holders {
		if own.KeepPID > 0 {
			b.keeps = append(b.keeps, own.KeepPID)
		}
	}
	b.others = slices.DeleteFunc(b.others, func(entry gpu.Entry) bool { return slices.Contains(b.keeps, entry.HolderPID) })
	for _, entry := range b.others {
		holders = append(holders, run.Holder{Key: entry.Key, KeepPID: entry.HolderPID})
	}
	b.Owners.Set(holders)
}

// BelongsTo is the job that a process belongs to; other: it is another berth's.
func (b *Bookings) BelongsTo(pid int) (id string, other, found bool) {
	key, found := b.Owners.Local(pid)
	for i := range b.others {
		if found && b.others[i].Key == key {
			return b.others[i].Job, true, true
		}
	}
	return key, false, found
}

// ReadOthers refreshes the other berths' bookings. If it fails, nothing may
// start.
func (c *Cards) ReadOthers(now time.Time, ours func(id string) bool) (changed, ok bool) {
	others, err := c.Bookings.Ledger.Others()
	if err != nil {
		c.changes.Warn(now, "cannot read the ledger of GPU reservations; nothing starts", err)
		return false, false
	}
	return c.takeOthers(others, ours), true
}

// GlanceAtOthers refreshes them for display while there is nothing to decide. It
// takes no lock, and errors are reported when they matter.
func (c *Cards) GlanceAtOthers(ours func(id string) bool) (changed bool) {
	if others, err := c.Bookings.Ledger.Others(); err == nil {
		changed = c.takeOthers(others, ours)
	}
	return changed
}

func (c *Cards) takeOthers(others []gpu.Entry, ours func(id string) bool) (changed bool) {
	for _, note := range c.Bookings.Ledger.Notes() {
		c.cfg.Log.Warn("ledger of GPU reservations", "note", note)
	}
	// A berth whose store was removed may have booked for a stray, under another
	// name than ours.
	strays := c.Holders.StrayBookings()
	others = slices.DeleteFunc(others, func(entry gpu.Entry) bool {
		return slices.ContainsFunc(strays, func(stray gpu.Entry) bool { return stray.Key == entry.Key && len(stray.UUIDs) > 0 })
	})
	gone, changed := c.Bookings.takeOthers(append(others, strays...), ours)
	for _, key := range gone {
		c.Meter.Forget(key)
	}
	return changed
}

// Publish updates the ledger outside a decision: bookings only shrink, or grow
// by what is already in use, so no lock is needed.
func (c *Cards) Publish(now time.Time, own []gpu.Entry) {
	c.Bookings.Behind = false
	if err := c.Bookings.Ledger.Publish(own); err != nil {
		c.changes.Warn(now, "cannot update the ledger of GPU reservations", err)
	}
}

func (c *Cards) OtherAllocations() []sched.Allocation {
	list := make([]sched.Allocation, 0, len(c.Bookings.others))
	for _, entry := range c.Bookings.others {
		peaks := c.Meter.Peak(entry.Key)
		h := sched.Allocation{Job: entry.Key, Share: entry.Share, Alone: entry.Alone, Exclusive: entry.Exclusive, Other: true}
		for i, uuid := range entry.UUIDs {
			if index, ok := c.Book.byUUID(uuid); ok {
				h.Cards = append(h.Cards, index)
				h.BudgetMiB = append(h.BudgetMiB, sched.Budget(entry.BudgetMiB[i], peaks[index], c.cfg.Rules.SpikeBuffer))
			}
		}
		if len(h.Cards) > 0 {
			list = append(list, h)
		}
	}
	return list
}

// Others is what other berths hold on this machine's cards.
func (b *Bookings) Others() []gpu.Entry { return slices.Clone(b.others) }

// OwnerOf is the job that a process on a card belongs to, or another berth's
// booking; empty: an external process. A number from another PID namespace is
// not known.
func (b *Bookings) OwnerOf(pid int) (key string, known bool) {
	key, owned, known := b.Owners.Owner(pid)
	if !owned {
		key = ""
	}
	return key, known
}

// Ledger is what several berths on one machine tell each other.
type Ledger interface {
	Lock(ctx context.Context) error
	Unlock()
	Others() ([]gpu.Entry, error)
	Publish(own []gpu.Entry) error
	Notes() []string // entries it had to skip since the last call
}

// Owners says which job a process on a card belongs to.
type Owners interface {
	Set(holders []run.Holder)
	Owner(pid int) (key string, ok bool, known bool)
	// Local is the same for a process number of berth's own PID namespace, not
	// the driver's.
	Local(pid int) (key string, ok bool)
}
