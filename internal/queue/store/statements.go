package store

import (
	"context"
	"database/sql"
	"errors"
	"strings"
)

// rowsPerInsert is how many rows one statement inserts in bulk.
const rowsPerInsert = 32

// The counters.
const (
	counterSeq    = "job_seq"
	counterEvent  = "event_seq"
	counterTaken  = "event_taken"
	counterOutbox = "outbox_seq"
)

// statements are prepared once, on the writer's connection.
type statements struct {
	begin, commit, rollback   *sql.Stmt
	insertJob, insertJobs     *sql.Stmt
	insertNew, insertNews     *sql.Stmt
	updateJob, deleteJob      *sql.Stmt
	forgetJob                 *sql.Stmt
	insertEvent, insertEvents *sql.Stmt
	counter, meta             *sql.Stmt
	insertBlob, dropText      *sql.Stmt

	all []*sql.Stmt
}

// The columns of an inserted row: all of them, or for a newly queued job those
// that differ from the defaults. Fewer columns are faster, which matters for a
// large jobs file.
const (
	jobColumns       = newColumns + ", state, outcome, attempt, peak_mib, started_at, ended_at, text"
	jobColumnCount   = newColumnCount + 7
	newColumns       = "seq, id, key, user, rank, vram_mib, submitted_at, command_hash, command, spec, rest"
	newColumnCount   = 11
	eventColumns     = "seq, at, kind, text, job, card"
	eventColumnCount = 6
)

// updateSQL does not change the id, so that its index is not touched.
const updateSQL = `UPDATE OR ROLLBACK jobs SET key=?3, user=?4, rank=?5, vram_mib=?6, submitted_at=?7, command_hash=?8,
	command=?9, spec=?10, rest=?11, state=?12, outcome=?13, attempt=?14, peak_mib=?15, started_at=?16, ended_at=?17, text=?18
	WHERE seq=?1 AND id=?2`

func prepare(ctx context.Context, conn *sql.Conn) (statements, error) {
	var s statements
	// OR ROLLBACK because a failed statement fails its whole transaction anyway,
	// so SQLite needs no journal to undo it alone.
	insertJob := "INSERT OR ROLLBACK INTO jobs (" + jobColumns + ") VALUES "
	insertNew := "INSERT OR ROLLBACK INTO jobs (" + newColumns + ") VALUES "
	insertEvent := "INSERT OR ROLLBACK INTO events (" + eventColumns + ") VALUES "
	for _, each := range []struct {
		to   **sql.Stmt
		text string
	}{
		{&s.begin, "BEGIN IMMEDIATE"},
		{&s.commit, "COMMIT"},
		{&s.rollback, "ROLLBACK"},
		{&s.insertJob, insertJob + rows(1, jobColumnCount)},
		{&s.insertJobs, insertJob + rows(rowsPerInsert, jobColumnCount)},
		{&s.insertNew, insertNew + rows(1, newColumnCount)},
		{&s.insertNews, insertNew + rows(rowsPerInsert, newColumnCount)},
		{&s.updateJob, updateSQL},
		{&s.deleteJob, "DELETE FROM jobs WHERE id = ?"},
		{&s.forgetJob, "DELETE FROM jobs WHERE id = ? AND ended_at = ? AND NOT " + live},
		{&s.insertEvent, insertEvent + rows(1, eventColumnCount)},
		{&s.insertEvents, insertEvent + rows(rowsPerInsert, eventColumnCount)},
		{&s.counter, "INSERT INTO counters (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"},
		{&s.insertBlob, "INSERT OR IGNORE INTO blobs (hash, data) VALUES (?, ?)"},
		{&s.dropText, "DELETE FROM blobs WHERE hash = ?1 AND NOT EXISTS (SELECT 1 FROM jobs WHERE text = ?1 AND text <> '')"},
		{&s.meta, "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"},
	} {
		statement, err := conn.PrepareContext(ctx, each.text) //nolint:sqlclosecheck // close closes all
		if err != nil {
			return s, err
		}
		*each.to = statement
		s.all = append(s.all, statement)
	}
	return s, nil
}

func (s *statements) close() error {
	var errs []error
	for _, statement := range s.all {
		errs = append(errs, statement.Close())
	}
	s.all = nil
	return errors.Join(errs...)
}

// rows is "(?,?),(?,?)" for two rows of two columns.
func rows(count, columns int) string {
	row := "(" + strings.Repeat("?,", columns-1) + "?)"
	return strings.Repeat(row+",", count-1) + row
}
