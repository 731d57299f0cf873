package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"berth/internal/job"
)

// maxEvents is the most one call of EventsAfter returns.
const maxEvents = 10_000

// trimStep is how many events one transaction of TrimEvents deletes, so that no
// commit waits long for it.
const trimStep = 5_000

// EventsAfter returns events in order, from the first with a number above seq,
// at most limit and never more than 10,000.
func (s *Store) EventsAfter(seq int64, limit int) ([]job.Event, error) {
	found, err := s.reader.QueryContext(context.Background(),
		"SELECT seq, at, kind, text, job, card FROM events WHERE seq > ? ORDER BY seq LIMIT ?", seq, min(max(limit, 0), maxEvents))
	if err != nil {
		return nil, fmt.Errorf("read events: %w", s.classify(err))
	}
	defer found.Close()
	var events []job.Event
	for found.Next() {
		var event job.Event
		var at int64
		var snapshot, card sql.NullString
		if err := found.Scan(&event.Seq, &at, (*string)(&event.Kind), &event.Text, &snapshot, &card); err != nil {
			return nil, fmt.Errorf("read events: %w", s.classify(err))
		}
		event.At = moment(at)
		if snapshot.Valid {
			if event.Job, err = decodeSnapshot([]byte(snapshot.String)); err != nil {
				return nil, fmt.Errorf("read event %d: %w: %w", event.Seq, errBroken, err)
			}
		}
		if event.Card, err = decodeCard(card); err != nil {
			return nil, fmt.Errorf("read event %d: %w: %w", event.Seq, errBroken, err)
		}
		events = append(events, event)
	}
	if err := found.Err(); err != nil {
		return nil, fmt.Errorf("read events: %w", s.classify(err))
	}
	return events, nil
}

// LastEvent is the number of the newest event, including deleted ones.
func (s *Store) LastEvent() (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastEvent, nil
}

// TrimEvents deletes the events up to and including this number. Numbers are not
// reused.
func (s *Store) TrimEvents(through int64) error {
	for {
		deleted, err := s.trimSome(through)
		if err != nil {
			return fmt.Errorf("trim events: %w", err)
		}
		if deleted < trimStep {
			return nil
		}
	}
}

func (s *Store) trimSome(through int64) (deleted int64, err error) {
	return s.change(func(ctx context.Context) (int64, error) {
		if _, err := s.statements.counter.ExecContext(ctx, counterEvent, s.lastEvent); err != nil {
			return 0, err
		}
		result, err := s.conn.ExecContext(ctx,
			"DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE seq <= ? ORDER BY seq LIMIT ?)", through, trimStep)
		if err != nil {
			return 0, err
		}
		return result.RowsAffected()
	})
}

// EventsOf returns the last limit events of one job since a time, oldest first,
// without the job in them.
func (s *Store) EventsOf(id string, since time.Time, limit int) ([]job.Event, error) {
	from, err := s.eventAt(since)
	if err != nil {
		return nil, fmt.Errorf("read events of job %s: %w", id, s.classify(err))
	}
	// A job's JSON begins with its id, so no other has to be decoded.
	found, err := s.reader.QueryContext(context.Background(),
		"SELECT seq, at, kind, text FROM events WHERE seq >= ? AND job GLOB ? ORDER BY seq DESC LIMIT ?", from, `{"id":"`+id+`",*`, limit)
	if err != nil {
		return nil, fmt.Errorf("read events of job %s: %w", id, s.classify(err))
	}
	defer found.Close()
	var events []job.Event
	for found.Next() {
		var event job.Event
		var at int64
		if err := found.Scan(&event.Seq, &at, (*string)(&event.Kind), &event.Text); err != nil {
			return nil, fmt.Errorf("read events of job %s: %w", id, s.classify(err))
		}
		event.At = moment(at)
		events = append(events, event)
	}
	slices.Reverse(events)
	return events, found.Err()
}

// CardEvents returns the events of one card, or of any if gpu is nil, since a
// time, newest first and at most limit. Events of a job are left out: they
// repeat a card's event for each job on it.
func (s *Store) CardEvents(since time.Time, limit int, gpu *int) ([]job.Event, error) {
	from, err := s.eventAt(since)
	if err != nil {
		return nil, fmt.Errorf("read GPU events: %w", s.classify(err))
	}
	found, err := s.reader.QueryContext(context.Background(),
		"SELECT seq, at, text, card FROM events WHERE seq >= ? AND kind = ? AND job IS NULL ORDER BY seq DESC", from, string(job.EventCard))
	if err != nil {
		return nil, fmt.Errorf("read GPU events: %w", s.classify(err))
	}
	defer found.Close()
	var events []job.Event
	for len(events) < limit && found.Next() {
		event := job.Event{Kind: job.EventCard}
		var at int64
		var card sql.NullString
		if err := found.Scan(&event.Seq, &at, &event.Text, &card); err != nil {
			return nil, fmt.Errorf("read GPU events: %w", s.classify(err))
		}
		event.At = moment(at)
		if event.Card, err = decodeCard(card); err != nil {
			return nil, fmt.Errorf("read event %d: %w: %w", event.Seq, errBroken, err)
		}
		if c := event.Card; gpu == nil || c == nil || c.GPU == nil || *c.GPU == *gpu {
			events = append(events, event)
		}
	}
	return events, found.Err()
}

// decodeCard is nil for events that are not about a card.
func decodeCard(text sql.NullString) (*job.CardChange, error) {
	if !text.Valid {
		return nil, nil
	}
	card := &job.CardChange{}
	return card, json.Unmarshal([]byte(text.String), card)
}

// eventAt is the number of the first event at or after a time, apart from events
// that a clock change put out of order.
func (s *Store) eventAt(t time.Time) (int64, error) {
	var low, high sql.NullInt64
	row := s.reader.QueryRowContext(context.Background(), "SELECT min(seq), max(seq) + 1 FROM events")
	if err := row.Scan(&low, &high); err != nil {
		return 0, err
	}
	for low.Int64 < high.Int64 {
		middle := (low.Int64 + high.Int64) / 2
		var at int64
		row := s.reader.QueryRowContext(context.Background(), "SELECT at FROM events WHERE seq >= ? ORDER BY seq LIMIT 1", middle)
		if err := row.Scan(&at); err != nil {
			return 0, err
		}
		if at < nanos(t) {
			low.Int64 = middle + 1
		} else {
			high.Int64 = middle
		}
	}
	return low.Int64, nil
}
