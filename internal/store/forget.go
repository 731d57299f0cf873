package store

import (
	"context"
	"fmt"
	"time"
)

// awaited is the jobs that others which are not over wait for: how they ended
// is still asked for.
type awaited struct {
	ids     string // as JSON
	through int64  // jobs up to this number were asked
}

// awaitedBy is what the jobs wait for that fulfil a condition.
const awaitedBy = "SELECT dependency.value ->> '$.job' AS id FROM jobs, json_each(jobs.spec, '$.after') AS dependency WHERE "

// Forget deletes jobs that are over, ended before a time or are more than so
// many of the newest, and for which no other waits; oldest first and at most
// limit at a time. It returns their ids, and wants to be called again where
// these are as many as the limit.
func (s *Store) Forget(before time.Time, keepNewest, limit int) (ids []string, err error) {
	keep, err := s.findAwaited()
	if err != nil {
		return nil, fmt.Errorf("forget jobs: %w", err)
	}
	_, err = s.change(func(ctx context.Context) (int64, error) {
		var err error
		if ids, err = s.forgettable(ctx, before, keepNewest, limit, keep); err != nil || len(ids) == 0 {
			return 0, err
		}
		if _, err := s.statements.counter.ExecContext(ctx, counterSeq, s.lastSeq); err != nil {
			return 0, err
		}
		for _, id := range ids {
			if _, err := s.statements.deleteJob.ExecContext(ctx, id); err != nil {
				return 0, err
			}
		}
		return int64(len(ids)), nil
	})
	if err != nil {
		ids = nil
		err = fmt.Errorf("forget jobs: %w", err)
	}
	if len(ids) < limit {
		s.mu.Lock()
		s.awaited = nil
		s.mu.Unlock()
	}
	return ids, err
}

// findAwaited looks through the jobs once for all the steps of a run, and
// without keeping commits waiting.
func (s *Store) findAwaited() (*awaited, error) {
	s.mu.Lock()
	known, through := s.awaited, s.lastSeq
	s.mu.Unlock()
	if known != nil {
		return known, nil
	}
	known = &awaited{through: through}
	row := s.reader.QueryRowContext(context.Background(),
		"SELECT json_group_array(DISTINCT id) FROM ("+awaitedBy+live+")")
	if err := row.Scan(&known.ids); err != nil {
		return nil, s.classify(err)
	}
	s.mu.Lock()
	s.awaited = known
	s.mu.Unlock()
	return known, nil
}

// forgettable lists what may go. Only jobs that came since can wait for more
// than was found.
func (s *Store) forgettable(ctx context.Context, before time.Time, keepNewest, limit int, keep *awaited) (ids []string, err error) {
	rows, err := s.conn.QueryContext(ctx, `SELECT id FROM jobs WHERE NOT `+live+` AND (ended_at < ?1 OR seq <= coalesce(
		(SELECT seq FROM jobs WHERE NOT `+live+` ORDER BY seq DESC LIMIT 1 OFFSET ?2), 0))
		AND id NOT IN (SELECT value FROM json_each(?3)) AND id NOT IN (`+awaitedBy+`seq > ?4)
		ORDER BY seq LIMIT ?5`, nanos(before), keepNewest, keep.ids, keep.through, limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}
