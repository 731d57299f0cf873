package engine

import (
	"fmt"
	"time"

	"berth/internal/job"
)

// DefaultIdleAfter is after how long without use a job is told of, where
// nobody says otherwise.
const DefaultIdleAfter = 30 * time.Minute

// SetIdle changes after how long a job that holds device memory and does not
// use its cards is told of, and after how long it is cancelled; 0: never.
func (t *Turn) SetIdle(after, cancel time.Duration) {
	t.cfg.IdleAfter, t.cfg.IdleCancel = after, cancel
}

// IdleSince is since when a running job has not used the cards on which it
// holds memory. It is only said once that was long enough to be told of.
func (t *Turn) IdleSince(id string) (time.Time, bool) {
	a := t.active[id]
	if a == nil || !a.idleTold {
		return time.Time{}, false
	}
	return a.idleSince, true
}

// watchIdle takes in who used their cards in the last sample.
func (t *Turn) watchIdle() {
	for _, id := range t.activeIDs() {
		a := t.active[id]
		card, heldMiB, idle := t.meter.Idle(id, a.job.Grant.GPUs)
		switch {
		case !idle:
			a.idleSince, a.idleTold = time.Time{}, false
			continue
		case a.idleSince.IsZero() || a.idleSince.After(t.Now):
			a.idleSince = t.Now
		}
		span := t.Now.Sub(a.idleSince)
		if after := t.cfg.IdleAfter; after > 0 && span >= after && !a.idleTold {
			a.idleTold = true
			t.tell(job.EventIdle, a.job, fmt.Sprintf("holds %d MiB on gpu%d, unused for %s", heldMiB, card, brief(after)))
		}
		if cancel := t.cfg.IdleCancel; cancel > 0 && span >= cancel && a.job.Stop == job.NoStop && a.job.Spec.Adopt == nil {
			a.job.Detail = fmt.Sprintf("idle for %s: the administrator's policy", brief(cancel))
			t.stop(a.job, job.StopCancel, a.job.Spec.Grace)
		}
	}
}

// brief is a duration without the zeros that follow its last number: 2h, 30m,
// 1h30m, 45s.
func brief(d time.Duration) string {
	d = d.Round(time.Second)
	text := ""
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		if n := d / unit.length; n > 0 {
			text += fmt.Sprintf("%d%s", n, unit.name)
			d %= unit.length
		}
	}
	if text == "" {
		return "0s"
	}
	return text
}
