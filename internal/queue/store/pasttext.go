package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"berth/internal/job"
)

// plainText is the longest text of an ended job that is not counted: as many as
// are remembered fit easily.
const plainText = 1 << 10

// dropStep is how many jobs lose their text in one transaction, and sweepBytes
// how much text one transaction deletes, so that no commit waits long for it.
const (
	dropStep   = 100
	sweepBytes = 4 << 20
)

// textSQL is the text that each job has, in the order in which a user's ended
// jobs lose theirs.
const textSQL = "SELECT id, ended_at, user, " + live + ", coalesce(text, ''), coalesce(rest ->> '$.environ', ''), " + inlineSQL +
	" FROM jobs WHERE text IS NULL OR text <> '' ORDER BY user, attempt > 0, ended_at, seq"

const inlineSQL = "iif(text IS NULL, octet_length(spec) + coalesce(octet_length(command), 0), 0)"

// PastText is how many bytes of text the jobs had that ended since the store was
// opened.
func (s *Store) PastText() int64 { return s.pastText.Load() }

// DropText drops the text of ended jobs of users who have more than most bytes of
// it. Jobs that never ran lose theirs first, then those that ended first. What
// several jobs share counts once, and stays as long as one of them keeps its
// text. The job itself stays, with the beginning of its command.
func (s *Store) DropText(most int64) (dropped int, err error) {
	found, err := s.tooMuchText(most)
	if err != nil {
		return 0, fmt.Errorf("drop text: %w", s.classify(err))
	}
	for some := range slices.Chunk(found, dropStep) {
		n, err := s.dropSome(some)
		dropped += n
		if err != nil {
			return dropped, fmt.Errorf("drop text: %w", err)
		}
	}
	return dropped, nil
}

// textOwner is an ended job and its text.
type textOwner struct {
	over
	blobs  [2]string // its own and its environment's; empty: none
	inline int64     // in its row; 0 if it is short
}

// tooMuchText lists the jobs that lose their text.
func (s *Store) tooMuchText(most int64) (found []over, err error) {
	ctx := context.Background()
	sizes, total, err := s.blobSizes(ctx)
	if err != nil {
		return nil, err
	}
	row := s.reader.QueryRowContext(ctx, "SELECT coalesce(sum(bytes), 0) FROM (SELECT "+inlineSQL+" AS bytes FROM jobs WHERE NOT "+live+") WHERE bytes > ?", plainText)
	var inline int64
	if err := row.Scan(&inline); err != nil || total+inline <= most {
		return nil, err
	}
	rows, err := s.reader.QueryContext(ctx, textSQL)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	inUse := map[string]bool{} // by an unfinished job
	owners := map[string][]textOwner{}
	for rows.Next() {
		var o textOwner
		var user string
		var unfinished bool
		if err := rows.Scan(&o.id, &o.ended, &user, &unfinished, &o.blobs[0], &o.blobs[1], &o.inline); err != nil {
			return nil, err
		}
		if o.inline <= plainText {
			o.inline = 0
		}
		switch {
		case unfinished:
			inUse[o.blobs[0]], inUse[o.blobs[1]] = true, true
		case o.inline > 0 || o.blobs != [2]string{}:
			owners[user] = append(owners[user], o)
		}
	}
	for blob := range inUse {
		delete(sizes, blob)
	}
	for _, jobs := range owners {
		found = append(found, excess(jobs, sizes, most)...)
	}
	return found, rows.Err()
}

// excess is which of a user's jobs, in the order in which they lose their text,
// do so if most bytes stay. Blobs without a size are not counted.
func excess(jobs []textOwner, sizes map[string]int64, most int64) (found []over) {
	last, have := map[string]int{}, int64(0) // the last job that refers to a blob
	for i, j := range jobs {
		have += j.inline
		for _, blob := range j.blobs {
			if _, before := last[blob]; !before {
				have += sizes[blob]
			}
			last[blob] = i
		}
	}
	gone, through := map[string]bool{}, 0
	for ; have > most && through < len(jobs); through++ {
		have -= jobs[through].inline
		for _, blob := range jobs[through].blobs {
			if last[blob] == through && sizes[blob] > 0 && !gone[blob] {
				gone[blob] = true
				have -= sizes[blob]
			}
		}
	}
	for i, j := range jobs {
		if i < through && j.inline > 0 || gone[j.blobs[0]] || gone[j.blobs[1]] {
			found = append(found, j.over)
		}
	}
	return found
}

func (s *Store) blobSizes(ctx context.Context) (sizes map[string]int64, total int64, err error) {
	rows, err := s.reader.QueryContext(ctx, "SELECT hash, length(data) FROM blobs")
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close()
	sizes = map[string]int64{}
	for rows.Next() {
		var name string
		var size int64
		if err := rows.Scan(&name, &size); err != nil {
			return nil, 0, err
		}
		sizes[name] = size
		total += size
	}
	return sizes, total, rows.Err()
}

// dropSome drops the text of jobs unless they changed.
func (s *Store) dropSome(some []over) (int, error) {
	var updates [][]any
	for _, o := range some {
		j, err := s.Job(o.id)
		if err != nil {
			continue // it was forgotten, or is read and reported elsewhere
		}
		args, err := withoutText(j)
		if err != nil {
			return 0, err
		}
		updates = append(updates, append(args, o.id, o.ended))
	}
	dropped, err := s.change(func(ctx context.Context) (n int64, err error) {
		for _, args := range updates {
			result, err := s.conn.ExecContext(ctx, "UPDATE jobs SET command = ?, spec = ?, rest = ?, text = '' WHERE id = ? AND ended_at = ? AND NOT "+live, args...)
			if err != nil {
				return 0, err
			}
			changed, err := result.RowsAffected()
			if err != nil {
				return 0, err
			}
			n += changed
		}
		return n, nil
	})
	return int(dropped), err
}

// withoutText is the command, the spec and the rest of a job without its long
// text and its environment.
func withoutText(j *job.Job) ([]any, error) {
	j.Environ = ""
	if longBytes(&j.Spec) > plainText {
		head := longText{Shell: cutText(j.Spec.CommandHead(2 * snapshotCut))}
		head.into(&j.Spec)
	}
	wide := !isText(j)
	inside := j
	if wide {
		inside = widened(j)
	}
	spec, err := encodeSpec(inside.Spec)
	if err != nil {
		return nil, err
	}
	rest, err := encodeRest(inside, wide)
	command := sql.NullString{String: j.Spec.Shell, Valid: j.Spec.Shell != ""}
	return []any{command, string(spec), string(rest)}, err
}
