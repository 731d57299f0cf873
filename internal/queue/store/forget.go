package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"
)

// forgetStep is how many jobs one transaction of Forget deletes, so that no
// commit waits long for it.
const forgetStep = 500

// Keep says which ended jobs are remembered.
type Keep struct {
	Since time.Time // no job that ended before this
	Jobs  int       // the most of one user, and of all users together
	// Logs is since when logs are kept. A job that ran and ended since is not
	// forgotten for other users' jobs, because its log would go with it.
	Logs time.Time
}

// Forget deletes ended jobs, in small steps. All those that ended before
// keep.Since go. If a user has too many, those that never ran go first, then
// those that ended first. If all users together have too many, the user with the
// most loses one at a time, in the same order. Jobs that others depend on stay.
func (s *Store) Forget(keep Keep) (forgotten int, err error) {
	found, through, err := s.forgettable(keep)
	if err != nil {
		return 0, fmt.Errorf("forget jobs: %w", s.classify(err))
	}
	for some := range slices.Chunk(found, forgetStep) {
		deleted, err := s.change(func(ctx context.Context) (int64, error) { return s.forgetSome(ctx, some, through) })
		forgotten += int(deleted)
		if err != nil {
			return forgotten, fmt.Errorf("forget jobs: %w", err)
		}
	}
	return forgotten, nil
}

// over is an ended job. If it is requeued and ends again, it ends at another
// time.
type over struct {
	id    string
	ended int64
}

// forgettable lists what may be deleted, without blocking commits, and the
// number of the last job that it took into account.
func (s *Store) forgettable(keep Keep) (found []over, through int64, err error) {
	s.mu.Lock()
	through = s.lastSeq
	s.mu.Unlock()
	ctx := context.Background()
	have, old, err := s.countOver(ctx, keep.Since)
	if err != nil {
		return nil, 0, err
	}
	total, share := 0, shares(have, keep.Jobs)
	for _, n := range have {
		total += n
	}
	if old == 0 && total <= keep.Jobs {
		return nil, through, nil
	}
	needed, err := awaited(ctx, s.reader, live)
	if err != nil {
		return nil, 0, err
	}
	rows, err := s.reader.QueryContext(ctx, "SELECT id, user, attempt > 0, ended_at FROM jobs WHERE NOT "+live+" ORDER BY user, attempt > 0, ended_at, seq")
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close()
	last, before := "", 0 // the user of the last row, and how many of theirs came before
	for rows.Next() {
		var j over
		var user string
		var ran bool
		if err := rows.Scan(&j.id, &user, &ran, &j.ended); err != nil {
			return nil, 0, err
		}
		if user != last {
			last, before = user, 0
		}
		gone := j.ended < nanos(keep.Since)
		if !gone {
			ownFault := before < have[user]-keep.Jobs
			logKept := ran && j.ended >= nanos(keep.Logs)
			gone = ownFault || !logKept && before < have[user]-share[user]
			before++
		}
		if gone && !needed[j.id] {
			found = append(found, j)
		}
	}
	return found, through, rows.Err()
}

// countOver counts the ended jobs of each user since a time, and all before it.
func (s *Store) countOver(ctx context.Context, since time.Time) (have map[string]int, old int, err error) {
	rows, err := s.reader.QueryContext(ctx, "SELECT user, count(*), coalesce(sum(ended_at < ?), 0) FROM jobs WHERE NOT "+live+" GROUP BY user", nanos(since))
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close()
	have = map[string]int{}
	for rows.Next() {
		var user string
		var all, before int
		if err := rows.Scan(&user, &all, &before); err != nil {
			return nil, 0, err
		}
		have[user] = all - before
		old += before
	}
	return have, old, rows.Err()
}

// querier is a connection for reading, or the writer's.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// awaited is the ids that the jobs that meet a condition depend on: their
// outcome is still needed.
func awaited(ctx context.Context, from querier, condition string, args ...any) (map[string]bool, error) {
	rows, err := from.QueryContext(ctx,
		"SELECT DISTINCT dependency.value ->> '$.job' FROM jobs, json_each(jobs.spec, '$.after') AS dependency WHERE "+condition, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	needed := map[string]bool{}
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		needed[id] = true
	}
	return needed, rows.Err()
}

// forgetSome deletes jobs unless they changed or a new job depends on them.
func (s *Store) forgetSome(ctx context.Context, some []over, through int64) (deleted int64, err error) {
	needed, err := awaited(ctx, s.conn, "seq > ?", through)
	if err != nil {
		return 0, err
	}
	if _, err := s.statements.counter.ExecContext(ctx, counterSeq, s.lastSeq); err != nil {
		return 0, err
	}
	for _, j := range some {
		if needed[j.id] {
			continue
		}
		result, err := s.statements.forgetJob.ExecContext(ctx, j.id, j.ended)
		if err != nil {
			return 0, err
		}
		n, err := result.RowsAffected()
		if err != nil {
			return 0, err
		}
		deleted += n
	}
	return deleted, nil
}
