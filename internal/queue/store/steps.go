package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"berth/internal/job"
)

// steps is how far a read of ended jobs goes before it pauses.
type steps struct {
	scan int // rows compared
	rows int // jobs read in full
}

// usualSteps take some 20 ms each.
var usualSteps = steps{scan: 20_000, rows: 500}

func (s *Store) step() steps { return cmp.Or(s.steps, usualSteps) }

// span is a range of job numbers: above one, up to and including the other.
type span struct{ above, through int64 }

// spans calls fn with ranges that together have every job, and few enough in each
// to compare them at a time. Jobs that are looked up by id need only one.
func (s *Store) spans(f *Filter, above int64, fn func(span) error) error {
	whole := span{above: above, through: 1<<63 - 1}
	if f.byID() {
		return fn(whole)
	}
	for {
		if err := f.pause(s.step().rows); err != nil {
			return err
		}
		part := span{above: above}
		err := s.reader.QueryRowContext(context.Background(), "SELECT seq FROM jobs WHERE seq > ? ORDER BY seq LIMIT 1 OFFSET ?", above, s.step().scan-1).Scan(&part.through)
		if errors.Is(err, sql.ErrNoRows) {
			whole.above = above
			return fn(whole)
		}
		if err != nil {
			return fmt.Errorf("read jobs: %w", s.classify(err))
		}
		if err := fn(part); err != nil {
			return err
		}
		above = part.through
	}
}

func (f *Filter) pause(rows int) error {
	if f.Pause == nil {
		return nil
	}
	return f.Pause(rows)
}

// in renders the filter as a condition for a range.
func (f *Filter) in(part span) (string, []any) {
	where, args := f.where()
	return where + " AND " + f.seq() + " > ? AND " + f.seq() + " <= ?", append(args, part.above, part.through)
}

// page is the query for the first jobs of a range.
func (f *Filter) page(part span) (string, []any) {
	where, args := f.in(part)
	return "SELECT " + readColumns + " FROM jobs WHERE " + where + " ORDER BY " + f.seq() + " LIMIT ?", args
}

// byID reports whether the filter names so few jobs that they are looked up.
func (f *Filter) byID() bool { return len(f.Ranges) == 0 && len(f.IDs) > 0 && len(f.IDs) <= fewIDs }

// seq is the column of the numbers. The sign keeps SQLite from going through all
// numbers, in order, for jobs that it can look up by id.
func (f *Filter) seq() string {
	if f.byID() {
		return "+seq"
	}
	return "seq"
}

// Find lists ended jobs.
func (s *Store) Find(f Filter) (found []*job.Job, err error) {
	if f.Newest {
		return s.findNewest(&f)
	}
	if f.Limit <= 0 {
		return nil, nil
	}
	err = s.walk(&f, f.After.Seq, func(j *job.Job) error {
		if found = append(found, j); len(found) == f.Limit {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return found, err
}

// errEnough ends a walk.
var errEnough = errors.New("enough")

// EachOver calls fn with every ended job that matches, ignoring the filter's order
// and limit. Jobs that end meanwhile may be among them.
func (s *Store) EachOver(f Filter, fn func(*job.Job) error) error {
	f.Limit = 0
	return s.walk(&f, 0, fn)
}

// walk calls fn with the jobs that match in order of submission.
func (s *Store) walk(f *Filter, above int64, fn func(*job.Job) error) error {
	left := f.Limit
	return s.spans(f, above, func(part span) error {
		for {
			most := s.step().rows
			if f.Limit > 0 {
				most = min(most, left)
			}
			query, args := f.page(part)
			var some []*job.Job
			err := s.each(query, append(args, most), func(j *job.Job) error {
				some = append(some, j)
				return nil
			})
			if err != nil {
				return err
			}
			for _, j := range some {
				if err := fn(j); err != nil {
					return err
				}
			}
			if err := f.pause(len(some)); err != nil || len(some) < most {
				return err
			}
			part.above, left = some[len(some)-1].Seq, left-len(some)
		}
	})
}

// findNewest sorts only numbers, and reads only the jobs of the page in full.
func (s *Store) findNewest(f *Filter) (found []*job.Job, err error) {
	var keys []Cursor
	err = s.spans(f, 0, func(part span) error {
		some, err := s.newest(f, part)
		keys = append(keys, some...)
		slices.SortFunc(keys, func(a, b Cursor) int {
			return cmp.Or(cmp.Compare(b.Ended, a.Ended), cmp.Compare(b.Seq, a.Seq))
		})
		keys = keys[:min(len(keys), f.Limit)]
		return err
	})
	for some := range slices.Chunk(keys, s.step().rows) {
		if err != nil {
			return nil, err
		}
		var page []*job.Job
		if page, err = s.numbered(some); err == nil {
			err = f.pause(len(page))
		}
		found = append(found, page...)
	}
	return found, err
}

// newest are the positions of the last jobs of a range.
func (s *Store) newest(f *Filter, part span) (keys []Cursor, err error) {
	where, args := f.in(part)
	if f.After != (Cursor{}) {
		where += " AND (ended_at, seq) < (?, ?)"
		args = append(args, f.After.Ended, f.After.Seq)
	}
	rows, err := s.reader.QueryContext(context.Background(), "SELECT seq, ended_at FROM jobs WHERE "+where+" ORDER BY ended_at DESC, seq DESC LIMIT ?", append(args, f.Limit)...)
	if err != nil {
		return nil, fmt.Errorf("read jobs: %w", s.classify(err))
	}
	defer rows.Close()
	for rows.Next() {
		var key Cursor
		if err := rows.Scan(&key.Seq, &key.Ended); err != nil {
			return nil, fmt.Errorf("read jobs: %w", s.classify(err))
		}
		keys = append(keys, key)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read jobs: %w", s.classify(err))
	}
	return keys, nil
}

// numbered are the jobs at these positions that have still ended, the last first.
func (s *Store) numbered(keys []Cursor) (found []*job.Job, err error) {
	numbers := make([]int64, len(keys))
	for i := range keys {
		numbers[i] = keys[i].Seq
	}
	list, err := json.Marshal(numbers)
	if err != nil {
		return nil, err
	}
	err = s.each("SELECT "+readColumns+" FROM jobs WHERE seq IN (SELECT value FROM json_each(?)) AND NOT "+live+" ORDER BY ended_at DESC, seq DESC",
		[]any{string(list)}, func(j *job.Job) error {
			found = append(found, j)
			return nil
		})
	return found, err
}

// CountOver counts the ended jobs that match, by state.
func (s *Store) CountOver(f Filter) (map[job.State]int, error) {
	counts := map[job.State]int{}
	err := s.spans(&f, 0, func(part span) error {
		where, args := f.in(part)
		rows, err := s.reader.QueryContext(context.Background(), "SELECT state, count(*) FROM jobs WHERE "+where+" GROUP BY state", args...)
		if err != nil {
			return fmt.Errorf("count jobs: %w", s.classify(err))
		}
		defer rows.Close()
		for rows.Next() {
			var state job.State
			var n int
			if err := rows.Scan((*string)(&state), &n); err != nil {
				return fmt.Errorf("count jobs: %w", s.classify(err))
			}
			counts[state] += n
		}
		if err := rows.Err(); err != nil {
			return fmt.Errorf("count jobs: %w", s.classify(err))
		}
		return nil
	})
	return counts, err
}
