package daemon

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	retainEvery = time.Hour
	retainFirst = 5 * time.Minute
	retainLook  = time.Minute // how often it looks whether one user floods the store
	jumpAllowed = 10 * time.Minute
)

// tidier deletes what is too old or too much.
type tidier struct {
	svc      *service
	samples  *samples
	record   *cardRecord
	untidied atomic.Int64  // events since old data was last deleted
	pastText atomic.Int64  // the text of ended jobs when too much of it was last deleted
	wrote    chan struct{} // jobs with much text ended
	reloaded chan struct{} // the config was read again
}

// tidy deletes what is older or more than the config allows: regularly, after
// the config was read again, and if there is suddenly much more of it.
func (t *tidier) tidy(ctx context.Context) {
	look := time.NewTicker(retainLook)
	defer look.Stop()
	last := time.Now()
	due := last.Add(retainFirst)
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.reloaded:
			due = time.Time{}
		case <-t.wrote:
		case <-look.C:
		}
		if t.wordy() {
			t.pastText.Store(t.svc.queue.Store.PastText())
			if err := dropText(*t.svc.Config(), t.svc.queue.Store, t.svc.queue.Log); err != nil {
				t.svc.queue.Log.Error("tidy", "err", err)
			}
		}
		now := time.Now()
		regular := !now.Before(due)
		cfg, ok := retainNow(*t.svc.Config(), regular, t.untidied.Load())
		if !ok {
			continue
		}
		if regular {
			jumped := now.Round(0).Sub(last.Round(0)) - now.Sub(last)
			last, due = now, now.Add(retainEvery)
			if jumped.Abs() > jumpAllowed {
				// Right after the clock was set, everything may look old.
				t.svc.queue.Log.Warn("the clock was changed; old data is not deleted this time", "by", jumped)
				continue
			}
			t.record.noteCards(ctx)
		}
		t.untidied.Store(0)
		forgotten, err := retain(now, cfg, t.svc.queue.Store, t.svc.people.JobsDir, t.svc.queue.Log)
		if err != nil {
			t.svc.queue.Log.Error("tidy", "err", err)
		} else if forgotten > 0 {
			t.svc.queue.Log.Info("tidied", "jobs", forgotten)
		}
		if forgotten > 0 {
			t.samples.forgetSamples()
		}
	}
}

// wordy reports whether jobs with so much text ended that one user may have too
// much of it.
func (t *tidier) wordy() bool {
	return t.svc.queue.Store.PastText()-t.pastText.Load() > t.svc.Config().HistoryText/4
}
