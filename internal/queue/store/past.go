package store

import (
	"slices"

	"berth/internal/job"
)

const pastSQL = "SELECT " + readColumns + " FROM jobs WHERE ended_at > 0 AND started_at > 0 AND state IN ('finished', 'failed') ORDER BY seq DESC LIMIT ?"

// Past is the newest jobs that ran and have ended, at most this many, in order
// of submission.
func (s *Store) Past(most int) ([]*job.Job, error) {
	var past []*job.Job
	err := s.each(pastSQL, []any{most}, func(j *job.Job) error {
		past = append(past, j)
		return nil
	})
	slices.Reverse(past)
	return past, err
}
