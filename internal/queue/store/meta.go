package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Meta is the value of a key, or "" if it was never set. Commits set values.
func (s *Store) Meta(key string) (string, error) {
	var value string
	row := s.lookup.QueryRowContext(context.Background(), "SELECT value FROM meta WHERE key = ?", key)
	err := row.Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read %s: %w", key, s.classify(err))
	}
	return value, nil
}

// Metas are the values of all keys that begin with a prefix.
func (s *Store) Metas(prefix string) (map[string]string, error) {
	rows, err := s.reader.QueryContext(context.Background(), "SELECT key, value FROM meta WHERE substr(key, 1, length(?1)) = ?1", prefix)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", prefix, s.classify(err))
	}
	defer rows.Close()
	values := map[string]string{}
	for rows.Next() {
		var key, value string
		if err := rows.Scan(&key, &value); err != nil {
			return nil, fmt.Errorf("read %s: %w", prefix, s.classify(err))
		}
		values[key] = value
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read %s: %w", prefix, s.classify(err))
	}
	return values, nil
}

// Wipe deletes all jobs and events. Jobs are numbered from 1 again, so the
// caller must deal with their old logs; event numbers continue, so that old and
// new events are not confused. Meta values stay.
func (s *Store) Wipe() error {
	_, err := s.change(func(ctx context.Context) (int64, error) {
		for counter, value := range map[string]int64{counterSeq: 0, counterEvent: s.lastEvent} {
			if _, err := s.statements.counter.ExecContext(ctx, counter, value); err != nil {
				return 0, err
			}
		}
		_, err := s.conn.ExecContext(ctx, "DELETE FROM jobs; DELETE FROM events")
		return 0, err
	})
	if err != nil {
		return fmt.Errorf("wipe store: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastSeq = 0
	clear(s.written)
	return nil
}

// rowReader is a connection, or a pool of them.
type rowReader interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// readCounters finds the highest numbers used, by rows that exist or were
// deleted.
func (s *Store) readCounters(ctx context.Context, from rowReader) error {
	row := from.QueryRowContext(ctx, `SELECT
		max(coalesce((SELECT max(seq) FROM jobs), 0), coalesce((SELECT value FROM counters WHERE name = ?), 0)),
		max(coalesce((SELECT max(seq) FROM events), 0), coalesce((SELECT value FROM counters WHERE name = ?), 0))`,
		counterSeq, counterEvent)
	return row.Scan(&s.lastSeq, &s.lastEvent)
}
