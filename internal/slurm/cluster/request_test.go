package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// TestOldBatchesAreRemoved: except those whose jobs have not ended.
func TestOldBatchesAreRemoved(t *testing.T) {
	dir, old := t.TempDir(), time.Now().Add(-48*time.Hour)
	for _, name := range []string{"live", "old", "young"} {
		testkit.Must(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		testkit.Write(t, filepath.Join(dir, name, "0.log"), "x")
		if name != "young" {
			testkit.Must(t, os.Chtimes(filepath.Join(dir, name), old, old))
		}
	}
	Do(t.Context(), Request{Sweep: &Sweep{Dir: dir, Before: time.Now().Add(-24 * time.Hour), Keep: []string{"live"}}})
	entries, err := os.ReadDir(dir)
	testkit.Must(t, err)
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if !slices.Equal(left, []string{"live", "young"}) {
		t.Errorf("left: %v", left)
	}
}

// TestWithoutSlurm: what cannot be asked is trouble, not a refusal.
func TestWithoutSlurm(t *testing.T) {
	dir := t.TempDir()
	reply := Do(t.Context(), Request{Environ: []string{"PATH=" + dir}, Queue: "berth:", Submit: &Submission{Dir: filepath.Join(dir, "b")}})
	if reply.Trouble == "" || reply.Submitted.Trouble == "" || reply.Submitted.Refused != "" {
		t.Errorf("%+v", reply)
	}
}

// TestOldNewsIsDropped: what the engine said before a job was handed over must not
// undo that, or it would be handed over twice.
func TestOldNewsIsDropped(t *testing.T) {
	now := time.Now()
	d := newDesk(New(Setup{}), 0)
	d.jobs["1"] = &held{job: job.Job{ID: "1", State: job.Queued, Handover: job.Handover{Batch: "b"}}, handed: now}
	d.tell([]update{{job: &job.Job{ID: "1", State: job.Queued}, at: now.Add(-time.Second)}})
	d.tell([]update{{gone: "1", at: now.Add(-time.Second)}})
	if d.receive(); d.jobs["1"] == nil || !d.jobs["1"].job.HandedOver() {
		t.Error("old news counted")
	}
	d.tell([]update{{job: &job.Job{ID: "1", State: job.Queued}, at: now.Add(time.Second)}})
	if d.receive(); d.jobs["1"].job.HandedOver() {
		t.Error("news did not count")
	}
}

func TestPathsAreWhole(t *testing.T) {
	c := New(Setup{Dir: "/data/ann"})
	for from, want := range map[string]string{"": "/data/ann", "sub": "/data/ann/sub", "/abs": "/abs", "~/x": "~/x"} {
		spec := job.Spec{Dir: from, Venv: from}
		if c.place(&spec); spec.Dir != want || from != "" && spec.Venv != want {
			t.Errorf("%q is %q, venv %q", from, spec.Dir, spec.Venv)
		}
	}
}
