package gpu

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// leftMiB is how far memory may exceed its amount before a job and still count
// as free: drivers keep a little for each program.
const leftMiB = 64

// departure is a job that ended, until its memory is seen to be free.
type departure struct {
	at        time.Time
	pids      []int // its processes, while they stay listed
	beforeMiB int64 // the unexplained memory before it came
	// baselineMiB is the external use when it was last known.
	baselineMiB int64
	usedMiB     int64 // of the card, when the job was last seen on it
	leastMiB    int64 // of the card, since the job ended

	checked bool
	leftMiB int64
}

// Left is memory of an ended job that is still in use.
type Left struct {
	Job      string
	At       time.Time // when the job ended
	MiB      int64
	LimitMiB int64 // how much unexplained memory would be normal
	Blind    bool  // the driver does not show whose memory it is, and some was freed
}

// String is the reason not to use the card.
func (l Left) String() string {
	return fmt.Sprintf("the memory of job %s is not free yet: %d MiB", l.Job, l.MiB)
}

// remember records the unexplained memory before each new job on the card.
func (c *cardState) remember(holders []cardHolder) {
	if len(holders) == 0 {
		clear(c.before)
		return
	}
	now := make(map[string]int64, len(holders))
	for _, h := range holders {
		beforeMiB, known := c.before[h.key]
		if !known {
			beforeMiB = c.unexplainedMiB
		}
		if known || c.sampled {
			now[h.key] = beforeMiB
		}
	}
	c.before = now
}

// Ended reports that the last process of a job on these cards is gone,
// according to the kernel. Left lists its memory until a sample shows that it
// is free.
func (m *Meter) Ended(key string, cards []int, at time.Time) {
	for _, index := range cards {
		c := m.card(index)
		if !c.sampled {
			continue // there is nothing to compare with
		}
		beforeMiB, known := c.before[key]
		if !known {
			beforeMiB = c.unexplainedMiB
		}
		d := &departure{at: at, beforeMiB: beforeMiB, baselineMiB: c.baselineMiB, usedMiB: c.usedMiB, leastMiB: c.usedMiB}
		for pid, t := range c.processes {
			if t.key == key {
				d.pids = append(d.pids, pid)
			}
		}
		if c.departures == nil {
			c.departures = map[string]*departure{}
		}
		c.departures[key] = d
	}
}

// Left is the memory that ended jobs still occupy on a card, as of the last
// sample; none if no sample was taken since they ended.
func (m *Meter) Left(index int) (Left, bool) {
	c := m.cards[index]
	if c == nil {
		return Left{}, false
	}
	for _, key := range slices.Sorted(maps.Keys(c.departures)) {
		if d := c.departures[key]; d.checked {
			blind := c.hidden && len(d.pids) == 0 && d.usedMiB-d.leastMiB >= leftMiB
			return Left{Job: key, At: d.at, MiB: d.leftMiB, LimitMiB: d.beforeMiB + leftMiB, Blind: blind}, true
		}
	}
	return Left{}, false
}

// Leaving reports whether the memory of a job that ended after that moment was
// not seen to be free yet.
func (m *Meter) Leaving(after time.Time) bool {
	for _, c := range m.cards {
		for _, d := range c.departures {
			if d.at.After(after) {
				return true
			}
		}
	}
	return false
}

// Accept stops waiting for the leftover memory on a card to be freed.
func (m *Meter) Accept(index int) {
	if c := m.cards[index]; c != nil {
		clear(c.departures)
	}
}

// checkDepartures checks the jobs that ended before a sample began.
func (c *cardState) checkDepartures(at time.Time, d *Device, holders []cardHolder) {
	for key, gone := range c.departures {
		if at.Before(gone.at) {
			continue
		}
		gone.checked = true
		gone.leastMiB = min(gone.leastMiB, d.UsedMiB)
		if gone.leftMiB = c.left(gone, d, holders); gone.leftMiB == 0 {
			delete(c.departures, key)
		}
	}
}

// left is how much memory of an ended job is still in use.
func (c *cardState) left(gone *departure, d *Device, holders []cardHolder) int64 {
	var listedMiB int64
	var still []int // a pid that was gone once is another process when it returns
	for _, p := range d.Processes {
		if slices.Contains(gone.pids, p.PID) {
			still = append(still, p.PID)
			listedMiB += max(1, p.UsedMiB)
		}
	}
	gone.pids = still
	if c.hidden {
		return max(listedMiB, d.UsedMiB-gone.allowedMiB(d, holders))
	}
	// Each process may account for a little more than its own memory.
	allowedMiB := gone.beforeMiB + leftMiB*int64(1+len(d.Processes))
	if restMiB := c.unexplainedMiB - allowedMiB; restMiB > 0 {
		listedMiB += restMiB
	}
	return listedMiB
}

// allowedMiB is how much may be in use without being the ended job's if the
// driver does not show the memory of each process: the external use and the
// budgets of other jobs.
func (gone *departure) allowedMiB(d *Device, holders []cardHolder) int64 {
	allowedMiB := gone.baselineMiB + leftMiB
	for _, h := range holders {
		if h.budgetMiB <= 0 {
			return d.TotalMiB // a job that holds the whole card may use all of it
		}
		allowedMiB += h.budgetMiB
	}
	return allowedMiB
}
