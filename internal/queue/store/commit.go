package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"berth/internal/job"
)

// Tx is a transaction. Deletions come first, so that a job that is both deleted
// and put exists afterwards.
type Tx struct {
	Put    []*job.Job // new or changed jobs; the last version counts
	Delete []string   // ids; unknown ones are ignored
	Events []*job.Event
	Meta   map[string]string
	Blobs  map[string][]byte // by BlobName; existing ones stay
	Outbox []Letter          // to put or delete
	Taken  *int64            // the last event that the outbox was filled from; nil: as before

	// Reserved: these are facts that must be recorded, and may use the room that
	// is kept for them on a full disk.
	Reserved bool
}

// flushEvery is how many rows, or pages of long ones, may accumulate in SQLite's
// log before it is folded into the file. It bounds the log and the time to open
// after a crash.
const flushEvery = 4000

// Commit makes the transaction durable and numbers its events. After an error
// nothing of it happened (ErrUnwritable says what may be left open), and the events
// are unchanged.
func (s *Store) Commit(tx Tx) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// New jobs can be submitted again: no room is kept for them.
	unknown := func(j *job.Job) bool { return j.Seq > s.lastSeq }
	if tx.Reserved && !slices.ContainsFunc(tx.Put, unknown) {
		return s.commitReserved(tx)
	}
	if err := s.ballast.refill(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return s.commit(tx)
}

func (s *Store) commit(tx Tx) error {
	if len(tx.Put)+len(tx.Events) >= largeCommit {
		s.setCache(bulkCacheKiB)
		defer s.setCache(writerCacheKiB)
	}
	if len(tx.Delete) > 0 {
		clear(s.written)
	}
	long, err := s.longTexts(tx.Put)
	if err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	lastSeq, err := s.transact(func(ctx context.Context) (int64, error) { return s.apply(ctx, tx, &long) })
	if err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	s.lastSeq = lastSeq
	s.remember(&tx, &long)
	for _, event := range tx.Events {
		s.lastEvent++
		event.Seq = s.lastEvent
	}
	s.sinceFlushed += len(tx.Put) + len(tx.Delete) + len(tx.Events) + len(tx.Outbox) + 4 + long.pages(&tx)
	if s.sinceFlushed >= flushEvery {
		s.flush()
	}
	return nil
}

// setCache lets a large commit keep its pages in memory; with the small cache
// each would be written several times. It affects only speed, so errors are
// ignored.
func (s *Store) setCache(kib int) {
	_, _ = s.conn.ExecContext(context.Background(), fmt.Sprintf("PRAGMA cache_size = -%d; PRAGMA shrink_memory", kib))
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
		// SQLite may have rolled back by itself, in which case this fails;
		// either way the transaction has ended.
		_, _ = s.statements.rollback.ExecContext(ctx)
		return 0, s.judge(err)
	}
	s.unwritten = false
	return result, nil
}

// judge classifies an error of the writer and remembers one it cannot recover
// from.
func (s *Store) judge(err error) error {
	err = s.classify(err)
	if errors.Is(err, errBroken) {
		s.broken = err
	}
	s.unwritten = s.unwritten || errors.Is(err, ErrUnwritable)
	return err
}

// apply writes the transaction and returns the highest job number after it.
func (s *Store) apply(ctx context.Context, tx Tx, long *longTexts) (int64, error) {
	lastSeq := s.lastSeq
	for _, id := range tx.Delete {
		if _, err := s.statements.deleteJob.ExecContext(ctx, id); err != nil {
			return 0, fmt.Errorf("delete job %s: %w", id, err)
		}
	}
	var queued, fresh, known []*job.Job
	for _, j := range tx.Put {
		switch {
		case j.Seq <= lastSeq:
			known = append(known, j)
			continue
		case !long.has(j) && isNew(j):
			queued = append(queued, j)
		default:
			fresh = append(fresh, j)
		}
		lastSeq = j.Seq
	}
	if err := s.insertJobs(ctx, queued, fresh, long); err != nil {
		return 0, fmt.Errorf("put jobs: %w", err)
	}
	for _, j := range known {
		if err := s.putJob(ctx, j, long); err != nil {
			return 0, fmt.Errorf("put job %s: %w", j.ID, err)
		}
	}
	if len(tx.Delete) > 0 {
		// The row with the highest number may have been deleted.
		if _, err := s.statements.counter.ExecContext(ctx, counterSeq, lastSeq); err != nil {
			return 0, err
		}
	}
	err := insertRows(ctx, s.statements.insertEvent, s.statements.insertEvents, len(tx.Events), func(args []any, i int) ([]any, error) {
		return eventArgs(args, s.lastEvent+int64(i)+1, tx.Events[i])
	})
	if err != nil {
		return 0, fmt.Errorf("add events: %w", err)
	}
	for _, blobs := range []map[string][]byte{tx.Blobs, long.blobs} {
		if err := s.putBlobs(ctx, blobs); err != nil {
			return 0, err
		}
	}
	if err := s.dropTexts(ctx, long.stale); err != nil {
		return 0, err
	}
	if err := s.putOutbox(ctx, tx); err != nil {
		return 0, err
	}
	for key, value := range tx.Meta {
		if _, err := s.statements.meta.ExecContext(ctx, key, value); err != nil {
			return 0, fmt.Errorf("set %s: %w", key, err)
		}
	}
	return lastSeq, nil
}

// insertJobs inserts new jobs: those still as submitted, and the others.
func (s *Store) insertJobs(ctx context.Context, queued, others []*job.Job, long *longTexts) error {
	var e encoder
	err := insertRows(ctx, s.statements.insertNew, s.statements.insertNews, len(queued), func(args []any, i int) ([]any, error) {
		err := e.encode(queued[i], false)
		return newArgs(args, queued[i], commandHash(queued[i]), &e), err
	})
	if err != nil {
		return err
	}
	return insertRows(ctx, s.statements.insertJob, s.statements.insertJobs, len(others), func(args []any, i int) ([]any, error) {
		return jobArgs(args, others[i], long, &e)
	})
}

// putJob updates a stored job, or inserts it if it was deleted since.
func (s *Store) putJob(ctx context.Context, j *job.Job, long *longTexts) error {
	args, err := jobArgs(nil, j, long, &encoder{})
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

// flush folds the log into the file. Its commits are durable already, so a disk
// that is full or fails does no harm, and the next commit tries again.
func (s *Store) flush() {
	var busy, inLog, moved int
	row := s.conn.QueryRowContext(context.Background(), "PRAGMA wal_checkpoint(PASSIVE)")
	if err := row.Scan(&busy, &inLog, &moved); err != nil {
		_ = s.judge(err)
		return
	}
	s.sinceFlushed = 0
}
