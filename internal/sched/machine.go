package sched

import (
	"cmp"
	"fmt"
	"slices"

	"berth/internal/job/reason"
)

// machine is the cards and the host with jobs on them: as they are now, with what
// this decision has allocated, or as they will be at another time.
type machine struct {
	rules      *Rules
	unreadable string
	slots      []slot // ascending by card index
	host       hostUse
}

// slot is one card of a machine.
type slot struct {
	*Card       // only read
	headroomMiB int64
	marginMiB   int64 // what has to stay free for a job that has yet to start here
	shares      float64
	holds       []holding       // the berth jobs on it
	alone       bool            // a job there that no job may join
	exclusive   bool            // an exclusive job is there
	closed      reason.Obstacle // what keeps every job off the card
}

// holding is a job on one of its cards.
type holding struct {
	job       *Allocation
	card      int   // index among the job's cards
	marginMiB int64 // has to stay free there until the job starts
}

// newMachine is the machine with all running jobs on it. unreadable is empty where
// the cards can be read.
func newMachine(rules *Rules, host Host, cards []Card, unreadable string, running []*Allocation) *machine {
	m := &machine{rules: rules, unreadable: unreadable, host: hostUse{size: host}, slots: make([]slot, len(cards))}
	for i := range cards {
		m.slots[i].Card = &cards[i]
		m.slots[i].recount()
	}
	slices.SortFunc(m.slots, func(a, b slot) int { return cmp.Compare(a.Index, b.Index) })
	for i := 1; i < len(m.slots); i++ {
		if m.slots[i].Index == m.slots[i-1].Index {
			panic(fmt.Sprintf("bug: two cards have the index %d", m.slots[i].Index))
		}
	}
	for _, h := range running {
		m.book(h)
	}
	for i := range m.slots {
		m.slots[i].closed = m.closed(&m.slots[i])
	}
	return m
}

// copyOf makes m a copy of another machine without the running jobs that are gone,
// and reuses its memory.
func (m *machine) copyOf(other *machine, gone map[*Allocation]bool) {
	slots := m.slots
	if len(slots) != len(other.slots) {
		slots = make([]slot, len(other.slots))
	}
	for i := range slots {
		slots[i].copyOf(&other.slots[i], gone)
	}
	*m = *other
	m.slots = slots
	for held := range gone {
		m.host.add(held, -1)
	}
}

// copyOf is machine.copyOf for one card: it is what it would be if those jobs had
// left one by one, down to the order in which shares are added.
func (c *slot) copyOf(other *slot, gone map[*Allocation]bool) {
	holds := c.holds[:0]
	for _, o := range other.holds {
		if !gone[o.job] {
			holds = append(holds, o)
		}
	}
	*c = *other
	if c.holds = holds; len(holds) < len(other.holds) {
		c.recount()
		c.closed = c.shut()
	}
}

