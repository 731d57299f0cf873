package store

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"berth/internal/job"
)

// rowsPerInsert is how many rows one statement inserts in bulk.
const rowsPerInsert = 32

// The counters.
const (
	counterSeq   = "job_seq"
	counterEvent = "event_seq"
)

// statements are prepared once, on the writer's connection.
type statements struct {
	begin, commit, rollback   *sql.Stmt
	insertJob, insertJobs     *sql.Stmt
	updateJob, deleteJob      *sql.Stmt
	insertEvent, insertEvents *sql.Stmt
	counter, meta             *sql.Stmt

	all []*sql.Stmt
}

// jobColumns is the order of jobArgs.
const jobColumns = "seq, id, key, user, name, state, outcome, priority, rank, attempt, vram_mib, peak_mib, " +
	"submitted_at, started_at, ended_at, command_hash, command, spec, rest"

// updateSQL leaves the id out of the changes, so that its index is not touched.
const updateSQL = `UPDATE jobs SET key=?3, user=?4, name=?5, state=?6, outcome=?7, priority=?8, rank=?9, attempt=?10,
	vram_mib=?11, peak_mib=?12, submitted_at=?13, started_at=?14, ended_at=?15, command_hash=?16, command=?17,
	spec=?18, rest=?19 WHERE seq=?1 AND id=?2`

func prepare(ctx context.Context, conn *sql.Conn) (statements, error) {
	var s statements
	insertJob := "INSERT INTO jobs (" + jobColumns + ") VALUES "
	insertEvent := "INSERT INTO events (seq, at, kind, text, job) VALUES "
	for _, each := range []struct {
		to   **sql.Stmt
		text string
	}{
		{&s.begin, "BEGIN IMMEDIATE"},
		{&s.commit, "COMMIT"},
		{&s.rollback, "ROLLBACK"},
		{&s.insertJob, insertJob + rows(1, 19)},
		{&s.insertJobs, insertJob + rows(rowsPerInsert, 19)},
		{&s.updateJob, updateSQL},
		{&s.deleteJob, "DELETE FROM jobs WHERE id = ?"},
		{&s.insertEvent, insertEvent + rows(1, 5)},
		{&s.insertEvents, insertEvent + rows(rowsPerInsert, 5)},
		{&s.counter, "INSERT INTO counters (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"},
		{&s.meta, "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"},
	} {
		statement, err := conn.PrepareContext(ctx, each.text)
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

// jobArgs appends a job's row, in the order of jobColumns.
func jobArgs(args []any, j *job.Job) ([]any, error) {
	spec, others, err := encode(j)
	if err != nil {
		return nil, err
	}
	command := sql.NullString{String: j.Spec.Shell, Valid: j.Spec.Shell != ""}
	return append(args, j.Seq, j.ID, j.Key, j.User, j.Spec.Name, string(j.State), string(j.Outcome),
		j.Spec.Priority, j.Rank, j.Attempt, j.VRAMMiB, highest(j.PeakMiB),
		nanos(j.SubmittedAt), nanos(j.StartedAt), nanos(j.EndedAt),
		hashCommand(j.Spec.Command()), command, string(spec), string(others)), nil
}
