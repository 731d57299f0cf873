package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"

	"berth/internal/job"
)

// Tx is what happens together or not at all. Deletions come first, so that a
// job both deleted and put is there afterwards.
type Tx struct {
	Put    []*job.Job // new, or as it stands now; the last of one job counts
	Delete []string   // ids; one that is not there is no error
	Events []*job.Event
	Meta   map[string]string
}

// flushEvery is how many rows may pile up in SQLite's log before they are
// folded into the file. It bounds the log, and how long an open after a crash
// takes.
const flushEvery = 4000

// Commit makes the transaction durable and numbers its events in order. After
// an error nothing of it happened (ErrBroken says what may be left open), and
// the events are as they were.
func (s *Store) Commit(tx Tx) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	lastSeq, err := s.transact(func(ctx context.Context) (int64, error) { return s.apply(ctx, tx) })
	if err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	s.lastSeq = lastSeq
	for _, event := range tx.Events {
		s.lastEvent++
		event.Seq = s.lastEvent
	}
	s.sinceFlushed += len(tx.Put) + len(tx.Delete) + len(tx.Events) + 4
	if s.sinceFlushed >= flushEvery {
		s.flush()
	}
	return nil
}

// change is a transaction of the store's own housekeeping.
func (s *Store) change(fn func(context.Context) (int64, error)) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	result, err := s.transact(fn)
	if err == nil {
		s.flush()
	}
	return result, err
}

// transact runs fn between BEGIN and COMMIT, and undoes it if any part fails.
func (s *Store) transact(fn func(context.Context) (int64, error)) (int64, error) {
	if s.broken != nil {
		return 0, s.broken
	}
	ctx := context.Background()
	if _, err := s.statements.begin.ExecContext(ctx); err != nil {
		return 0, s.judge(err)
	}
	result, err := fn(ctx)
	if err == nil {
		_, err = s.statements.commit.ExecContext(ctx)
	}
	if err != nil {
		// SQLite may have rolled back by itself, and then this one fails;
		// either way the transaction is over.
		_, _ = s.statements.rollback.ExecContext(ctx)
		return 0, s.judge(err)
	}
	return result, nil
}

// judge classifies an error of the writer and remembers one it cannot
// recover from.
func (s *Store) judge(err error) error {
	err = s.classify(err)
	if errors.Is(err, ErrBroken) {
		s.broken = err
	}
	return err
}

// apply writes the transaction and returns the highest job number after it.
func (s *Store) apply(ctx context.Context, tx Tx) (int64, error) {
	lastSeq := s.lastSeq
	for _, id := range tx.Delete {
		if _, err := s.statements.deleteJob.ExecContext(ctx, id); err != nil {
			return 0, fmt.Errorf("delete job %s: %w", id, err)
		}
	}
	fresh, known := make([]*job.Job, 0, len(tx.Put)), tx.Put[:0:0]
	for _, j := range tx.Put {
		if j.Seq > lastSeq {
			lastSeq = j.Seq
			fresh = append(fresh, j)
		} else {
			known = append(known, j)
		}
	}
	if err := s.insertJobs(ctx, fresh); err != nil {
		return 0, err
	}
	for _, j := range known {
		if err := s.putJob(ctx, j); err != nil {
			return 0, fmt.Errorf("put job %s: %w", j.ID, err)
		}
	}
	if len(tx.Delete) > 0 {
		// The row with the highest number may be among the deleted.
		if _, err := s.statements.counter.ExecContext(ctx, counterSeq, lastSeq); err != nil {
			return 0, err
		}
	}
	if err := s.insertEvents(ctx, tx.Events); err != nil {
		return 0, err
	}
	for key, value := range tx.Meta {
		if _, err := s.statements.meta.ExecContext(ctx, key, value); err != nil {
			return 0, fmt.Errorf("set %s: %w", key, err)
		}
	}
	return lastSeq, nil
}

// putJob updates the row of a job that was stored before, or inserts it where
// it was deleted since.
func (s *Store) putJob(ctx context.Context, j *job.Job) error {
	args, err := jobArgs(nil, j)
	if err != nil {
		return err
	}
	result, err := s.statements.updateJob.ExecContext(ctx, args...)
	if err != nil {
		return err
	}
	if changed, err := result.RowsAffected(); err != nil || changed == 1 {
		return err
	}
	_, err = s.statements.insertJob.ExecContext(ctx, args...)
	return err
}

// insertJobs writes new jobs, many per statement: the fixed cost of one is
// most of what a row costs.
func (s *Store) insertJobs(ctx context.Context, jobs []*job.Job) error {
	var args []any
	for len(jobs) > 0 {
		n, statement := 1, s.statements.insertJob
		if len(jobs) >= rowsPerInsert {
			n, statement = rowsPerInsert, s.statements.insertJobs
		}
		args = args[:0]
		for _, j := range jobs[:n] {
			var err error
			if args, err = jobArgs(args, j); err != nil {
				return fmt.Errorf("put job %s: %w", j.ID, err)
			}
		}
		if _, err := statement.ExecContext(ctx, args...); err != nil {
			return fmt.Errorf("put job %s: %w", jobs[0].ID, err)
		}
		jobs = jobs[n:]
	}
	return nil
}

func (s *Store) insertEvents(ctx context.Context, events []*job.Event) error {
	var args []any
	seq := s.lastEvent
	for len(events) > 0 {
		n, statement := 1, s.statements.insertEvent
		if len(events) >= rowsPerInsert {
			n, statement = rowsPerInsert, s.statements.insertEvents
		}
		args = args[:0]
		for _, event := range events[:n] {
			seq++
			snapshot := sql.NullString{}
			if event.Job != nil {
				text, err := encodeSnapshot(event.Job)
				if err != nil {
					return fmt.Errorf("event %s: %w", event.Kind, err)
				}
				snapshot = sql.NullString{String: string(text), Valid: true}
			}
			args = append(args, seq, nanos(event.At), string(event.Kind), event.Text, snapshot)
		}
		if _, err := statement.ExecContext(ctx, args...); err != nil {
			return fmt.Errorf("add events: %w", err)
		}
		events = events[n:]
	}
	return nil
}

// flush folds the log into the file. The commits in it are durable already,
// so a full disk is no harm here and is tried again; but a disk that fails
// now must not be trusted with the next one.
func (s *Store) flush() {
	var busy, inLog, moved int
	row := s.conn.QueryRowContext(context.Background(), "PRAGMA wal_checkpoint(PASSIVE)")
	if err := row.Scan(&busy, &inLog, &moved); err != nil {
		_ = s.judge(err)
		return
	}
	s.sinceFlushed = 0
}

// hashCommand is short enough to index and long enough not to collide.
func hashCommand(command string) int64 {
	sum := sha256.Sum256([]byte(command))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

func highest(peaks map[int]int64) int64 {
	var peak int64
	for _, mib := range peaks {
		peak = max(peak, mib)
	}
	return peak
}
