package store

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"berth/internal/job"
)

// fillUp leaves no room on the disk, and returns what frees it.
func fillUp(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "fill")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for block := bytes.Repeat([]byte("x"), 1<<16); len(block) > 0; {
		if _, err := file.Write(block); err != nil {
			block = block[:len(block)/2]
		}
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAFullDiskHasRoomForFacts: endings are recorded, new jobs and ordinary
// changes are not, and all is as before once there is room.
func TestAFullDiskHasRoomForFacts(t *testing.T) {
	t.Parallel()
	dir, _ := mountTmpfs(t, "size=8m")
	s := opened(t, filepath.Join(dir, "store"))
	var jobs []*job.Job
	for i := range 20 {
		jobs = append(jobs, queued(int64(i+1)))
	}
	if err := s.Commit(Tx{Put: jobs}); err != nil {
		t.Fatal(err)
	}
	free := fillUp(t, dir)
	for _, j := range jobs {
		j.MustTo(job.Running)
		j.MustTo(job.Finished)
		j.Outcome = job.OK
		if err := s.Commit(Tx{Put: []*job.Job{j}, Reserved: true}); err != nil {
			t.Fatalf("job %s: %v", j.ID, err)
		}
		// Whoever fills the disk goes on.
		fillUp(t, dir)
	}
	for name, tx := range map[string]Tx{
		"a new job":               {Put: []*job.Job{queued(21)}},
		"a new job as a fact":     {Put: []*job.Job{queued(21)}, Reserved: true},
		"an ordinary change":      {Put: jobs[:1]},
		"nothing, as an ordinary": {},
	} {
		if err := s.Commit(tx); !errors.Is(err, ErrFull) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A restart on the full disk loses nothing.
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = opened(t, filepath.Join(dir, "store"))
	for _, j := range jobs {
		if got, err := s.Job(j.ID); err != nil || got.State != job.Finished {
			t.Errorf("job %s: %+v, %v", j.ID, got, err)
		}
	}
	free()
	if err := s.Present(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, "store", ballastName)); err != nil || info.Size() != s.ballast.bytes {
		t.Errorf("the ballast is not back: %v, %v", info, err)
	}
	if err := s.Commit(Tx{Put: []*job.Job{queued(21)}}); err != nil {
		t.Errorf("a new job, with room: %v", err)
	}
}
