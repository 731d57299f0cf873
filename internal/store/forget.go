package store

import (
	"context"
	"fmt"
	"time"
)

// awaited is the jobs that unfinished ones depend on: their outcome is still
// needed.
type awaited struct {
	ids     string // as JSON
	through int64  // jobs up to this number were considered
}

// awaitedBy selects the dependencies of the jobs that meet a condition.
const awaitedBy = "SELECT dependency.value ->> '$.job' AS id FROM jobs, json_each(jobs.spec, '$.after') AS dependency WHERE "

// Forget deletes ended jobs that ended before a time or are not among the
// newest, and that no other depends on; oldest first, at most limit at a time.
// It returns their ids, and should be called again if there are limit of them.
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

// findAwaited scans the jobs once for all steps, without blocking commits.
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

// forgettable lists what may be deleted. Only jobs added since can have further
// dependencies.
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
