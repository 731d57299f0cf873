package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
)

// BlobName is the name of a blob: a hash of its content.
func BlobName(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
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
		if _, err := s.statements.insertBlob.ExecContext(ctx, name, data); err != nil {
			return fmt.Errorf("put blob %s: %w", name, err)
		}
	}
	return nil
}

// SweepBlobs deletes blobs that no job refers to.
func (s *Store) SweepBlobs() (swept int64, err error) {
	swept, err = s.change(func(ctx context.Context) (int64, error) {
		result, err := s.conn.ExecContext(ctx,
			"DELETE FROM blobs WHERE hash NOT IN (SELECT rest ->> '$.environ' FROM jobs WHERE rest ->> '$.environ' IS NOT NULL)")
		if err != nil {
			return 0, err
		}
		return result.RowsAffected()
	})
	if err != nil {
		return 0, fmt.Errorf("sweep blobs: %w", err)
	}
	return swept, nil
}
