package soak

import (
	"context"
	"errors"
	"sync"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// watcher is somebody who follows the daemon's events, whatever becomes of
// the daemon.
type watcher struct {
	h    *host
	stop context.CancelFunc
	over chan struct{}

	mu    sync.Mutex
	last  int64
	ended map[string][]string // the reported outcomes of each job
}

func (h *host) watch() *watcher {
	ctx, stop := context.WithCancel(context.Background())
	w := &watcher{h: h, stop: stop, over: make(chan struct{}), ended: map[string][]string{}}
	client := api.Dial(h.socket)
	go func() {
		defer close(w.over)
		if err := client.Events(ctx, api.EventQuery{}, w.heard); !errors.Is(err, context.Canceled) {
			h.t.Errorf("follow events: %v", err)
		}
	}()
	h.t.Cleanup(func() {
		stop()
		<-w.over
		client.Close()
	})
	return w
}

func (w *watcher) connected() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last > 0
}

func (w *watcher) heard(ev api.Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ev.Seq != 0 {
		if ev.Seq <= w.last {
			w.h.t.Errorf("event %d (%s) comes after event %d", ev.Seq, ev.Kind, w.last)
		}
		w.last = ev.Seq
	}
	if ev.Kind == job.EventEnded {
		w.ended[ev.Job.ID] = append(w.ended[ev.Job.ID], outcome(*ev.Job))
	}
	return nil
}

// mustHaveSeen checks that every job's end was told once, and as it was.
func (w *watcher) mustHaveSeen(c *crowd) {
	c.t.Helper()
	jobs := c.host.all()
	testkit.Eventually(c.t, "every end is told", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.ended) >= len(jobs)
	})
	again := map[string]bool{} // who was sent back after its end was ended twice
	for _, wish := range c.wishes.all {
		if wish.then == "requeue" && wish.ids != nil {
			again[wish.ids[0]] = true
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, outcomes := range w.ended {
		if len(outcomes) != 1 && !again[id] || outcomes[len(outcomes)-1] != outcome(jobs[id]) {
			c.t.Errorf("job %s ended %s, but was told to have ended %v", id, outcome(jobs[id]), outcomes)
		}
	}
}
