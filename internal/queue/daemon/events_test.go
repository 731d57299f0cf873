package daemon

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"berth/internal/api"
	"berth/internal/job"
)

// hearing collects a stream of events.
type hearing struct {
	mu     sync.Mutex
	events []api.Event
	cancel context.CancelFunc
	done   chan struct{}
}

func (l *lab) hear(q api.EventQuery) *hearing {
	ctx, cancel := context.WithCancel(l.ctx)
	h := &hearing{cancel: cancel, done: make(chan struct{})}
	client := api.Dial(l.opt.Places.Socket)
	go func() {
		defer close(h.done)
		defer client.Close()
		_ = client.Events(ctx, q, func(ev api.Event) error {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.events = append(h.events, ev)
			return nil
		})
	}()
	l.t.Cleanup(h.stop)
	return h
}

func (h *hearing) stop() { h.cancel(); <-h.done }

func (h *hearing) all() []api.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.events)
}

// has reports whether an event of that kind about that job was heard.
func (h *hearing) has(kind job.EventKind, id string) bool {
	return slices.ContainsFunc(h.all(), func(ev api.Event) bool { return ev.Kind == kind && (id == "" || ev.Job != nil && ev.Job.ID == id) })
}

func TestEventsTellWhatHappens(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	h := l.hear(api.EventQuery{Since: -1})
	l.until("it is heard", func() bool { return l.d.svc.hub.count() > 0 })
	id := l.one(sh("exit 2", "gpus", "0"))
	l.until("the end is told", func() bool { return h.has(job.EventEnded, id) })
	var kinds []job.EventKind
	for _, ev := range h.all() {
		if ev.Job != nil && ev.Job.ID == id {
			kinds = append(kinds, ev.Kind)
		}
	}
	if !slices.Equal(kinds, []job.EventKind{job.EventQueued, job.EventStarted, job.EventEnded}) {
		t.Errorf("told %v", kinds)
	}
	last := h.all()[len(h.all())-1]
	if last.Seq == 0 || last.Time.IsZero() || value(last.Job.ExitCode) != 2 || last.Job.State != job.Failed {
		t.Errorf("%+v", last)
	}
}

// TestEventsAreReplayedWithoutGapOrRepeat: streams that begin anywhere, while
// things go on, tell each numbered event after that once and in order.
func TestEventsAreReplayedWithoutGapOrRepeat(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	const jobs = 40
	var streams []*hearing
	var since []int64
	for range jobs {
		now, err := l.d.svc.queue.Store.LastEvent()
		if err != nil {
			t.Fatal(err)
		}
		since = append(since, max(0, now-int64(len(since)%5)))
		streams = append(streams, l.hear(api.EventQuery{Since: since[len(since)-1]}))
		l.one(sh("true", "gpus", "0"))
	}
	l.until("all is over", func() bool { return l.count(job.Finished) == jobs })
	last, err := l.d.svc.queue.Store.LastEvent()
	if err != nil {
		t.Fatal(err)
	}
	for i, h := range streams {
		l.until("the last event is told", func() bool {
			all := h.all()
			return slices.ContainsFunc(all, func(ev api.Event) bool { return ev.Seq == last })
		})
		want := since[i]
		for _, ev := range h.all() {
			if ev.Seq == 0 {
				continue
			}
			if want++; ev.Seq != want {
				t.Fatalf("after %d: event %d follows %d", since[i], ev.Seq, want-1)
			}
		}
	}
}

func TestAStreamGoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	h := l.hear(api.EventQuery{Since: 0})
	first := l.one(sh("true", "gpus", "0"))
	l.until("the first is told", func() bool { return h.has(job.EventEnded, first) })
	l.restart()
	second := l.one(sh("true", "gpus", "0"))
	l.until("the second is told", func() bool { return h.has(job.EventEnded, second) })
	seen := map[int64]bool{}
	for _, ev := range h.all() {
		if ev.Seq > 0 && seen[ev.Seq] {
			t.Errorf("event %d was told twice", ev.Seq)
		}
		seen[ev.Seq] = true
	}
}

func TestANumberOfTheFutureHidesNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	h := l.hear(api.EventQuery{Since: 1 << 40})
	l.until("it is heard", func() bool { return l.d.svc.hub.count() > 0 })
	id := l.one(sh("true", "gpus", "0"))
	l.until("the end is told", func() bool { return h.has(job.EventEnded, id) })
}

