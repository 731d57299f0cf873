package store

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/job"
)

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestCheckFindsDamage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := Check(t.Context(), dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a store: %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("it left %v", left)
	}
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, s, 1, 5000, job.Queued)
	if h, err := Check(t.Context(), dir); err != nil || !h.Complete || h.Damage != "" || h.Bytes == 0 || h.LogBytes == 0 {
		t.Errorf("beside its berth: %+v, %v", h, err)
	}
	commit(t, s, Tx{Put: []*job.Job{queued(5001)}}) // which goes on
	log := read(t, s.path+"-wal")
	crashed := t.TempDir()
	for name, content := range map[string][]byte{"berth.db": read(t, s.path), "berth.db-wal": log} {
		if err := os.WriteFile(filepath.Join(crashed, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if h, err := Check(t.Context(), crashed); err != nil || !h.Complete || h.Damage != "" || h.LogBytes != int64(len(log)) {
		t.Errorf("after a crash: %+v, %v", h, err)
	}
	if !bytes.Equal(read(t, filepath.Join(crashed, "berth.db-wal")), log) {
		t.Error("it changed the log of a crash")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if h, err := Check(ended, dir); err != nil || h.Complete || h.Damage != "" {
		t.Errorf("without time: %+v, %v", h, err)
	}
	before, _ := os.ReadDir(dir)
	if h, err := Check(t.Context(), dir); err != nil || !h.Complete || h.Damage != "" || h.LogBytes != 0 {
		t.Errorf("without its berth: %+v, %v", h, err)
	}
	if after, _ := os.ReadDir(dir); len(after) != len(before) {
		t.Errorf("it left %v", after)
	}
	path := filepath.Join(dir, "berth.db")
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteAt([]byte("this is not a page of a database"), 100*4096); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if h, err := Check(t.Context(), dir); err != nil || h.Damage == "" {
		t.Errorf("a damaged page: %+v, %v", h, err)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("not a database ", 500)), 0o600); err != nil {
		t.Fatal(err)
	}
	if h, err := Check(t.Context(), dir); err != nil || h.Damage == "" {
		t.Errorf("another file: %+v, %v", h, err)
	}
}
