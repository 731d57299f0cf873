package engine

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"berth/internal/gpu"
	"berth/internal/job"
	"berth/internal/keep"
)

// healthKey is where the store keeps how the cards stand.
const healthKey = "health"

// leftPatience is how long the memory of a job may take to become free before
// its card is suspect.
const leftPatience = 30 * time.Second

// heed tells what changed about the cards, and those whose jobs are on them.
func (e *Engine) heed(changes []gpu.HealthChange) {
	for _, c := range changes {
		text := c.String()
		if c.Odd || c.Note == "" && c.To.State > c.From.State {
			e.cfg.Log.Warn(text, "uuid", c.UUID, "cause", c.To.Cause)
		} else {
			e.cfg.Log.Info(text, "uuid", c.UUID)
		}
		e.tell(job.EventCard, nil, text)
		if c.Note == "" && c.To.State == gpu.HealthQuarantined && c.From.State != gpu.HealthQuarantined {
			e.tellJobsOn(c)
		}
		e.moved = true
	}
	e.saveHealth()
}

// tellJobsOn says of each job on a card that was quarantined that it is there.
// It goes on: what it has done so far may be all it needs.
func (e *Engine) tellJobsOn(c gpu.HealthChange) {
	for _, id := range e.activeIDs() {
		a := e.active[id]
		if !slices.Contains(a.job.Grant.UUIDs, c.UUID) {
			continue
		}
		a.trouble = whileItRan(c.Index, c.To)
		e.tell(job.EventCard, a.job, fmt.Sprintf("%s; job %s goes on", c, id))
	}
}

// whileItRan is what became of a card, for the jobs that were on it.
func whileItRan(index int, v gpu.Verdict) string {
	what := "quarantined"
	if v.Cause == gpu.CauseLost {
		what = "lost"
	}
	return fmt.Sprintf("gpu%d was %s while it ran (%s)", index, what, v.Reason)
}

// recallTrouble finds out that a job is on a quarantined card, after a restart.
// It may have ended meanwhile.
func (e *Engine) recallTrouble(a *attempt) {
	for i, uuid := range a.job.Grant.UUIDs {
		if v := e.health.Of(uuid); v.State == gpu.HealthQuarantined && a.trouble == "" {
			a.trouble = whileItRan(a.job.Grant.GPUs[i], v)
		}
	}
}

// blame adds to how a job failed that its card was in trouble.
func (a *attempt) blame(detail string) string {
	switch {
	case a.trouble == "":
		return detail
	case detail == "":
		return a.trouble
	}
	return a.trouble + "; " + detail
}

// SetHealth is a person's word about a card. It reports false for a card that
// does not exist.
func (e *Engine) SetHealth(now time.Time, index int, state gpu.HealthState, by, reason string) bool {
	e.now = now
	d, known := e.cards.known[index]
	if !known {
		return false
	}
	changes := e.health.Set(now, d, state, by, reason)
	if state == gpu.HealthOK {
		e.meter.Accept(index)
		delete(e.cards.left, index)
		e.moved = true
	}
	e.heed(changes)
	return true
}

// HealthOf is how a card stands.
func (e *Engine) HealthOf(uuid string) gpu.Verdict { return e.health.Of(uuid) }

// Trouble is what happened to a running job's cards; empty: nothing did.
func (e *Engine) Trouble(id string) string {
	if a := e.active[id]; a != nil {
		return a.trouble
	}
	return ""
}

// checkLeft looks after the memory of jobs that ended: until it is free the
// card is closed, and beyond all patience suspect.
func (e *Engine) checkLeft() {
	for _, index := range slices.Sorted(maps.Keys(e.cards.known)) {
		d := e.cards.known[index]
		left, is := e.meter.Left(index)
		_, was := e.cards.left[index]
		switch {
		case is && e.now.Sub(left.At) >= leftPatience && left.Blind:
			// Some was given back, and whose the rest is nobody can tell: it
			// is held for strangers.
			e.meter.Accept(index)
			delete(e.cards.left, index)
		case is:
			e.cards.left[index] = left
			if e.now.Sub(left.At) >= leftPatience && !e.cards.overdue[index] {
				e.cards.overdue[index] = true
				e.heed(e.health.Leftover(e.now, d.UUID, fmt.Sprintf("%s, %s after its end", left, leftPatience), left.LimitMiB))
			}
		case was && e.cards.present[index]:
			delete(e.cards.left, index)
		}
		if _, still := e.cards.left[index]; !still && e.cards.overdue[index] {
			delete(e.cards.overdue, index)
			e.heed(e.health.Leftover(e.now, d.UUID, "", 0))
		}
	}
}

// saveHealth lets what the next berth should know ride on the next commit.
func (e *Engine) saveHealth() {
	if !e.health.Changed() {
		return
	}
	data, err := e.health.Save(keep.BootID())
	if err != nil {
		panic("bug: " + err.Error())
	}
	e.meta[healthKey] = string(data)
}

// ForgetHealth has the store forget how the cards stood for an earlier berth.
func (e *Engine) ForgetHealth() { e.meta[healthKey] = "" }

// RestoreHealth takes over how the cards stood for an earlier berth.
func (e *Engine) RestoreHealth(meta func(key string) (string, error)) error {
	value, err := meta(healthKey)
	if err != nil || value == "" {
		return err
	}
	return e.health.Restore([]byte(value), keep.BootID())
}
