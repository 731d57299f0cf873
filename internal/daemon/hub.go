package daemon

import (
	"context"
	"sync"

	"berth/internal/job"
)

// How many events a listener may be behind before it is told that it missed
// some: one who wants all, and one who waits for a job or few.
const (
	hubBuffer  = 4096
	fewHeard   = 16
	heardOfOne = 4 // events of a job, about
)

// hub tells everyone who listens what happened. It never waits for anyone.
type hub struct {
	mu        sync.Mutex
	listeners map[*listener]struct{}
	closed    bool
}

// listener is one who listens.
type listener struct {
	events chan job.Event
	want   func(id string) bool // nil: everything
}

func newHub() *hub { return &hub{listeners: map[*listener]struct{}{}} }

// publish is called by the engine after events are on disk. Jobs in events are
// copies that nobody changes any more.
func (h *hub) publish(events []job.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.listeners {
		for _, ev := range events {
			if l.want != nil && (ev.Job == nil || !l.want(ev.Job.ID)) {
				continue
			}
			select {
			case l.events <- ev:
				continue
			default:
			}
			// It has to start over from what it saw last.
			delete(h.listeners, l)
			close(l.events)
			break
		}
	}
}

// listen starts to listen to everything; leave ends it.
func (h *hub) listen() *listener {
	return h.add(&listener{events: make(chan job.Event, hubBuffer)})
}

// listenTo starts to listen to some jobs: there may be thousands who do, so
// each has little room.
func (h *hub) listenTo(jobs int, want func(id string) bool) *listener {
	return h.add(&listener{events: make(chan job.Event, min(fewHeard+heardOfOne*jobs, hubBuffer)), want: want})
}

func (h *hub) add(l *listener) *listener {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		close(l.events)
		return l
	}
	h.listeners[l] = struct{}{}
	return l
}

func (h *hub) leave(l *listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, listens := h.listeners[l]; listens {
		delete(h.listeners, l)
		close(l.events)
	}
}

// close ends every stream.
func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for l := range h.listeners {
		delete(h.listeners, l)
		close(l.events)
	}
}

// next is the next event; false: the stream is over.
func (l *listener) next(ctx context.Context) (job.Event, bool) {
	select {
	case ev, ok := <-l.events:
		return ev, ok
	case <-ctx.Done():
		return job.Event{}, false
	}
}
