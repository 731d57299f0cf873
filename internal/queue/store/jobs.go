package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"berth/internal/job"
)

// readColumns is what scanJob needs; the other columns repeat what spec and rest
// contain.
const readColumns = "seq, id, key, user, state, outcome, rank, attempt, vram_mib, submitted_at, started_at, ended_at, command, spec, rest, text, (SELECT data FROM blobs WHERE hash = text)"

const peakSQL = "SELECT max(peak_mib), count(*) FROM jobs WHERE command_hash = ? AND peak_mib > 0 AND outcome IN ('ok', 'oom') AND user = ?"

// Each calls fn with every job in order of submission, and stops at its first
// error. fn may commit.
func (s *Store) Each(fn func(*job.Job) error) error {
	return s.each("SELECT "+readColumns+" FROM jobs ORDER BY seq", nil, fn)
}

func (s *Store) each(query string, args []any, fn func(*job.Job) error) error {
	found, err := s.reader.QueryContext(context.Background(), query, args...)
	if err != nil {
		return fmt.Errorf("read jobs: %w", s.classify(err))
	}
	defer found.Close()
	from := decoder{specs: map[string]job.Spec{}, rests: map[string]rest{}}
	for found.Next() {
		j, err := scanJob(found, &from)
		if err != nil {
			return fmt.Errorf("read jobs: %w", s.classify(err))
		}
		if err := fn(j); err != nil {
			return err
		}
	}
	if err := found.Err(); err != nil {
		return fmt.Errorf("read jobs: %w", s.classify(err))
	}
	return nil
}

// Job is the job with that id, or ErrNotFound.
func (s *Store) Job(id string) (*job.Job, error) {
	row := s.lookup.QueryRowContext(context.Background(), "SELECT "+readColumns+" FROM jobs WHERE id = ?", id)
	j, err := scanJob(row, &decoder{})
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("job %s: %w", id, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("read job %s: %w", id, s.classify(err))
	}
	return j, nil
}

// scanJob builds a job from a row.
func scanJob(row interface{ Scan(...any) error }, from *decoder) (*job.Job, error) {
	var (
		submitted, started, ended int64
		command, text             sql.NullString
		spec, others, long        []byte
		j                         = new(job.Job)
		columns                   struct {
			Seq, Rank, VRAMMiB int64
			ID, Key, User      string
			State              job.State
			Outcome            job.Outcome
			Attempt            int
		}
	)
	err := row.Scan(&columns.Seq, &columns.ID, &columns.Key, &columns.User, (*string)(&columns.State), (*string)(&columns.Outcome),
		&columns.Rank, &columns.Attempt, &columns.VRAMMiB, &submitted, &started, &ended, &command, &spec, &others, &text, &long)
	if err != nil {
		return nil, err
	}
	if err := from.decode(j, spec, others); err != nil {
		return nil, fmt.Errorf("job %s: %w: %w", columns.ID, errBroken, err)
	}
	j.Seq, j.ID, j.Key, j.User = columns.Seq, columns.ID, columns.Key, columns.User
	j.State, j.Outcome, j.Rank = columns.State, columns.Outcome, columns.Rank
	j.Attempt.Number, j.VRAMMiB = columns.Attempt, columns.VRAMMiB
	j.SubmittedAt, j.StartedAt, j.EndedAt = moment(submitted), moment(started), moment(ended)
	j.Spec.Shell, j.TextGone = command.String, text.Valid && text.String == ""
	if text.String != "" {
		if err := from.decodeLong(j, text.String, long); err != nil {
			return nil, fmt.Errorf("job %s: %w: text %s: %w", j.ID, errBroken, text.String, err)
		}
	}
	return j, nil
}

// LastSeq is the highest number any job ever had, including deleted ones.
func (s *Store) LastSeq() (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastSeq, nil
}

// PeakFor is the highest memory, in MiB on one card, measured for this command
// (Spec.CommandHead) of this user, and in how many attempts. They finished well or ran out of
// memory: others were stopped early and may not have reached their peak.
func (s *Store) PeakFor(user, command string) (mib int64, runs int, err error) {
	var peak sql.NullInt64
	row := s.lookup.QueryRowContext(context.Background(), peakSQL, hashCommand(command), user)
	if err := row.Scan(&peak, &runs); err != nil {
		return 0, 0, fmt.Errorf("read peaks: %w", s.classify(err))
	}
	return peak.Int64, runs, nil
}
