package engine

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"berth/internal/gpu"
	"berth/internal/job"
	"berth/internal/keep"
)

// healthKey is the store's key for the health of the cards, pausedKey for the
// paused ones.
const (
	healthKey = "health"
	pausedKey = "paused"
)

// leftPatience is how long an ended job's memory may stay in use before its card
// is suspect.
const leftPatience = 30 * time.Second

// heed reports changes of health, also to the jobs on those cards.
func (c *cards) heed(now time.Time, changes []gpu.HealthChange) {
	for _, change := range changes {
		text := change.String()
		if change.Odd || change.Note == "" && change.To.State > change.From.State {
			c.cfg.Log.Warn(text, "uuid", change.UUID, "cause", change.To.Cause)
		} else {
			c.cfg.Log.Info(text, "uuid", change.UUID)
		}
		c.changes.tellCard(now, cardChange(change), nil, text)
		if change.Note == "" && change.To.State == gpu.HealthQuarantined && change.From.State != gpu.HealthQuarantined {
			c.quarantined(now, change)
		}
		c.moved = true
	}
	c.saveHealth()
}

// cardChange is the same as a value.
func cardChange(c gpu.HealthChange) job.CardChange {
	return job.CardChange{GPU: &c.Index, By: c.By, Bad: c.Note == "" && c.To.State != gpu.HealthOK}
}

// setHealth sets a card's health for a user. It returns false if there is no
// such card.
func (c *cards) setHealth(now time.Time, index int, state gpu.HealthState, by, reason string) bool {
	d, known := c.book.known[index]
	if !known {
		return false
	}
	changes := c.book.health.Set(now, d, state, by, reason)
	if state == gpu.HealthOK {
		c.meter.Accept(index)
		delete(c.book.left, index)
		c.moved = true
	}
	c.heed(now, changes)
	return true
}

// pause stops jobs from starting on a card, or lets them start again; running
// jobs are not touched. It returns false if there is no such card.
func (c *cards) pause(now time.Time, index int, paused bool, by string) bool {
	d, known := c.book.known[index]
	if !known {
		return false
	}
	if _, is := c.book.paused[d.UUID]; is == paused {
		return true
	}
	text := fmt.Sprintf("gpu%d resumed by %s", index, by)
	if paused {
		text = fmt.Sprintf("gpu%d paused by %s", index, by)
		c.book.paused[d.UUID] = by
	} else {
		delete(c.book.paused, d.UUID)
	}
	value, err := json.Marshal(c.book.paused)
	if err != nil {
		panic("bug: " + err.Error())
	}
	c.changes.meta[pausedKey] = string(value)
	c.changes.tellCard(now, job.CardChange{GPU: &index, By: by}, nil, text)
	c.moved = true
	return true
}

// checkLeft watches the memory of ended jobs: until it is free the card is
// closed, and if it takes too long the card is suspect.
func (c *cards) checkLeft(now time.Time) {
	for _, index := range slices.Sorted(maps.Keys(c.book.known)) {
		d := c.book.known[index]
		left, is := c.meter.Left(index)
		_, was := c.book.left[index]
		switch {
		case is && now.Sub(left.At) >= leftPatience && left.Blind:
			// Part of it was freed, and the rest cannot be attributed: it counts
			// as external.
			c.meter.Accept(index)
			delete(c.book.left, index)
		case is:
			c.book.left[index] = left
			if now.Sub(left.At) >= leftPatience && !c.book.overdue[index] {
				c.book.overdue[index] = true
				c.heed(now, c.book.health.Leftover(now, d.UUID, fmt.Sprintf("%s, %s after its end", left, leftPatience), left.LimitMiB))
			}
		case was && c.book.present[index]:
			delete(c.book.left, index)
		}
		if _, still := c.book.left[index]; !still && c.book.overdue[index] {
			delete(c.book.overdue, index)
			c.heed(now, c.book.health.Leftover(now, d.UUID, "", 0))
		}
	}
}

// saveHealth adds the health of the cards to the next commit.
func (c *cards) saveHealth() {
	if !c.book.health.Changed() {
		return
	}
	data, err := c.book.health.Save(keep.BootID())
	if err != nil {
		panic("bug: " + err.Error())
	}
	c.changes.meta[healthKey] = string(data)
}

// restoreHealth takes over the health of the cards from an earlier berth.
func (c *cards) restoreHealth(meta func(key string) (string, error)) error {
	value, err := meta(healthKey)
	if err != nil || value == "" {
		return err
	}
	return c.book.health.Restore([]byte(value), keep.BootID())
}

// restorePauses takes over the paused cards from an earlier berth.
func (c *cards) restorePauses(meta func(key string) (string, error)) error {
	value, err := meta(pausedKey)
	if err != nil || value == "" {
		return err
	}
	if err := json.Unmarshal([]byte(value), &c.book.paused); err != nil {
		return fmt.Errorf("read the paused GPUs: %w", err)
	}
	return nil
}
