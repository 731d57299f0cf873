package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// BlobName is the name of a blob: a hash of its content, and its size.
func BlobName(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16]) + "-" + strconv.Itoa(len(data))
}

// BlobBytes is the size of the blob of that name; 0: an older berth named it.
func BlobBytes(name string) int {
	_, size, _ := strings.Cut(name, "-")
	bytes, _ := strconv.Atoi(size) // 0 without a size
	return bytes
}

// Blob is the content stored under a name, or ErrNotFound.
func (s *Store) Blob(name string) ([]byte, error) {
	var data []byte
	err := s.lookup.QueryRowContext(context.Background(), "SELECT data FROM blobs WHERE hash = ?", name).Scan(&data)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("blob %s: %w", name, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("read blob %s: %w", name, s.classify(err))
	}
	return data, nil
}

// putBlobs stores blobs that are not there yet.
func (s *Store) putBlobs(ctx context.Context, blobs map[string][]byte) error {
	for name, data := range blobs {
		if s.sweeping != nil {
			s.sweeping[name] = true
		}
		if _, err := s.statements.insertBlob.ExecContext(ctx, name, data); err != nil {
			return fmt.Errorf("put blob %s: %w", name, err)
		}
	}
	return nil
}

// SweepBlobs deletes blobs that no job refers to, in small steps.
func (s *Store) SweepBlobs() (swept int64, err error) {
	unused, through, err := s.unusedBlobs()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sweeping = nil
	}()
	if err != nil {
		return 0, fmt.Errorf("sweep blobs: %w", s.classify(err))
	}
	for len(unused) > 0 {
		some, bytes := 0, int64(0)
		for ; some < len(unused) && bytes < sweepBytes; some++ {
			bytes += unused[some].bytes
		}
		n, err := s.change(func(ctx context.Context) (int64, error) { return s.sweepSome(ctx, unused[:some], through) })
		if swept += n; err != nil {
			return swept, fmt.Errorf("sweep blobs: %w", err)
		}
		unused = unused[some:]
	}
	return swept, nil
}

type unusedBlob struct {
	name  string
	bytes int64
}

// unusedBlobs lists blobs that no job refers to, without blocking commits, and the
// number of the last job that it took into account.
func (s *Store) unusedBlobs() (unused []unusedBlob, through int64, err error) {
	s.mu.Lock()
	through, s.sweeping = s.lastSeq, map[string]bool{}
	s.mu.Unlock()
	rows, err := s.reader.QueryContext(context.Background(), `SELECT hash, length(data) FROM blobs
		WHERE hash NOT IN (SELECT rest ->> '$.environ' FROM jobs WHERE rest ->> '$.environ' IS NOT NULL)
		AND hash NOT IN (SELECT text FROM jobs WHERE text <> '')`)
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var b unusedBlob
		if err := rows.Scan(&b.name, &b.bytes); err != nil {
			return nil, 0, err
		}
		unused = append(unused, b)
	}
	return unused, through, rows.Err()
}

// sweepSome deletes blobs unless a job refers to them by now: a new one, or one
// whose text was changed.
func (s *Store) sweepSome(ctx context.Context, some []unusedBlob, through int64) (swept int64, err error) {
	ahead := s.aheadBlobs()
	for _, b := range some {
		if ahead[b.name] || s.sweeping[b.name] {
			continue
		}
		result, err := s.conn.ExecContext(ctx, `DELETE FROM blobs WHERE hash = ?1
			AND NOT EXISTS (SELECT 1 FROM jobs WHERE seq > ?2 AND rest ->> '$.environ' = ?1)
			AND NOT EXISTS (SELECT 1 FROM jobs WHERE text = ?1 AND text <> '')`, b.name, through)
		if err != nil {
			return 0, err
		}
		n, err := result.RowsAffected()
		if err != nil {
			return 0, err
		}
		swept += n
	}
	return swept, nil
}
