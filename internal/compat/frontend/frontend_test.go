package frontend_test

import (
	"strings"
	"testing"

	"berth/internal/compat/frontend"
	"berth/internal/job/reason"
)

// TestRenameJobs uses berth's own sentences: if one of them names a job in
// another way, users of another scheduler would see an id they cannot use.
func TestRenameJobs(t *testing.T) {
	busy := reason.Card{Obstacle: reason.ObstacleAlone, Holders: []reason.Holder{{ID: "12"}, {ID: "7_3"}, {ID: "5", Other: true}}}
	waits := reason.Reason{Kind: reason.WaitsBehind, Job: "9", Because: &reason.Reason{Kind: reason.WaitsForGPUs, Needs: 1, Idle: true, Cards: []reason.Card{busy}}}
	got := frontend.RenameJobs(waits.String(), func(id string) string { return "<" + id + ">" })
	for _, want := range []string{"job <9>", "job <12>", "job <7_3>", "another berth's job 5"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q has no %q", got, want)
		}
	}
}
