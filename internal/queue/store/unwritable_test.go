package store

import (
	"errors"
	"os"
	"slices"
	"testing"

	"berth/internal/job"
)

// readOnly makes SQLite refuse writes, or take them again, as on a file system
// that the kernel has made read-only.
func (s *Store) readOnly(t *testing.T, on string) {
	t.Helper()
	if _, err := s.conn.ExecContext(t.Context(), "PRAGMA query_only = "+on); err != nil {
		t.Fatal(err)
	}
}

// TestADiskThatTakesNoWrites: the commit is refused, reading goes on, and the
// same commit succeeds once the disk takes writes again.
func TestADiskThatTakesNoWrites(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openIn(t, dir)
	commit(t, s, Tx{Put: []*job.Job{queued(1)}, Events: []*job.Event{{Kind: job.EventQueued, Job: queued(1)}}})
	s.readOnly(t, "1")
	tx := Tx{Put: []*job.Job{queued(2)}, Events: []*job.Event{{Kind: job.EventQueued, Job: queued(2)}}}
	for range 2 {
		if err := s.Commit(tx); !errors.Is(err, ErrUnwritable) || !MayPass(err) || errors.Is(err, errBroken) {
			t.Fatalf("it is refused with %v", err)
		}
	}
	if got := ids(t, s); !slices.Equal(got, []string{"1"}) {
		t.Errorf("meanwhile there are jobs %v", got)
	}
	s.readOnly(t, "0")
	commit(t, s, tx)
	if tx.Events[0].Seq != 2 {
		t.Errorf("its event has number %d", tx.Events[0].Seq)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := ids(t, openIn(t, dir)); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("the store has jobs %v", got)
	}
}

// TestClosedWhileTheDiskTakesNoWrites: the log stays, because a disk that failed
// once may wrongly say that folding it into the file succeeded.
func TestClosedWhileTheDiskTakesNoWrites(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openIn(t, dir)
	commit(t, s, Tx{Put: []*job.Job{queued(1)}})
	s.readOnly(t, "1")
	if err := s.Commit(Tx{Put: []*job.Job{queued(2)}}); !errors.Is(err, ErrUnwritable) {
		t.Fatal(err)
	}
	s.readOnly(t, "0")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if log, err := os.Stat(s.path + "-wal"); err != nil || log.Size() == 0 {
		t.Errorf("the log was folded into the file: %v", err)
	}
	if err := s.Commit(Tx{}); !errors.Is(err, errClosed) {
		t.Errorf("a closed store says %v", err)
	}
	_ = s.writer.Close() // the process would end now
	if got := ids(t, openIn(t, dir)); !slices.Equal(got, []string{"1"}) {
		t.Errorf("the store has jobs %v", got)
	}
}
