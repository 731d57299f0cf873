package waiting

import (
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"berth/internal/job"
	"berth/internal/queue/engine/journal"
)

// TestTheRosterIsTheLiveJobsInOrder: whatever comes, changes and goes, and whenever
// jobs are put away, a walk from any number shows exactly the jobs above it, in
// order and as they are.
func TestTheRosterIsTheLiveJobsInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e, model := newRoster(journal.New(nil, slog.New(slog.DiscardHandler))), map[string]job.Job{}
		var next int64
		for range rapid.IntRange(0, 400).Draw(t, "steps") {
			seq := rapid.Int64Range(1, next+1).Draw(t, "seq")
			id := strconv.FormatInt(seq, 10)
			j := &job.Job{Seq: seq, ID: id, User: "ann", State: job.Queued}
			j.Spec.Batch = []string{"", "/a", "/b"}[seq%3]
			j.Spec.Shell = "run " + id
			switch known := e.Get(id); rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				e.Know(j)
				next, model[id] = max(next, seq), *j
			case 1:
				e.Forget(j)
				delete(model, id)
			case 2:
				e.Tidy()
			case 3:
				if known != nil {
					known.Held, known.Rank = !known.Held, known.Rank+1
					model[id] = *known
				}
			}
			if known := e.Get(id); known != e.Get(id) {
				t.Fatal("one job twice")
			}
		}
		after := rapid.Int64Range(0, next+1).Draw(t, "after")
		var want, got []int64
		for _, j := range model {
			if j.Seq > after {
				want = append(want, j.Seq)
			}
			if is := e.Look(j.ID); is == nil || !reflect.DeepEqual(*is, j) {
				t.Fatalf("job %s is %+v, want %+v", j.ID, is, j)
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
			for _, j := range model {
				if third > 0 && j.Spec.Batch == file {
					jobs++
				}
			}
			if lines != jobs || len(e.lines) > 2 {
				t.Fatalf("%s: %d lines, want %d", file, lines, jobs)
			}
		}
		if e.owned["ann"] != len(model) || e.Len() != len(model) {
			t.Fatalf("ann has %d of %d, counted %d", len(model), e.Len(), e.owned["ann"])
		}
	})
}
