package gpu

// idleHoldMiB is how much a job must hold to be reported as idle: a bare
// context is smaller on any card.
const idleHoldMiB = 64

// Idle reports whether a job holds memory on its cards and used none of them
// in the last sample, and on which card it holds most. An unknown use does not
// count as idle.
func (m *Meter) Idle(key string, cards []int) (card int, heldMiB int64, idle bool) {
	j := m.jobs[key]
	if j == nil || len(cards) == 0 {
		return 0, 0, false
	}
	for _, index := range cards {
		nowMiB, measured := j.nowMiB[index]
		if c := m.cards[index]; !measured || c == nil || !c.unusedBy(key) {
			return 0, 0, false
		}
		if nowMiB > heldMiB {
			card, heldMiB = index, nowMiB
		}
	}
	return card, heldMiB, heldMiB > idleHoldMiB
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
