package cards

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/machine/keep"
	"berth/internal/text"
)

// healthKey is the store's key for the health of the cards, PausedKey for the
// paused ones.
const (
	HealthKey = "health"
	PausedKey = "paused"
)

// LeftPatience is how long an ended job's memory may stay in use before its card
// is suspect.
const LeftPatience = 30 * time.Second

// Heed reports changes of health, also to the jobs on those cards.
func (c *Cards) Heed(now time.Time, changes []gpu.HealthChange) {
	for _, change := range changes {
		text := change.String()
		if change.Odd || change.Note == "" && change.To.State > change.From.State {
			c.cfg.Log.Warn(text, "uuid", change.UUID, "cause", change.To.Cause)
		} else {
			c.cfg.Log.Info(text, "uuid", change.UUID)
		}
		c.changes.TellCard(now, CardChange(change), nil, text)
		if change.Note == "" && change.To.State == gpu.HealthQuarantined && change.From.State != gpu.HealthQuarantined {
			c.Holders.TellJobsOn(now, change)
		}
		c.Moved = true
	}
	c.saveHealth()
}

// CardChange is the same as a value.
func CardChange(c gpu.HealthChange) job.CardChange {
	return job.CardChange{GPU: &c.Index, By: c.By, Bad: c.Note == "" && c.To.State != gpu.HealthOK}
}

// SetHealth sets a card's health for a user. It returns false if there is no
// such card.
func (c *Cards) SetHealth(now time.Time, index int, state gpu.HealthState, by, reason string) bool {
	d, known := c.Book.Known[index]
	if !known {
		return false
	}
	changes := c.Book.Health.Set(now, d, state, by, reason)
	if state == gpu.HealthOK {
		c.Meter.Accept(index)
		delete(c.Book.left, index)
		c.Moved = true
	}
	c.Heed(now, changes)
	return true
}

// Pause stops jobs from starting on a card, or lets them start again; running
// jobs are not touched. It returns false if there is no such card.
func (c *Cards) Pause(now time.Time, index int, paused bool, by string) bool {
	d, known := c.Book.Known[index]
	if !known {
		return false
	}
	if _, is := c.Book.paused[d.UUID]; is == paused {
		return true
	}
	told := fmt.Sprintf("gpu%d resumed by %s", index, by)
	if paused {
		told = fmt.Sprintf("gpu%d paused by %s", index, by)
		c.Book.paused[d.UUID] = by
	} else {
		delete(c.Book.paused, d.UUID)
	}
	c.changes.Meta[PausedKey] = string(text.MustJSON(c.Book.paused))
	c.changes.TellCard(now, job.CardChange{GPU: &index, By: by}, nil, told)
	c.Moved = true
	return true
}

// CheckLeft watches the memory of ended jobs: until it is free the card is
// closed, and if it takes too long the card is suspect.
func (c *Cards) CheckLeft(now time.Time) {
	for _, index := range slices.Sorted(maps.Keys(c.Book.Known)) {
		d := c.Book.Known[index]
		left, is := c.Meter.Left(index)
		_, was := c.Book.left[index]
		switch {
		case is && now.Sub(left.At) >= LeftPatience && left.Blind:
			// Part of it was freed, and the rest cannot be attributed: it counts
			// as external.
			c.Meter.Accept(index)
			delete(c.Book.left, index)
		case is:
			c.Book.left[index] = left
			if now.Sub(left.At) >= LeftPatience && !c.Book.overdue[index] {
				c.Book.overdue[index] = true
				c.Heed(now, c.Book.Health.Leftover(now, d.UUID, fmt.Sprintf("%s, %s after its end", left, LeftPatience), left.LimitMiB))
			}
		case was && c.Book.Present[index]:
			delete(c.Book.left, index)
		}
		if _, still := c.Book.left[index]; !still && c.Book.overdue[index] {
			delete(c.Book.overdue, index)
			c.Heed(now, c.Book.Health.Leftover(now, d.UUID, "", 0))
		}
	}
}

// saveHealth adds the health of the cards to the next commit.
func (c *Cards) saveHealth() {
	if !c.Book.Health.Changed() {
		return
	}
	data, err := c.Book.Health.Save(keep.BootID())
	if err != nil {
		panic("bug: " + err.Error())
	}
	c.changes.Meta[HealthKey] = string(data)
}

// RestoreHealth takes over the health of the cards from an earlier berth.
func (c *Cards) RestoreHealth(meta func(key string) (string, error)) error {
	value, err := meta(HealthKey)
	if err != nil || value == "" {
		return err
	}
	return c.Book.Health.Restore([]byte(value), keep.BootID())
}

// RestorePauses takes over the paused cards from an earlier berth.
func (c *Cards) RestorePauses(meta func(key string) (string, error)) error {
	value, err := meta(PausedKey)
	if err != nil || value == "" {
		return err
	}
	if err := json.Unmarshal([]byte(value), &c.Book.paused); err != nil {
		return fmt.Errorf("read the paused GPUs: %w", err)
	}
	return nil
}
