package store

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

//go:embed schema/*.sql
var schemaFiles embed.FS

// migrations are the steps from an empty file to the current schema; step i
// takes version i to i+1. A released step never changes.
var migrations = sync.OnceValue(func() []string {
	names, err := fs.Glob(schemaFiles, "schema/*.sql")
	if err != nil || len(names) == 0 {
		panic("bug: the schema is not embedded")
	}
	steps := make([]string, len(names))
	for i, name := range names {
		text, err := schemaFiles.ReadFile(name)
		if err != nil {
			panic("bug: " + err.Error())
		}
		steps[i] = string(text)
	}
	return steps
})

// migrate brings the file to the last step. An older store is copied first, so
// that the berth that wrote it can be used again.
func migrate(ctx context.Context, conn *sql.Conn, path string, steps []string) error {
	version, tables, err := formatOf(ctx, conn, len(steps))
	if err != nil || version == len(steps) {
		return err
	}
	if tables == 0 {
		// One commit instead of one per step, each of which waits for the disk: the
		// own queue of every new berth run begins with this.
		steps = append(make([]string, len(steps)-1), strings.Join(steps[version:], "\n;\n"))
		version = len(steps) - 1
	} else {
		if err := backUp(ctx, conn, fmt.Sprintf("%s.bak-v%d", path, version)); err != nil {
			return fmt.Errorf("back up before migrating: %w", err)
		}
	}
	for ; version < len(steps); version++ {
		if err := migrateStep(ctx, conn, steps[version], version+1); err != nil {
			return fmt.Errorf("migrate to format %d: %w", version+1, err)
		}
	}
	return nil
}

// formatOf is the format of a store, which must not be a later one, and how many
// tables it has.
func formatOf(ctx context.Context, from rowReader, known int) (version, tables int, err error) {
	row := from.QueryRowContext(ctx, "SELECT user_version, (SELECT count(*) FROM sqlite_schema) FROM pragma_user_version")
	if err := row.Scan(&version, &tables); err != nil {
		return 0, 0, err
	}
	if version > known {
		return version, tables, &NewerSchemaError{Found: version, Known: known}
	}
	return version, tables, nil
}

func migrateStep(ctx context.Context, conn *sql.Conn, step string, version int) error {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing once committed
	if _, err := tx.ExecContext(ctx, step); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", version)); err != nil {
		return err
	}
	return tx.Commit()
}

// backUp first writes a copy under a temporary name: a crash half way leaves
// nothing that looks like a backup.
func backUp(ctx context.Context, conn *sql.Conn, target string) error {
	partial := target + ".partial"
	if err := os.Remove(partial); err != nil && !os.IsNotExist(err) {
		return err
	}
	if _, err := conn.ExecContext(ctx, "VACUUM INTO ?", partial); err != nil {
		return err
	}
	if err := syncPath(partial); err != nil {
		return err
	}
	if err := os.Rename(partial, target); err != nil {
		return err
	}
	return syncPath(filepath.Dir(target))
}

// syncPath makes a file's content, or a directory's entries, durable.
func syncPath(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return file.Sync()
}
