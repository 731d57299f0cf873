package cluster

import (
	"bytes"
	"encoding/json"
	"path/filepath"
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
	encoded, err := Encode(Request{
		Environ: []string{"PATH=" + t.TempDir()}, Submit: &Submission{Dir: dir, Orders: []handover.Order{want}, Script: []byte("#!/bin/sh\n")},
		Take: []Marker{{Dir: dir}}, Look: []Watch{{Dir: dir, Jobs: map[int]handover.Has{0: {}}}},
	})
	testkit.Must(t, err)
	var out bytes.Buffer
	if status := serve(bytes.NewReader(encoded), &out); status != 0 {
		t.Fatalf("status %d", status)
	}
	var reply Reply
	testkit.Must(t, json.Unmarshal(out.Bytes(), &reply))
	if len(reply.Taken) != 1 || !reply.Taken[0] || len(reply.Seen) != 1 || !reply.Seen[0].Begun[0].Taken {
		t.Errorf("%+v", reply)
	}
	orders, err := handover.Orders(dir)
	testkit.Must(t, err)
	if diff := cmp.Diff([]handover.Order{want}, orders); diff != "" {
		t.Error(diff)
	}
}
