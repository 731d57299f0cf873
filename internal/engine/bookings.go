package engine

import (
	"slices"
	"time"

	"berth/internal/gpu"
	"berth/internal/run"
	"berth/internal/sched"
)

func BookingKey(token, id string) string { return token + "/" + id }

// bookings is what the berths on this machine tell each other: what they hold,
// and whose processes are on the cards.
type bookings struct {
	ledger Ledger
	owners Owners
	outer  string      // the booking of the job this berth itself runs in
	others []gpu.Entry // what other berths hold
	keeps  []int       // the supervisors of this berth's jobs
	behind bool        // the ledger still has jobs that are gone, or less than jobs use

	strays func() []gpu.Entry // what supervisors that the store does not know hold
}

// takeOthers replaces the other berths' bookings and returns those that are
// gone. ours reports whether a job is this berth's.
func (b *bookings) takeOthers(others []gpu.Entry, ours func(id string) bool) (gone []string, changed bool) {
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
func (b *bookings) within(entry gpu.Entry, ours func(id string) bool) bool {
	if b.outer != "" && entry.Key == b.outer || slices.Contains(b.keeps, entry.HolderPID) {
		return true
	}
	holder, ok := b.owners.Local(entry.HolderPID)
	return ok && ours(holder)
}

// setOwners tells attribution which supervisors and sessions belong to which
// job.
func (b *bookings) setOwners(holders []run.Holder) {
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
	b.owners.Set(holders)
}

// BelongsTo is the job that a process belongs to; other: it is another berth's.
func (b *bookings) BelongsTo(pid int) (id string, other, found bool) {
	key, found := b.owners.Local(pid)
	for i := range b.others {
		if found && b.others[i].Key == key {
			return b.others[i].Job, true, true
		}
	}
	return key, false, found
}

// readOthers refreshes the other berths' bookings. If it fails, nothing may
// start.
func (c *cards) readOthers(now time.Time, ours func(id string) bool) (changed, ok bool) {
	others, err := c.bookings.ledger.Others()
	if err != nil {
		c.changes.warn(now, "cannot read the ledger of GPU reservations; nothing starts", err)
		return false, false
	}
	return c.takeOthers(others, ours), true
}

// glanceAtOthers refreshes them for display while there is nothing to decide. It
// takes no lock, and errors are reported when they matter.
func (c *cards) glanceAtOthers(ours func(id string) bool) (changed bool) {
	if others, err := c.bookings.ledger.Others(); err == nil {
		changed = c.takeOthers(others, ours)
	}
	return changed
}

func (c *cards) takeOthers(others []gpu.Entry, ours func(id string) bool) (changed bool) {
	for _, note := range c.bookings.ledger.Notes() {
		c.cfg.Log.Warn("ledger of GPU reservations", "note", note)
	}
	// A berth whose store was removed may have booked for a stray, under another
	// name than ours.
	strays := c.bookings.strays()
	others = slices.DeleteFunc(others, func(entry gpu.Entry) bool {
		return slices.ContainsFunc(strays, func(stray gpu.Entry) bool { return stray.Key == entry.Key && len(stray.UUIDs) > 0 })
	})
	gone, changed := c.bookings.takeOthers(append(others, strays...), ours)
	for _, key := range gone {
		c.meter.Forget(key)
	}
	return changed
}

// publish updates the ledger outside a decision: bookings only shrink, or grow
// by what is already in use, so no lock is needed.
func (c *cards) publish(now time.Time, own []gpu.Entry) {
	c.bookings.behind = false
	if err := c.bookings.ledger.Publish(own); err != nil {
		c.changes.warn(now, "cannot update the ledger of GPU reservations", err)
	}
}

func (c *cards) heldByOthers() []sched.Held {
	list := make([]sched.Held, 0, len(c.bookings.others))
	for _, entry := range c.bookings.others {
		peaks := c.meter.Peak(entry.Key)
		h := sched.Held{Job: entry.Key, Share: entry.Share, Alone: entry.Alone, Exclusive: entry.Exclusive, Other: true}
		for i, uuid := range entry.UUIDs {
			if index, ok := c.book.byUUID(uuid); ok {
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
