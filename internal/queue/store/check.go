package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
)

// Health is what Check found.
type Health struct {
	Bytes    int64  // of the file
	LogBytes int64  // of SQLite's write-ahead log
	Complete bool   // the whole file was checked
	Damage   string // "": none was found
}

// Check looks for damage in the structure of a store until ctx ends, even while a
// berth writes to it, and changes nothing. It cannot see a changed value inside a
// row: SQLite's pages have no checksums.
func Check(ctx context.Context, dir string) (h Health, err error) {
	s := &Store{dir: dir, path: Path(dir)}
	file, err := os.Stat(s.path)
	if err != nil {
		return h, err
	}
	h.Bytes = file.Size()
	if log, err := os.Stat(s.path + "-wal"); err == nil {
		h.LogBytes = log.Size()
	}
	address := s.address(readerCacheKiB, "query_only(1)")
	if h.LogBytes > 0 {
		address += "&mode=ro" // or closing it would fold the log into the file
	}
	db, err := sql.Open("sqlite", address)
	if err != nil {
		return h, err
	}
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err == nil {
		err = quickCheck(ctx, conn)
		_ = conn.Close()
	}
	err = classifyDamage(err)
	switch {
	case errors.Is(err, errBroken):
		h.Complete, h.Damage = true, err.Error()
	case err != nil && ctx.Err() == nil:
		return h, fmt.Errorf("check %s: %w", s.path, err)
	default:
		h.Complete = err == nil
	}
	return h, nil
}
