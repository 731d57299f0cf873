package sched

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestTheOrderOfWhatWaitedForLong sorts such jobs by the rule in so many words.
func TestTheOrderOfWhatWaitedForLong(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := NewQueue()
		q.SetRules(DefaultRules())
		var want []Pending
		for i := range rapid.IntRange(2, 12).Draw(t, "jobs") {
			p := Pending{Job: fmt.Sprint(i), User: rapid.SampledFrom(users).Draw(t, "user"), Request: Request{GPUs: 1}, Seq: int64(i)}
			p.RanBefore = rapid.SampledFrom([]time.Duration{freshService, 47 * time.Minute, 48 * time.Minute, hour, 7 * hour, 30 * hour}).Draw(t, "served")
			p.Since = midday.Add(-longWait(p.RanBefore) - rapid.SampledFrom([]time.Duration{0, time.Millisecond, hour, 2 * hour}).Draw(t, "late"))
			p.Submitted = p.Since.Add(-p.RanBefore - rapid.SampledFrom([]time.Duration{0, hour, 2 * hour, 50 * hour}).Draw(t, "waited before"))
			q.Add(p)
			want = append(want, p)
		}
		q.Tick(midday)
		slices.SortStableFunc(want, func(a, b Pending) int {
			switch had := (a.RanBefore >= 48*time.Minute); {
			case had != (b.RanBefore >= 48*time.Minute):
				return map[bool]int{false: -1, true: 1}[had]
			case had:
				return cmp.Compare(waitedOver(b)+waitedBefore(b), waitedOver(a)+waitedBefore(a))
			}
			return cmp.Compare(waitedOver(b), waitedOver(a))
		})
		for i, p := range q.First(q.Len()) {
			if p.Job != want[i].Job {
				t.Fatalf("place %d is that of\n%+v, want\n%+v", i+1, p, want[i])
			}
		}
	})
}

// waitedOver is for how long the job has waited for long.
func waitedOver(p Pending) time.Duration { return midday.Sub(p.Since) - longWait(p.RanBefore) }

// waitedBefore is all of its time that it neither ran nor waits now.
func waitedBefore(p Pending) time.Duration {
	return midday.Sub(p.Submitted) - p.RanBefore - midday.Sub(p.Since)
}