// inOrder makes a decision independent of the order of the caller's list, down to
// the last bit of a sum of shares.
func inOrder(held []Allocation) []*Allocation {
	list := make([]*Allocation, len(held))
	for i := range held {
		list[i] = &held[i]
	}
	slices.SortStableFunc(list, func(a, c *Allocation) int {
		if a.Job != c.Job {
			return cmp.Compare(a.Job, c.Job)
		}
		return cmp.Or(cmp.Compare(a.Share, c.Share), compareBools(a.Other, c.Other),
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

// slot finds a card by its index, or returns nil.
func (m *machine) slot(index int) *slot {
	if place := m.place(index); place >= 0 {
		return &m.slots[place]
	}
	return nil
}

// place is a card's place among the slots, or -1.
func (m *machine) place(index int) int {
	// Cards are mostly counted from 0 and all there.
	if index >= 0 && index < len(m.slots) && m.slots[index].Index == index {
		return index
	}
	i, found := slices.BinarySearchFunc(m.slots, index, func(c slot, index int) int { return cmp.Compare(c.Index, index) })
	if !found {
		return -1
	}
	return i
}

// book puts a job on its cards. Cards that the machine does not have are skipped: a
// job may still hold a lost card.
func (m *machine) book(h *Allocation) { m.bookLater(h, 0) }

// bookLater is book for a job that has yet to start: its margin has to stay free.
func (m *machine) bookLater(h *Allocation, marginMiB int64) {
	m.host.add(h, 1)
	for i, index := range h.Cards {
		if c := m.slot(index); c != nil {
			c.holds = append(c.holds, holding{h, i, marginMiB})
			c.count(c.holds[len(c.holds)-1])
		}
	}
}

// unbook takes a job off its cards.
func (m *machine) unbook(h *Allocation) {
	m.host.add(h, -1)
	for _, index := range h.Cards {
		if c := m.slot(index); c != nil {
			c.drop(h)
		}
	}
}

// vacate is unbook for a running job: the measurements of its cards no longer hold
// once it has gone.
func (m *machine) vacate(h *Allocation) {
	m.unbook(h)
	for _, index := range h.Cards {
		if c := m.slot(index); c != nil {
			c.closed = c.shut()
		}
	}
}

// drop takes a job off the card.
func (c *slot) drop(h *Allocation) {
	for i := range c.holds {
		if c.holds[i].job == h {
			c.holds = append(c.holds[:i], c.holds[i+1:]...)
			c.recount()
			return
		}
	}
}

func (c *slot) count(o holding) {
	c.alone = c.alone || o.job.Alone
	c.exclusive = c.exclusive || o.job.Exclusive
	c.shares += o.job.share()
	c.headroomMiB -= o.job.budget(o.card)
	c.marginMiB = max(c.marginMiB, o.marginMiB)
}

func (c *slot) recount() {
	c.headroomMiB, c.marginMiB, c.shares = c.TotalMiB-c.ReservedMiB-c.ForeignMiB, 0, 0
	c.alone, c.exclusive = false, false
	for _, o := range c.holds {
		c.count(o)
	}
}

// shut is what keeps every job off a card until the card itself changes.
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
	list := make([]reason.Holder, len(c.holds))
	for i, o := range c.holds {
		list[i] = reason.Holder{ID: o.job.Job, Other: o.job.Other}
	}
	return list
}

// closed is what keeps every job off a card, whatever it asks for.
func (m *machine) closed(c *slot) reason.Obstacle {
	switch shut := c.shut(); {
	case shut != "":
		return shut
	case m.rules.MemThreshold != 0 && c.usedShare() > m.rules.MemThreshold:
		return reason.ObstacleMemory
	// Once a berth job is there, the load is berth's own doing.
	case m.rules.LoadThreshold != 0 && (m.rules.LoadAlways || len(c.holds) == 0) && c.UtilPct/100 > m.rules.LoadThreshold:
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

// hostUse is what jobs hold of the host's CPUs and memory.
type hostUse struct {
	size   Host
	cpus   int
	memMiB int64
}

// add adds a job, or removes one: sign is 1 or -1.
func (u *hostUse) add(h *Allocation, sign int) {
	u.cpus += sign * h.CPUs
	u.memMiB += int64(sign) * h.MemMiB
}

// freeCPUs and freeMemMiB are meaningless where the host's size is not known.
func (u *hostUse) freeCPUs() int     { return u.size.CPUs - u.cpus }
func (u *hostUse) freeMemMiB() int64 { return u.size.MemMiB - u.memMiB }

// fits reports whether the host has enough free CPUs and memory.
func (u *hostUse) fits(a *amounts) bool { return u.cpusFit(a) && u.memFits(a) }

func (u *hostUse) cpusFit(a *amounts) bool {
	return u.size.CPUs == 0 || a.cpus == 0 || a.cpus <= u.freeCPUs()
}

func (u *hostUse) memFits(a *amounts) bool {
	return u.size.MemMiB == 0 || a.memMiB == 0 || a.memMiB <= u.freeMemMiB()
}
