package daemon

import (
	"context"
	"sync"

	"berth/internal/api"
	"berth/internal/job"
)

// How many events a listener may be behind before it is told that it missed
// some: one that wants all, and one that waits for a few jobs.
const (
	hubBuffer  = 4096
	fewHeard   = 16
	heardOfOne = 4 // about the events of one job
)

// told is an event with what its listeners share: how it goes to callers who may see
// its job, and to others.
type told struct {
	job.Event
	open, hidden form
}

type form struct {
	once  sync.Once
	event *api.Event
}

// hub sends events to all listeners. It never waits for one.
type hub struct {
	mu        sync.Mutex
	listeners map[*listener]struct{}
	closed    bool
}

type listener struct {
	events chan *told
	want   func(id string) bool // nil: everything
}

func newHub() *hub { return &hub{listeners: map[*listener]struct{}{}} }

// publish is called by the engine after the events are on disk. The jobs in them
// are copies that nothing changes any more.
func (h *hub) publish(events []job.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.listeners) == 0 {
		return
	}
	all := make([]told, len(events))
	for i := range events {
		all[i].Event = events[i]
	}
	for l := range h.listeners {
		for i := range all {
			ev := &all[i]
			if l.want != nil && (ev.Job == nil || !l.want(ev.Job.ID)) {
				continue
			}
			select {
			case l.events <- ev:
				continue
			default:
			}
			// It has fallen behind and must start again from the last event it
			// saw.
			delete(h.listeners, l)
			close(l.events)
			break
		}
	}
}

// listen subscribes to everything; leave ends it.
func (h *hub) listen() *listener {
	return h.add(&listener{events: make(chan *told, hubBuffer)})
}

// listenTo subscribes to some jobs. There may be thousands of such listeners, so
// each has a small buffer.
func (h *hub) listenTo(jobs int, want func(id string) bool) *listener {
	return h.add(&listener{events: make(chan *told, min(fewHeard+heardOfOne*jobs, hubBuffer)), want: want})
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

func (h *hub) remove(l *listener) {
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

// next is the next event; false: the stream has ended.
func (l *listener) next(ctx context.Context) (*told, bool) {
	select {
	case ev, ok := <-l.events:
		return ev, ok
	case <-ctx.Done():
		return nil, false
	}
}
