package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/slurm/client"
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
	_, err := sweepRequest{Dir: dir, Before: time.Now().Add(-24 * time.Hour), Keep: []string{"live"}}.do(t.Context(), client.Client{})
	testkit.Must(t, err)
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
	c := client.Client{Environ: []string{"PATH=" + dir}}
	if listed, err := (listRequest{Comment: "berth:"}).do(t.Context(), c); err == nil {
		t.Errorf("%+v", listed)
	}
	if submitted, err := (submitRequest{Dir: filepath.Join(dir, "b")}).do(t.Context(), c); err == nil || submitted != (submitAnswer{}) {
		t.Errorf("%+v %v", submitted, err)
	}
}

// TestOldNewsIsDropped: what the engine said before a job was handed over must not
// undo that, or it would be handed over twice.
func TestOldNewsIsDropped(t *testing.T) {
	now := time.Now()
	w := newWorker(New(Setup{}), 0)
	w.jobs["1"] = &remoteJob{job: job.Job{ID: "1", State: job.Queued, Handover: job.Handover{Batch: "b"}}, handed: now}
	w.tell(changeSet{jobs: []job.Job{{ID: "1", State: job.Queued}}, at: now.Add(-time.Second)})
	w.tell(changeSet{gone: []string{"1"}, at: now.Add(-time.Second)})
	if w.receive(); w.jobs["1"] == nil || !w.jobs["1"].job.HandedOver() {
		t.Error("old news counted")
	}
	w.tell(changeSet{jobs: []job.Job{{ID: "1", State: job.Queued}}, at: now.Add(time.Second)})
	if w.receive(); w.jobs["1"].job.HandedOver() {
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
