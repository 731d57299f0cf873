package api

import (
	"testing"

	"berth/internal/job"
)

func TestTheStatusThatStandsForAJob(t *testing.T) {
	for _, row := range []struct {
		outcome job.Outcome
		want    int
	}{
		{job.OK, 0},
		{job.Exited(7), 7},
		{job.Timeout, 124},
		{"signal:KILL", 137},
		{"signal:34", 162}, // one that has no name
		{"signal:NONSENSE", 1},
		{"cancelled", 1},
		{job.Lost, 1},
	} {
		if got := ExitStatus(job.View{Outcome: &row.outcome}); got != row.want {
			t.Errorf("%s: %d, want %d", row.outcome, got, row.want)
		}
	}
	oom, seven, zero := job.OOM, 7, 0
	for code, want := range map[*int]int{&seven: 7, &zero: 1, nil: 1} {
		if got := ExitStatus(job.View{Outcome: &oom, ExitCode: code}); got != want {
			t.Errorf("out of memory: %d, want %d", got, want)
		}
	}
	if got := ExitStatus(job.View{}); got != 1 {
		t.Errorf("a job that nothing is known of: %d, want 1", got)
	}
}
