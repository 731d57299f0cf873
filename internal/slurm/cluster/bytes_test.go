package cluster

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"berth/internal/job"
	"berth/internal/slurm/handover"
	"berth/internal/tests/testkit"
)

// TestARequestKeepsEveryByte: commands, variables and paths need not be UTF-8.
func TestARequestKeepsEveryByte(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "b\xfe")
	want := handover.Order{Job: job.Job{ID: "1", Spec: job.Spec{Shell: "echo \xff"}}, Environ: []string{"A=\xfe"}, Log: "/l\xfd"}
	ask := func(request, reply any) {
		t.Helper()
		encoded, err := encode([]string{"PATH=" + t.TempDir()}, request)
		testkit.Must(t, err)
		var out bytes.Buffer
		if status := serve(bytes.NewReader(encoded), &out); status != 0 {
			t.Fatalf("status %d", status)
		}
		testkit.Must(t, json.Unmarshal(out.Bytes(), reply))
	}
	var submitted answer[submitAnswer]
	if ask(submitRequest{Dir: dir, Orders: []handover.Order{want}, Script: []byte("#!/bin/sh\n")}, &submitted); !strings.Contains(submitted.Error, "there is no sbatch") {
		t.Errorf("%+v", submitted)
	}
	var taken answer[[]bool]
	if ask(takeRequest{[]startMarker{{Dir: dir}}}, &taken); len(taken.Reply) != 1 || !taken.Reply[0] {
		t.Errorf("%+v", taken)
	}
	var seen answer[[]batchNews]
	if ask(lookRequest{[]watchedBatch{{Dir: dir, Jobs: map[int]handover.Has{0: {}}}}}, &seen); len(seen.Reply) != 1 || !seen.Reply[0].Begun[0].Taken {
		t.Errorf("%+v", seen)
	}
	orders, err := handover.Orders(dir)
	testkit.Must(t, err)
	if diff := cmp.Diff([]handover.Order{want}, orders); diff != "" {
		t.Error(diff)
	}
}
