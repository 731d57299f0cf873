package handover_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"berth/internal/job"
	"berth/internal/slurm/handover"
)

func newBatch(t *testing.T, orders ...handover.Order) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "queue", "batch")
	if err := handover.Create(dir, orders, []byte("#!/bin/sh\n")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestOrdersComeBack: bytes that are not UTF-8 are a job's too.
func TestOrdersComeBack(t *testing.T) {
	code := 3
	want := []handover.Order{
		{Job: job.Job{ID: "17_1", User: "ann", Spec: job.Spec{Shell: "echo \xff", GPUs: 2}, Attempt: job.Attempt{Number: 2, ExitCode: &code}}, Environ: []string{"A=\xfe"}, Log: "/l"},
		{Job: job.Job{ID: "18", SubmittedAt: time.Unix(1e9, 0).UTC()}, Index: 5},
	}
	dir := newBatch(t, want...)
	got, err := handover.Orders(dir)
	if err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("orders: %v\n%s", err, cmp.Diff(want, got))
	}
	if o, err := handover.ReadOrder(dir, 5); err != nil || o.Job.ID != "18" {
		t.Errorf("order 5: %v %+v", err, o)
	}
	if o, err := handover.ReadOrder(dir, 1); err == nil {
		t.Errorf("order 1: %+v", o)
	}
	if info, err := os.Stat(filepath.Join(dir, "orders")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("orders can be read by others: %v %v", info, err)
	}
}

// TestOnlyOneBegins: of many that want the marker at once, one gets it.
func TestOnlyOneBegins(t *testing.T) {
	dir := newBatch(t, handover.Order{})
	var begun atomic.Int32
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			switch err := handover.Begin(dir, 0, handover.Begun{Node: "n1", At: time.Unix(1e9, 0).UTC()}); {
			case err == nil:
				begun.Add(1)
			case !errors.Is(err, handover.ErrBegun):
				t.Error(err)
			}
		})
	}
	all.Wait()
	if begun.Load() != 1 {
		t.Errorf("%d began", begun.Load())
	}
	b, err := handover.ReadBegun(dir, 0)
	if err != nil || b == nil || b.Node != "n1" {
		t.Errorf("marker: %v %v", b, err)
	}
}

func TestLookAtABatch(t *testing.T) {
	dir := newBatch(t, handover.Order{}, handover.Order{}, handover.Order{})
	if r, err := handover.ReadRecord(dir, 1); r != nil || err != nil {
		t.Errorf("no record yet: %v %v", r, err)
	}
	want := handover.Record{Outcome: job.OK, PeakMiB: map[int]int64{3: 12}, EndedAt: time.Unix(1e9, 0).UTC()}
	for _, err := range []error{
		handover.Begin(dir, 1, handover.Begun{}), handover.Report(dir, 1, handover.Now{}), handover.Finish(dir, 1, want), handover.Begin(dir, 2, handover.Begun{Taken: true}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	all, err := handover.Look(dir)
	if err != nil {
		t.Fatal(err)
	}
	if all[0] != (handover.Has{}) || !all[1].Begun || !all[1].Now || !all[1].Ended || all[1].NowAt.IsZero() || !all[2].Begun || all[2].Ended {
		t.Errorf("look: %+v", all)
	}
	if r, err := handover.ReadRecord(dir, 1); err != nil || cmp.Diff(&want, r) != "" {
		t.Errorf("record: %v %s", err, cmp.Diff(&want, r))
	}
	left, _ := filepath.Glob(filepath.Join(dir, ".new-*"))
	if len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// TestAMarkerMadeTwice: an answer of NFS that was lost is not taken for another's
// marker.
func TestAMarkerMadeTwice(t *testing.T) {
	dir := newBatch(t, handover.Order{})
	other := filepath.Join(dir, "other")
	for _, err := range []error{os.WriteFile(other, nil, 0o600), handover.Begin(dir, 0, handover.Begun{Node: "n1"})} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if handover.Linked(other) {
		t.Error("a file with one name has two")
	}
	if err := os.Link(other, filepath.Join(dir, "1.begun")); err != nil || !handover.Linked(other) {
		t.Errorf("a file with two names has one: %v", err)
	}
	if err := handover.Begin(dir, 0, handover.Begun{Node: "n2"}); !errors.Is(err, handover.ErrBegun) {
		t.Errorf("the marker was made again: %v", err)
	}
}