func TestEventsAreFiltered(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	array := l.one(sh("true", "gpus", "0", "array", "0-2", "hold", "yes"))
	other := l.one(sh("true", "gpus", "0", "hold", "yes"))
	ofJob, ofArray := l.hear(api.EventQuery{Since: 0, Job: array + "_1"}), l.hear(api.EventQuery{Since: 0, Job: array})
	ofUser, ofNobody := l.hear(api.EventQuery{Since: 0, User: l.job(other).User}), l.hear(api.EventQuery{Since: 0, User: "nobody-else"})
	l.until("all listen", func() bool { return l.d.svc.hub.count() == 4 })
	l.act(api.ActRelease, array, other)
	l.until("all is told", func() bool {
		return ofUser.has(job.EventEnded, other) && ofArray.has(job.EventEnded, array+"_2") && ofJob.has(job.EventEnded, array+"_1") &&
			ofArray.has(job.EventEnded, array+"_0") && ofArray.has(job.EventEnded, array+"_1")
	})
	for _, ev := range append(ofJob.all(), ofArray.all()...) {
		if ev.Job == nil || !strings.HasPrefix(ev.Job.ID, array+"_") {
			t.Errorf("heard of %+v", ev)
		}
	}
	for _, ev := range ofJob.all() {
		if ev.Job.ID != array+"_1" {
			t.Errorf("heard of %s", ev.Job.ID)
		}
	}
	if len(ofNobody.all()) > 0 {
		t.Errorf("heard of nobody: %+v", ofNobody.all())
	}
}

func TestEventsOfCards(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	h := l.hear(api.EventQuery{Since: -1, GPUs: true})
	l.until("the cards are told", func() bool { return h.has(job.EventGPUs, "") })
	line, _ := l.gate("gate")
	id := l.one(sh(line))
	l.until("a job on a card is told", func() bool {
		return slices.ContainsFunc(h.all(), func(ev api.Event) bool {
			return ev.Kind == job.EventGPUs && len(ev.GPUs) == 2 && slices.ContainsFunc(ev.GPUs[0].Jobs, func(j api.GPUJob) bool { return j.ID == id })
		})
	})
	if _, err := api.Call(l.ctx, l.Client, api.PauseGPU, api.GPUIndex{Index: 1}); err != nil {
		t.Fatal(err)
	}
	l.until("the pause is told", func() bool {
		return slices.ContainsFunc(h.all(), func(ev api.Event) bool { return ev.Kind == job.EventGPUs && len(ev.GPUs) == 2 && ev.GPUs[1].Paused })
	})
}

// TestASlowListenerIsLetGoAndHoldsNobodyUp: it stops reading; the daemon goes
// on, and it finds everything when it comes back.
func TestASlowListenerIsLetGoAndHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	block, blocked := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	var heard []int64
	over := make(chan error, 1)
	go func() {
		over <- l.d.events.Events(ctx, api.Caller{Admin: true}, api.EventQuery{Since: 0}, func(ev api.Event) error {
			if ev.Seq == 0 { // nothing kept: a reason to wait, say
				return nil
			}
			if heard = append(heard, ev.Seq); len(heard) == 1 {
				close(blocked)
				<-block
			}
			return nil
		})
	}()
	l.one(sh("true", "gpus", "0"))
	<-blocked
	l.submit(slices.Repeat([]api.Spec{sh("true", "hold", "yes")}, hubBuffer+100)...)
	l.act(api.ActCancel, "all")
	close(block)
	if err := <-over; err != nil {
		t.Errorf("it ended with %v", err)
	}
	after := int64(0)
	for _, seq := range heard {
		if seq != after+1 {
			t.Fatalf("event %d follows %d", seq, after)
		}
		after = seq
	}
	h := l.hear(api.EventQuery{Since: after})
	last, err := l.d.svc.queue.Store.LastEvent()
	if err != nil {
		t.Fatal(err)
	}
	l.until("it has caught up", func() bool {
		all := h.all()
		return len(all) > 0 && all[len(all)-1].Seq >= last
	})
	if first := h.all()[0].Seq; first != after+1 {
		t.Errorf("it goes on at %d after %d", first, after)
	}
}
