package store

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"berth/internal/job"
)

func TestAStoreIsReadBesideItsOwner(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := OpenToRead(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a store that does not exist: %v", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("reading made %v", entries)
	}
	owner := openIn(t, dir)
	commit(t, owner, Tx{Put: []*job.Job{{ID: "1", Seq: 1, State: job.Queued}}})
	reader, err := OpenToRead(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	commit(t, owner, Tx{Put: []*job.Job{{ID: "2", Seq: 2, State: job.Queued}}})
	if got := ids(t, reader); len(got) != 2 {
		t.Errorf("it reads %v", got)
	}
	if err := reader.Commit(Tx{}); err == nil {
		t.Error("it takes a commit")
	}
	if err := owner.Close(); err != nil {
		t.Fatal(err)
	}
	next, err := Open(dir) // a reader holds no lock
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if got := ids(t, reader); len(got) != 2 {
		t.Errorf("after its owner: %v", got)
	}
}

func TestAStoreOfAnotherFormatIsNotRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.conn.ExecContext(t.Context(), fmt.Sprintf("PRAGMA user_version = %d", len(migrations())-1)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenToRead(dir); !errors.Is(err, ErrOlder) {
		t.Errorf("an older format: %v", err)
	}
}
