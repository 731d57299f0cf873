package gpu

// IdleHoldMiB is what a job must exceed to hold memory on its cards: a bare
// context is larger on any card.
const IdleHoldMiB = 64

// Unused reports whether a job used none of its cards in the last sample, and
// what it holds on the card where it holds most. An unknown use counts as use,
// and so does memory that may be the job's.
func (m *Meter) Unused(key string, cards []int) (card int, heldMiB int64, unused bool) {
	j := m.jobs[key]
	if j == nil || len(cards) == 0 {
		return 0, 0, false
	}
	for _, index := range cards {
		nowMiB, measured := j.nowMiB[index]
		if c := m.cards[index]; c == nil || !c.unusedBy(key) || !measured && !c.emptyBut(key) {
			return 0, 0, false
		}
		if nowMiB > heldMiB {
			card, heldMiB = index, nowMiB
		}
	}
	return card, heldMiB, true
}

// emptyBut reports whether the memory in use is known to be other jobs', or next
// to nothing. A job that was never seen on a card may have its processes in a
// container, where they count as external.
func (c *cardState) emptyBut(key string) bool {
	if !c.sampled || c.usedMiB < 0 {
		return false
	}
	if c.blindRow > 0 || c.unlistedRow > 0 {
		return c.usedMiB <= IdleHoldMiB
	}
	return c.baselineMiB <= IdleHoldMiB && !c.usedBy[key]
}

// unusedBy reports whether the card was idle, or known to work for others
// only.
func (c *cardState) unusedBy(key string) bool {
	// If no process used the card, the shares are unknown, whatever they say.
	return c.utilPct == 0 || c.used && !c.usedBy[key]
}

// noteUse records which jobs used the card.
func (c *cardState) noteUse() {
	if c.usedBy == nil {
		c.usedBy = map[string]bool{}
	}
	clear(c.usedBy)
	c.used = false
	for _, t := range c.processes {
		c.used = c.used || t.utilPct > 0
		if t.utilPct != 0 {
			c.usedBy[t.key] = true // or may have
		}
	}
}
