package sched

import (
	"cmp"
	"fmt"
	"slices"

	"berth/internal/reason"
)

// board is the machine while a decision is made: what was measured, what is
// held, and what the decision itself has given away so far.
type board struct {
	rules      Rules
	unreadable string
	slots      []*slot // ascending by card index
	host       Host
	usedCPUs   int
	usedMemMiB int64
}

// slot is one card of the board.
type slot struct {
	*Card       // only read
	headroomMiB int64
	shares      float64
	holders     []*Held         // the berth jobs on it
	alone       bool            // a holder that nothing may join
	exclusive   bool            // a holder that no berth job may join
	closed      reason.Obstacle // what keeps every job away, whatever it asks for
}

func newBoard(s *State) *board {
	b := bareBoard(s)
	for _, h := range inOrder(s.Held) {
		b.book(h)
	}
	for _, c := range b.slots {
		c.closed = b.closed(c)
	}
	return b
}

// bareBoard is the machine with no berth job on it, and every card open.
func bareBoard(s *State) *board {
	b := &board{rules: s.Rules, unreadable: s.Unreadable, host: s.Host, slots: make([]*slot, len(s.Cards))}
	slots, first := make([]slot, len(s.Cards)), make([]*Held, len(s.Cards))
	for i := range s.Cards {
		c := &s.Cards[i]
		slots[i] = slot{Card: c, headroomMiB: c.bareMiB(), holders: first[i : i : i+1]}
		b.slots[i] = &slots[i]
	}
	slices.SortFunc(b.slots, func(a, c *slot) int { return cmp.Compare(a.Index, c.Index) })
	for i := 1; i < len(b.slots); i++ {
		if b.slots[i].Index == b.slots[i-1].Index {
			panic(fmt.Sprintf("bug: two cards have the index %d", b.slots[i].Index))
		}
	}
	return b
}

// bareBoard is one on which nothing is written yet: that of a try that came to
// nothing, if there is one.
func (d *decision) bareBoard() *board {
	b := d.spare
	if b == nil {
		return bareBoard(d.state)
	}
	d.spare = nil
	b.usedCPUs, b.usedMemMiB = 0, 0
	for _, c := range b.slots {
		*c = slot{Card: c.Card, headroomMiB: c.bareMiB(), holders: c.holders[:0]}
	}
	return b
}

// bareMiB is what is free on a card with no berth job on it.
func (c *Card) bareMiB() int64 { return c.TotalMiB - c.ReservedMiB - c.ForeignMiB }

// inOrder makes a decision independent of the order in which the caller happened
// to list what is held, down to the last bit of a sum of shares.
func inOrder(held []Held) []*Held {
	list := make([]*Held, len(held))
	for i := range held {
		list[i] = &held[i]
	}
	slices.SortStableFunc(list, func(a, c *Held) int {
		return cmp.Or(cmp.Compare(a.Job, c.Job), cmp.Compare(a.Share, c.Share), compareBools(a.Other, c.Other),
			slices.Compare(a.Cards, c.Cards), slices.Compare(a.BudgetMiB, c.BudgetMiB), a.Started.Compare(c.Started))
	})
	return list
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// slot finds a card by its index; nil where there is none.
func (b *board) slot(index int) *slot {
	if i, found := b.position(index); found {
		return b.slots[i]
	}
	return nil
}

// position is where a card lies among the slots.
func (b *board) position(index int) (int, bool) {
	// Cards are mostly counted from 0 and all there.
	if index >= 0 && index < len(b.slots) && b.slots[index].Index == index {
		return index, true
	}
	return slices.BinarySearchFunc(b.slots, index, func(c *slot, index int) int {
		return cmp.Compare(c.Index, index)
	})
}

// book takes what a job holds off the board. Cards that are not on the board
// are passed over: a lost card may still be held.
func (b *board) book(h *Held) {
	b.usedCPUs += h.CPUs
	b.usedMemMiB += h.MemMiB
	for i, index := range h.Cards {
		c := b.slot(index)
		if c == nil {
			continue
		}
		c.holders = append(c.holders, h)
		c.alone = c.alone || h.Alone
		c.exclusive = c.exclusive || h.Exclusive
		c.shares += h.share()
		c.headroomMiB -= h.budget(i)
	}
}

// shut is what keeps every job off a card now and for as long as it stays so.
func (c *slot) shut() reason.Obstacle {
	switch {
	case c.Stale:
		return reason.ObstacleStale
	case c.Paused:
		return reason.ObstaclePaused
	case c.Health != HealthOK:
		return reason.ObstacleHealth
	}
	return ""
}

// runs are the berth jobs on the card.
func (c *slot) runs() []reason.Holder {
	list := make([]reason.Holder, len(c.holders))
	for i, h := range c.holders {
		list[i] = reason.Holder{ID: h.Job, Other: h.Other}
	}
	return list
}

// closed is what keeps every job off a card, before anyone asks for it.
func (b *board) closed(c *slot) reason.Obstacle {
	switch shut := c.shut(); {
	case shut != "":
		return shut
	case b.rules.MemThreshold > 0 && c.usedShare() > b.rules.MemThreshold:
		return reason.ObstacleMemory
	// Once a berth job is there, the load is berth's own doing.
	case b.rules.LoadThreshold > 0 && (b.rules.LoadAlways || len(c.holders) == 0) && c.UtilPct/100 > b.rules.LoadThreshold:
		return reason.ObstacleLoad
	}
	return ""
}

// usedShare is the measured use of a card over its total.
func (c *slot) usedShare() float64 {
	if c.TotalMiB <= 0 {
		return 0
	}
	return float64(c.UsedMiB) / float64(c.TotalMiB)
}

// freeCPUs and freeMemMiB mean nothing where the host's size is not known.
func (b *board) freeCPUs() int     { return b.host.CPUs - b.usedCPUs }
func (b *board) freeMemMiB() int64 { return b.host.MemMiB - b.usedMemMiB }

// hostFits reports whether the host has the cpus and the memory to spare.
func (b *board) hostFits(a *amounts) bool { return b.cpusFit(a) && b.memFits(a) }

func (b *board) cpusFit(a *amounts) bool {
	return b.host.CPUs == 0 || a.cpus == 0 || a.cpus <= b.freeCPUs()
}

func (b *board) memFits(a *amounts) bool {
	return b.host.MemMiB == 0 || a.memMiB == 0 || a.memMiB <= b.freeMemMiB()
}
