package engine

import (
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
)

// TestAJobStoppedTogetherWithBerth runs again, whatever its exit status.
func TestAJobStoppedTogetherWithBerth(t *testing.T) {
	tests := []struct {
		name   string
		halted bool
		record keep.Record
		want   job.State
	}{
		{"by the signal", true, keep.Record{Signal: 15}, job.Running},
		{"after it saved its work", true, keep.Record{}, job.Running},
		{"it ended by itself", false, keep.Record{Signal: 15}, job.Failed},
		{"it ended well by itself", false, keep.Record{}, job.Finished},
		{"it was never started", true, keep.Record{Launch: "no such program"}, job.Failed},
		{"its set-up failed", true, keep.Record{SetupFailed: true, ExitCode: 1}, job.Failed},
		{"at its time limit", true, keep.Record{Stop: string(job.StopTimeout), Signal: 15}, job.Failed},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, 1, func(c *Config) {
				c.Halted = func(_ time.Time, _ time.Duration, well bool) bool {
					if well != (test.record.Signal == 0 && test.record.ExitCode == 0) {
						t.Errorf("well is %v", well)
					}
					return test.halted
				}
			})
			r.submit(job.Spec{Shell: "true", GPUs: 1})
			r.end("1", test.record, false)
			if got := r.row("1"); got.State != test.want || got.State == job.Running && got.Attempt.Number != 2 {
				t.Errorf("it is %s, attempt %d", got.State, got.Attempt.Number)
			}
		})
	}
}

// TestAJobKilledWithAnEarlierAllocation runs again if its spec allows it.
func TestAJobKilledWithAnEarlierAllocation(t *testing.T) {
	tests := []struct {
		name    string
		requeue bool
		kind    run.EventKind
		record  keep.Record
		after   time.Duration // from its start to the new berth's
		want    job.State
	}{
		{"it was lost", true, run.Lost, keep.Record{}, time.Minute, job.Running},
		{"it was killed", true, run.Ended, keep.Record{Signal: 9, Elapsed: time.Second}, time.Minute, job.Running},
		{"it failed", true, run.Ended, keep.Record{ExitCode: 1, Elapsed: time.Second}, time.Minute, job.Failed},
		{"it was killed later", true, run.Ended, keep.Record{Signal: 9, Elapsed: time.Hour}, time.Minute, job.Failed},
		{"it started later", true, run.Lost, keep.Record{}, -time.Minute, job.Failed},
		{"it does not want to", false, run.Lost, keep.Record{}, time.Minute, job.Failed},
		{"nor if it was killed", false, run.Ended, keep.Record{Signal: 9, Elapsed: time.Second}, time.Minute, job.Failed},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, 1, func(c *Config) {
				c.LostBefore = start0.Add(test.after)
				c.Halted = func(time.Time, time.Duration, bool) bool { return false }
			})
			r.submit(job.Spec{Shell: "true", GPUs: 1, Requeue: test.requeue})
			r.hear(test.kind, "1", test.record, false)
			r.pass(10 * time.Millisecond)
			if got := r.row("1"); got.State != test.want {
				t.Errorf("it is %s: %s", got.State, got.Detail)
			}
		})
	}
}
