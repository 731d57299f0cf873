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

// trimStep is how many events one transaction deletes, so that no commit waits
// long for it.
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
			if event.Job, err = DecodeJob([]byte(snapshot.String)); err != nil {
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

// TrimEvents deletes the events up to and including this number, except those that
// the outbox was not filled from yet. Numbers are not reused.
func (s *Store) TrimEvents(through int64) error {
	if taken, ever, err := s.counter(counterTaken); err != nil {
		return fmt.Errorf("trim events: %w", s.classify(err))
	} else if ever {
		through = min(through, taken)
	}
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
	return s.deleteEvents("SELECT seq FROM events WHERE seq <= ? ORDER BY seq LIMIT ?", through, trimStep)
}

// deleteEvents deletes the events with the numbers that a query selects.
func (s *Store) deleteEvents(query string, args ...any) (deleted int64, err error) {
	return s.change(func(ctx context.Context) (int64, error) {
		if _, err := s.statements.counter.ExecContext(ctx, counterEvent, s.lastEvent); err != nil {
			return 0, err
		}
		result, err := s.conn.ExecContext(ctx, "DELETE FROM events WHERE seq IN ("+query+")", args...)
		if err != nil {
			return 0, err
		}
		return result.RowsAffected()
	})
}

// KeepEvents deletes old events until at most total are left. If there are more,
// the user with the most loses one at a time, oldest first; events of no job
// count as one more user's. Events that the outbox was not filled from yet stay.
func (s *Store) KeepEvents(total int) error {
	old, err := s.tooMany(total)
	if err != nil {
		return fmt.Errorf("trim events: %w", s.classify(err))
	}
	for some := range slices.Chunk(old, trimStep) {
		list, err := json.Marshal(some)
		if err != nil {
			panic("bug: " + err.Error())
		}
		if _, err := s.deleteEvents("SELECT value FROM json_each(?)", string(list)); err != nil {
			return fmt.Errorf("trim events: %w", err)
		}
	}
	return nil
}

// tooMany lists the numbers of the events beyond their user's share.
func (s *Store) tooMany(total int) (old []int64, err error) {
	ctx := context.Background()
	var count int
	if err := s.reader.QueryRowContext(ctx, "SELECT count(*) FROM events").Scan(&count); err != nil || count <= total {
		return nil, err
	}
	rows, err := s.reader.QueryContext(ctx, "SELECT seq, coalesce(job ->> '$.user', '') FROM events ORDER BY seq")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	numbers, have := map[string][]int64{}, map[string]int{}
	for rows.Next() {
		var seq int64
		var user string
		if err := rows.Scan(&seq, &user); err != nil {
			return nil, err
		}
		numbers[user] = append(numbers[user], seq)
		have[user]++
	}
	for user, share := range shares(have, total) {
		old = append(old, numbers[user][:have[user]-share]...)
	}
	slices.Sort(old)
	if taken, ever, err := s.counter(counterTaken); err != nil {
		return nil, err
	} else if ever {
		old = slices.DeleteFunc(old, func(seq int64) bool { return seq > taken })
	}
	return old, rows.Err()
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
