package waiting

import (
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"berth/internal/job"
)

// TestTheRosterIsTheLiveJobsInOrder: whatever comes and goes, a walk from any
// number shows exactly the jobs above it, in order.
func TestTheRosterIsTheLiveJobsInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := newRoster(nil)
		var next int64
		for range rapid.IntRange(0, 400).Draw(t, "steps") {
			seq := rapid.Int64Range(1, next+1).Draw(t, "seq")
			j := &job.Job{Seq: seq, ID: strconv.FormatInt(seq, 10), User: "ann"}
			j.Spec.Batch = []string{"", "/a", "/b"}[seq%3]
			if rapid.Bool().Draw(t, "comes") {
				e.Know(j)
				next = max(next, seq)
			} else {
				e.Forget(j)
			}
		}
		after := rapid.Int64Range(0, next+1).Draw(t, "after")
		var want, got []int64
		for _, j := range e.Jobs {
			if j.Seq > after {
				want = append(want, j.Seq)
			}
		}
		slices.Sort(want)
		e.Each(after, func(j *job.Job) bool { got = append(got, j.Seq); return true })
		if !slices.Equal(got, want) {
			t.Fatalf("after %d: %v, want %v", after, got, want)
		}
		for third, file := range []string{"", "/a", "/b"} {
			var lines, jobs int
			e.EachLine(job.Batch{User: "ann", File: file}, func(j *job.Job) { lines++ })
			for _, j := range e.Jobs {
				if third > 0 && j.Spec.Batch == file {
					jobs++
				}
			}
			if lines != jobs || len(e.lines) > 2 {
				t.Fatalf("%s: %d lines, want %d", file, lines, jobs)
			}
		}
		if e.owned["ann"] != len(e.Jobs) {
			t.Fatalf("ann has %d, counted %d", len(e.Jobs), e.owned["ann"])
		}
	})
}
