package soak

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"berth/internal/api"
	"berth/internal/tests/testkit"
)

// TestStoreEmptied takes the store away under running jobs. No daemon kills
// them, starts them again, or forgets how they end.
func TestStoreEmptied(t *testing.T) {
	h := newHost(t, 2)
	b := h.up()
	lines := []line{tenthUntil(1, 0), tenthUntil(2, 3), tenthUntil(3, 0)}
	ids := h.submit(lines...)
	testkit.Eventually(t, "all run", func() bool { return h.count("ready") == len(lines) })
	before := h.keeps()
	b.kill()
	testkit.Must(t, os.RemoveAll(filepath.Join(h.logDir, "store")))
	b = h.serve()
	b.mustEnd(1)
	if said := b.stderr.String(); !strings.Contains(said, "is empty, but 3 jobs of an earlier daemon still run: ") || !strings.Contains(said, "--accept-empty-store") {
		t.Errorf("the daemon said %s", said)
	}
	b = h.up("--accept-empty-store")
	h.mustHold(before)
	if out, _, _ := h.cli("doctor"); !strings.Contains(out, "does not know 3 supervisors") {
		t.Errorf("doctor said %s", out)
	}
	if out, _, status := h.cli("list", "--strays"); status != 0 || strings.Count(out, "running") != 3 {
		t.Errorf("list --strays ended with %d: %s", status, out)
	}
	if out, said, status := h.cli("adopt", "--strays"); status != 0 || strings.Count(out, "taken back") != 3 {
		t.Errorf("adopt --strays ended with %d: %s%s", status, out, said)
	}
	b.kill() // whatever is adopted is on disk
	b = h.up()
	h.mustHold(before)
	h.letGo("all end", func() bool { return h.live() == 0 })
	h.mustEndAs(ids, lines)
	h.mustBeSound(lines)
	h.down(b)
	h.mustBeClean()
}

// TestStoreForgotten takes the store away while no job runs. No daemon begins a
// new queue there until somebody wants that.
func TestStoreForgotten(t *testing.T) {
	h := newHost(t, 1)
	b := h.up()
	h.submit(line{number: 1, block: "gpus=0", kind: "plain"})
	h.drain()
	h.submit(line{number: 2, block: "gpus=0 hold", kind: "plain"})
	b.kill()
	store, aside := filepath.Join(h.logDir, "store"), filepath.Join(h.dir, "aside")
	testkit.Must(t, os.Rename(store, aside))
	b = h.serve()
	b.mustEnd(1)
	if said := b.stderr.String(); !strings.Contains(said, "is empty, but an earlier queue left jobs/1\n") || !strings.Contains(said, "berth help back-up") || !strings.Contains(said, "--accept-empty-store") {
		t.Errorf("the daemon said %s", said)
	}
	testkit.Must(t, os.RemoveAll(store)) // the daemon made a new one, with nothing in it
	testkit.Must(t, os.Rename(aside, store))
	b = h.up()
	if jobs := h.all(); len(jobs) != 2 || jobs["2"].State != "queued" {
		t.Errorf("the daemon has %v", jobs)
	}
	b.kill()
	testkit.Must(t, os.RemoveAll(store))
	b = h.up("--accept-empty-store")
	if jobs := h.all(); len(jobs) != 0 {
		t.Errorf("the new queue has %v", jobs)
	}
	h.down(b)
	h.down(h.up()) // once is enough
}

// TestStoreRestored replaces the store with an older one under running jobs:
// some are queued in it, and some it does not know.
func TestStoreRestored(t *testing.T) {
	h := newHost(t, 1)
	b := h.up()
	_, err := api.Call(h.ctx(), h.client, api.PauseGPU, api.GPUIndex{Index: 0})
	testkit.Must(t, err)
	known := []line{tenthUntil(1, 0), tenthUntil(2, 3)}
	ids := h.submit(known...)
	backup := filepath.Join(h.dir, "backup")
	if _, said, status := h.cli("backup", backup); status != 0 {
		t.Fatalf("backup: %s", said)
	}
	_, err = api.Call(h.ctx(), h.client, api.ResumeGPU, api.GPUIndex{Index: 0})
	testkit.Must(t, err)
	later := []line{tenthUntil(3, 0), tenthUntil(4, 5)}
	ids = append(ids, h.submit(later...)...)
	lines := append(known, later...)
	testkit.Eventually(t, "all run", func() bool { return h.count("ready") == len(lines) })
	before := h.keeps()
	b.kill()
	restore := []string{"restore", "--private", "--state-dir", h.logDir, backup}
	if _, said, status := h.cli(restore...); status != 1 || !strings.Contains(said, "running, and not in the backup: 2 jobs (3, 4)") {
		t.Fatalf("restore ended with %d: %s", status, said)
	}
	if _, said, status := h.cli(append(restore, "--yes")...); status != 0 {
		t.Fatalf("restore ended with %d: %s", status, said)
	}
	b = h.up()
	h.mustHold(before)
	if views := h.all(); len(views) != 2 || views["1"].State != "running" || views["2"].State != "running" {
		t.Errorf("the daemon has %v", views)
	}
	_, err = api.Call(h.ctx(), h.client, api.ResumeGPU, api.GPUIndex{Index: 0}) // as it was at the backup
	testkit.Must(t, err)
	if adopted, err := api.Call(h.ctx(), h.client, api.AdoptStrays, api.AdoptStraysRequest{}); err != nil || len(adopted) != 2 {
		t.Errorf("adopted %v, %v", adopted, err)
	}
	h.letGo("all end", func() bool { return h.live() == 0 })
	h.mustEndAs(ids, lines)
	h.mustBeSound(lines)
	h.down(b)
	h.mustBeClean()
}

// TestRunStoreEmptied is the same for berth run: it refuses, and then takes the
// jobs back and runs no line twice.
func TestRunStoreEmptied(t *testing.T) {
	lines := []line{tenthUntil(1, 0), tenthUntil(2, 3), tenthUntil(3, 0)}
	s := newSite(t, 1, lines)
	testkit.Must(t, syscall.Mkfifo(filepath.Join(s.dir, "until"), 0o666))
	b := s.start()
	testkit.Eventually(t, "all run", func() bool { return s.count("ready") == len(lines) })
	before := s.keeps()
	s.killAll(b)
	testkit.Must(t, os.RemoveAll(filepath.Join(s.logDir, "store")))
	b = s.start()
	b.mustEnd(1)
	if said := b.stderr.String(); !strings.Contains(said, "is empty, but an earlier run left 3 jobs running") {
		t.Errorf("berth said %s", said)
	}
	b = s.start("--accept-empty-store")
	(&host{site: s}).letGo("all end", func() bool { return !b.running() })
	if status := b.wait(); status != worst(lines) {
		t.Errorf("berth ended with %d: %s", status, b.stderr.String())
	}
	if len(before) != 3 {
		t.Errorf("%d supervisors", len(before))
	}
	s.mustBeSound(lines)
	s.mustKnowTheEnd(lines)
	s.mustBeClean()
}

// mustHold checks that the same supervisors hold the jobs.
func (h *host) mustHold(before map[string]process) {
	h.t.Helper()
	after := h.keeps()
	for token, keep := range before {
		if after[token].pid != keep.pid {
			h.t.Errorf("supervisor %s is gone", token)
		}
	}
}
