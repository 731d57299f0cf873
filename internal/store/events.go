package store

import (
	"context"
	"database/sql"
	"fmt"

	"berth/internal/job"
)

// maxEvents is the most one call of EventsAfter returns.
const maxEvents = 10_000

// trimStep is how many events one transaction of TrimEvents deletes, so that
// a commit never waits long behind it.
const trimStep = 5_000

// EventsAfter returns events in order, from the first with a number above
// seq, at most limit of them and never more than 10,000.
func (s *Store) EventsAfter(seq int64, limit int) ([]job.Event, error) {
	found, err := s.reader.QueryContext(context.Background(),
		"SELECT seq, at, kind, text, job FROM events WHERE seq > ? ORDER BY seq LIMIT ?", seq, min(max(limit, 0), maxEvents))
	if err != nil {
		return nil, fmt.Errorf("read events: %w", s.classify(err))
	}
	defer found.Close()
	var events []job.Event
	for found.Next() {
		var event job.Event
		var at int64
		var snapshot sql.NullString
		if err := found.Scan(&event.Seq, &at, (*string)(&event.Kind), &event.Text, &snapshot); err != nil {
			return nil, fmt.Errorf("read events: %w", s.classify(err))
		}
		event.At = moment(at)
		if snapshot.Valid {
			if event.Job, err = decodeSnapshot([]byte(snapshot.String)); err != nil {
				return nil, fmt.Errorf("read event %d: %w: %w", event.Seq, ErrBroken, err)
			}
		}
		events = append(events, event)
	}
	if err := found.Err(); err != nil {
		return nil, fmt.Errorf("read events: %w", s.classify(err))
	}
	return events, nil
}

// LastEvent is the number of the newest event, trimmed ones included.
func (s *Store) LastEvent() (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastEvent, nil
}

// TrimEvents forgets the events up to and including that number. Their
// numbers are not given out again.
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
