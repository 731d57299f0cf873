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
func (t *Turn) heed(changes []gpu.HealthChange) {
	for _, c := range changes {
		text := c.String()
		if c.Odd || c.Note == "" && c.To.State > c.From.State {
			t.cfg.Log.Warn(text, "uuid", c.UUID, "cause", c.To.Cause)
		} else {
			t.cfg.Log.Info(text, "uuid", c.UUID)
		}
		t.tell(job.EventCard, nil, text)
		if c.Note == "" && c.To.State == gpu.HealthQuarantined && c.From.State != gpu.HealthQuarantined {
			t.tellJobsOn(c)
		}
		t.moved = true
	}
	t.saveHealth()
}

// tellJobsOn says of each job on a card that was quarantined that it is there.
// It goes on: what it has done so far may be all it needs.
func (t *Turn) tellJobsOn(c gpu.HealthChange) {
	for _, id := range t.activeIDs() {
		a := t.active[id]
		if !slices.Contains(a.job.Grant.UUIDs, c.UUID) {
			continue
		}
		a.trouble = whileItRan(c.Index, c.To)
		t.tell(job.EventCard, a.job, fmt.Sprintf("%s; job %s goes on", c, id))
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
func (t *Turn) recallTrouble(a *attempt) {
	for i, uuid := range a.job.Grant.UUIDs {
		if v := t.health.Of(uuid); v.State == gpu.HealthQuarantined && a.trouble == "" {
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
func (t *Turn) SetHealth(index int, state gpu.HealthState, by, reason string) bool {
	d, known := t.cards.known[index]
	if !known {
		return false
	}
	changes := t.health.Set(t.Now, d, state, by, reason)
	if state == gpu.HealthOK {
		t.meter.Accept(index)
		delete(t.cards.left, index)
		t.moved = true
	}
	t.heed(changes)
	return true
}

// HealthOf is how a card stands.
func (t *Turn) HealthOf(uuid string) gpu.Verdict { return t.health.Of(uuid) }

// Trouble is what happened to a running job's cards; empty: nothing did.
func (t *Turn) Trouble(id string) string {
	if a := t.active[id]; a != nil {
		return a.trouble
	}
	return ""
}

// checkLeft looks after the memory of jobs that ended: until it is free the
// card is closed, and beyond all patience suspect.
func (t *Turn) checkLeft() {
	for _, index := range slices.Sorted(maps.Keys(t.cards.known)) {
		d := t.cards.known[index]
		left, is := t.meter.Left(index)
		_, was := t.cards.left[index]
		switch {
		case is && t.Now.Sub(left.At) >= leftPatience && left.Blind:
			// Some was given back, and whose the rest is nobody can tell: it
			// is held for strangers.
			t.meter.Accept(index)
			delete(t.cards.left, index)
		case is:
			t.cards.left[index] = left
			if t.Now.Sub(left.At) >= leftPatience && !t.cards.overdue[index] {
				t.cards.overdue[index] = true
				t.heed(t.health.Leftover(t.Now, d.UUID, fmt.Sprintf("%s, %s after its end", left, leftPatience), left.LimitMiB))
			}
		case was && t.cards.present[index]:
			delete(t.cards.left, index)
		}
		if _, still := t.cards.left[index]; !still && t.cards.overdue[index] {
			delete(t.cards.overdue, index)
			t.heed(t.health.Leftover(t.Now, d.UUID, "", 0))
		}
	}
}

// saveHealth lets what the next berth should know ride on the next commit.
func (t *Turn) saveHealth() {
	if !t.health.Changed() {
		return
	}
	data, err := t.health.Save(keep.BootID())
	if err != nil {
		panic("bug: " + err.Error())
	}
	t.meta[healthKey] = string(data)
}

// ForgetHealth has the store forget how the cards stood for an earlier berth.
func (t *Turn) ForgetHealth() { t.meta[healthKey] = "" }

// RestoreHealth takes over how the cards stood for an earlier berth.
func (t *Turn) RestoreHealth(meta func(key string) (string, error)) error {
	value, err := meta(healthKey)
	if err != nil || value == "" {
		return err
	}
	return t.health.Restore([]byte(value), keep.BootID())
}
