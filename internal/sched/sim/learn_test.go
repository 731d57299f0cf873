package sim

import (
	"slices"
	"testing"
	"time"

	"berth/internal/sched"
)

// sweep is jobs of one command but for its seed, submitted at once, each twice as
// long as the one before.
func sweep(t *testing.T, gpus int, seen func(sched.State)) input {
	in := input{
		Machine: Machine{GPUs: gpus, VRAMMiB: 10_000}, Policy: policy(t, "fifo"),
		Decide: func(s sched.State) sched.Plan { seen(s); return sched.Decide(s) },
	}
	for i, seed := range []string{"1", "2", "3", "4", "5", "6"} {
		j := seconds(seed, "ann", 0, float64(int(100<<i)), 1)
		j.Command = "python train.py --seed " + seed
		in.Jobs = append(in.Jobs, j)
	}
	return in
}

func TestWhatWaitsIsExpectedAnewAfterOneTwoAndFourRuns(t *testing.T) {
	var got []time.Duration
	var last time.Time
	run(sweep(t, 1, func(s sched.State) {
		if p, waits := s.Queue.Get("5"); waits && !s.Now.Equal(last) {
			got, last = append(got, p.Run.Mid), s.Now
		}
	}))
	// The means of 100, of 100 and 200, and of 100 to 800 seconds.
	want := []time.Duration{0, 100 * time.Second, 141 * time.Second, 141 * time.Second, 283 * time.Second, 283 * time.Second}
	if !slices.Equal(got, want) {
		t.Errorf("the last of the sweep is expected to run for %v, want %v", got, want)
	}
}

func TestWhatRunsIsExpectedAnewAfterEachRun(t *testing.T) {
	var got []time.Duration
	in := sweep(t, 6, func(s sched.State) {
		for _, h := range s.Allocations {
			if h.Job == "5" {
				got = append(got, h.Run.Mid)
			}
		}
	})
	// One who waits for all the cards makes sure that somebody decides.
	in.Jobs = append(in.Jobs, seconds("all", "bob", 1, 1, 6))
	run(in)
	want := []time.Duration{0, 100 * time.Second, 141 * time.Second, 200 * time.Second, 283 * time.Second, 400 * time.Second}
	if !slices.Equal(got, want) {
		t.Errorf("the last of the sweep is expected to run for %v, want %v", got, want)
	}
}

func TestOthersCommandsAndJobsWithoutCardsSayNothing(t *testing.T) {
	seen := 0
	in := sweep(t, 1, func(s sched.State) {
		if p, waits := s.Queue.Get("1"); waits {
			if seen++; p.Run != (sched.Estimate{}) {
				t.Errorf("it is expected to run for %+v", p.Run)
			}
		}
	})
	in.Jobs = in.Jobs[:2]
	in.Jobs[0].User = "bob"
	run(in)
	in.Jobs[0].User, in.Jobs[0].GPUs, in.Jobs[1].Submit = "ann", 0, 200_000
	run(in)
	in.Jobs[0].GPUs, in.Jobs[1].GPUs = 1, 0
	run(in)
	if seen < 3 {
		t.Errorf("looked %d times", seen)
	}
}
