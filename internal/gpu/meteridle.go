package gpu

// idleHoldMiB is how much a job must hold before it is worth telling that it
// does nothing with it: a bare context is less on any card.
const idleHoldMiB = 64

// Idle reports whether a job holds memory on its cards and used none of them
// in the last sample; and on which of them it holds most. What is not known is
// not idle.
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

// unusedBy is true where the card did nothing at all, or where what it did is
// known to have been for others.
func (c *cardState) unusedBy(key string) bool {
	// Without anyone who used it the parts are not told, whatever they say.
	return c.utilPct == 0 || c.used && !c.usedBy[key]
}

// noteUse takes in who used the card, once for all jobs there.
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
