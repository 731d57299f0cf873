package daemon

import (
	"context"
	"reflect"
	"time"

	"berth/internal/api"
	"berth/internal/job"
)

// gpusEvery is how often a stream may carry the cards, if it asked for them.
const gpusEvery = time.Second

// events sends events to those who listen.
type events struct {
	svc   *service
	cards *cards
}

// Events sends past and new events until the caller leaves.
func (h *events) Events(ctx context.Context, c api.Caller, q api.EventQuery, send func(api.Event) error) error {
	l := h.svc.hub.listen()
	defer func() { h.svc.hub.remove(l) }()
	s := stream{h: h, caller: c, query: q, send: send, last: q.Since}
	if q.Since >= 0 {
		if err := s.catchUp(); err != nil {
			return err
		}
	}
	s.last = min(s.last, s.newest()) // a later number belongs to another store
	var cards <-chan time.Time
	if q.GPUs {
		ticker := time.NewTicker(gpusEvery)
		defer ticker.Stop()
		cards = ticker.C
		if err := s.sendCards(ctx); err != nil {
			return err
		}
	}
	for {
		select {
		case <-ctx.Done():
			return s.rest(l)
		case <-h.svc.ended:
			return s.rest(l)
		case <-cards:
			if err := s.sendCards(ctx); err != nil {
				return err
			}
		case ev, ok := <-l.events:
			if !ok {
				return nil // the client reconnects with the last number it saw
			}
			if err := s.tell(ev); err != nil {
				return err
			}
		}
	}
}

// rest sends what happened before the daemon ended, if it has.
func (s *stream) rest(l *listener) error {
	select {
	case <-s.h.svc.ended:
	default:
		return nil
	}
	for ev := range l.events {
		if err := s.tell(ev); err != nil {
			return err
		}
	}
	return nil
}

// stream is one caller's event stream.
type stream struct {
	h      *events
	caller api.Caller
	query  api.EventQuery
	send   func(api.Event) error
	last   int64 // number of the last event sent
	cards  []api.GPU
}

// catchUp sends the stored events after the last one seen.
func (s *stream) catchUp() error {
	for {
		events, err := s.h.svc.queue.Store.EventsAfter(s.last, 1000)
		if err != nil || len(events) == 0 {
			return err
		}
		for i := range events {
			if err := s.tell(&told{Event: events[i]}); err != nil {
				return err
			}
		}
	}
}

// newest is the number of the latest event.
func (s *stream) newest() int64 {
	last, err := s.h.svc.queue.Store.LastEvent()
	if err != nil {
		return s.last
	}
	return last
}

func (s *stream) tell(ev *told) error {
	if ev.Seq > 0 && ev.Seq <= s.last {
		return nil
	}
	s.last = max(s.last, ev.Seq)
	if j := ev.Job; j != nil {
		if s.query.User != "" && j.User != s.query.User || s.query.Job != "" && j.ID != s.query.Job && j.Array() != s.query.Job {
			return nil
		}
	} else if s.query.User != "" || s.query.Job != "" {
		return nil
	}
	return s.send(s.h.as(ev, s.caller))
}

// as is an event as the caller may see it.
func (h *events) as(ev *told, c api.Caller) api.Event {
	open, form := ev.Job == nil || h.svc.maySee(c, ev.Job), &ev.open
	if !open {
		form = &ev.hidden
	}
	form.once.Do(func() {
		out := api.Event{Seq: ev.Seq, Time: ev.At, Kind: ev.Kind, Text: ev.Text}
		if ev.Card != nil {
			out.GPU, out.By, out.Bad = ev.Card.GPU, ev.Card.By, ev.Card.Bad
		}
		if ev.Job != nil {
			v := h.svc.viewFor(open, ev.Job, nil)
			out.Job = &v
			if ev.Job.Outcome == job.Launch && v.Reason == nil {
				out.Text = ""
			}
		}
		out = out.Written()
		form.event = &out
	})
	return *form.event
}

// sendCards sends the cards if they changed.
func (s *stream) sendCards(ctx context.Context) error {
	cards, err := s.h.cards.GPUs(ctx, s.caller)
	if err != nil {
		return nil // the stream ends by itself if the daemon does
	}
	for i := range cards {
		cards[i].ReadAt = time.Time{}
	}
	if reflect.DeepEqual(cards, s.cards) {
		return nil
	}
	s.cards = cards
	return s.send(api.Event{Time: time.Now(), Kind: job.EventGPUs, GPUs: cards})
}
