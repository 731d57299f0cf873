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
		var settled []int
		whole, short := s.Queue.walk(&s), s.Queue.walk(&s)
		short.passes = func(h *head) bool { return slices.Contains(settled, h.shapeNumber) }
		for {
			want := whole.next()
			for want != nil && whole.at == (listPos{}) && slices.Contains(settled, want.shapeNumber) {
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
				settled = append(settled, got.shapeNumber)
			case 2:
				settled = nil
				short.reopen()
				fallthrough
			case 3:
				whole.account().charge(&s, want.class)
				short.account().charge(&s, got.class)
				whole.again()
				short.again()
			}
		}
	})
}

// TestWhatAWalkPassesOver goes through walks job by job, with what is done about
// each that comes up.
func TestWhatAWalkPassesOver(t *testing.T) {
	type step struct {
		comes   string // empty: nobody is left
		starts  bool   // its user is charged, and the next of its group is asked for
		settles int    // from then on nothing can be done for jobs of so many GPUs
		reopens bool   // it can, for all
	}
	for _, tt := range []struct {
		says  string
		jobs  []string // 1, 2, …: "ann 2" is ann's and needs 2 GPUs
		steps []step
	}{
		{"what is settled does not come up", []string{"ann 1", "ann 2", "ann 1"},
			[]step{{comes: "1", starts: true, settles: 2}, {comes: "3"}, {}, {}}},
		{"one that was asked for again does, though its kind is settled", []string{"ann 1", "ann 1"},
			[]step{{comes: "1", starts: true, settles: 1}, {comes: "2"}, {}}},
		{"one comes up whose turn is still to come when all is open again", []string{"ann 1", "ann 1", "ann 2", "bob 3"},
			[]step{{comes: "1", starts: true, settles: 2}, {comes: "2", starts: true}, {comes: "4", reopens: true}, {comes: "3"}, {}}},
		{"and none that stood before the one that came up last", []string{"ann 1", "ann 2", "bob 3"},
			[]step{{comes: "1", settles: 2}, {comes: "3", reopens: true}, {}}},
		// Here its turn went by when 3 came up again. That its user is charged for
		// 3, and comes after bob from then on, gives it no other.
		{"nor one whose turn went by earlier", []string{"ann 1", "ann 2", "ann 1", "bob 3"},
			[]step{{comes: "1", starts: true, settles: 2}, {comes: "3", starts: true}, {comes: "4", reopens: true}, {}}},
	} {
		t.Run(tt.says, func(t *testing.T) {
			s := State{Rules: DefaultRules(), FairQuantum: 10, Usage: map[string]float64{"bob": 15}, Queue: NewQueue()}
			s.Rules.Fair = true
			for i, words := range tt.jobs {
				p := Pending{Job: fmt.Sprint(i + 1), Seq: int64(i)}
				if _, err := fmt.Sscan(words, &p.User, &p.Request.GPUs); err != nil {
					t.Fatal(err)
				}
				s.Queue.Add(p)
			}
			settled := map[int]bool{}
			w := s.Queue.walk(&s)
			w.passes = func(h *head) bool { return settled[h.gpus] }
			for _, step := range tt.steps {
				comes := ""
				if h := w.next(); h != nil {
					comes = h.job
				}
				if comes != step.comes {
					t.Fatalf("%q comes up, not %q", comes, step.comes)
				}
				if step.starts {
					w.account().charge(&s, w.last.class)
					w.again()
				}
				if step.settles > 0 {
					settled[step.settles] = true
				}
				if step.reopens {
					clear(settled)
					w.reopen()
				}
			}
		})
	}
}
