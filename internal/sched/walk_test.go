package sched

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestAWalkPassesOverOnlyWhatIsSettled holds a walk that passes groups over against
// one to which all come up, and of which those are left out that are settled when
// their turn comes.
func TestAWalkPassesOverOnlyWhatIsSettled(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := State{Rules: DefaultRules(), FairQuantum: 1, Queue: NewQueue()}
		s.Rules.Fair = rapid.Bool().Draw(t, "fair")
		for i := range rapid.IntRange(1, 40).Draw(t, "queued") {
			s.Queue.Add(Pending{
				Job: fmt.Sprint(i), Seq: int64(i), User: rapid.SampledFrom([]string{"ann", "bob", "cid", "dan", "eve", "fay", "gus"}).Draw(t, "user"),
				Priority: rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "priority"),
				Request:  Request{GPUs: rapid.IntRange(1, 3).Draw(t, "needs")},
			})
		}
		var settled []*kind
		whole, short := s.Queue.walk(&s), s.Queue.walk(&s)
		short.passes = func(h *head) bool { return slices.Contains(settled, h.kind) }
		for {
			want := whole.next()
			for want != nil && whole.at == (place{}) && slices.Contains(settled, want.kind) {
				want = whole.next()
			}
			got := short.next()
			switch {
			case want == nil && got == nil:
				return
			case want == nil || got == nil || got.job != want.job:
				t.Fatalf("%v comes up, not %v", got, want)
			}
			switch rapid.IntRange(0, 4).Draw(t, "what is done") {
			case 0, 1:
				settled = append(settled, got.kind)
			case 2:
				settled = nil
				short.reopen()
				fallthrough
			case 3:
				whole.account().charge(&s, want.group)
				short.account().charge(&s, got.group)
				whole.again()
				short.again()
			}
		}
	})
}
