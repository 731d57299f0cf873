package sched

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"berth/internal/job"
)

// plainState is a snapshot that knows nothing of limits, arrays and fair
// share. It is drawn from the seed alone, in a way that later versions of a
// library cannot change.
func plainState(seed uint64) State {
	r := rand.New(rand.NewPCG(seed, 7))
	s := State{Rules: DefaultRules(), Host: Host{CPUs: 16, MemMiB: 64000}, Queue: NewQueue()}
	s.Rules.Policy = []Policy{Backfill, Backfill, FIFO}[r.IntN(3)]
	s.Rules.Placement = []Placement{Pack, Spread}[r.IntN(2)]
	s.MaxStarts = []int{0, 0, 0, 5}[r.IntN(4)]
	for i := range 1 + r.IntN(6) {
		c := cardOf(i, []int64{10000, 24000}[r.IntN(2)])
		c.ForeignMiB = r.Int64N(3) * 2000
		c.NUMA = r.IntN(2)
		s.Cards = append(s.Cards, c)
		if r.IntN(3) == 0 {
			s.Allocations = append(s.Allocations, Allocation{Job: fmt.Sprint("h", i), Cards: []int{i}, BudgetMiB: []int64{3000}, Share: float64(r.IntN(2)) / 2})
		}
	}
	for _, i := range r.Perm(30) {
		spec := job.Spec{GPUs: r.IntN(4), CPUs: r.IntN(4), MemMiB: r.Int64N(4) * 2000, Priority: r.IntN(6) / 5, Exclusive: r.IntN(8) == 0}
		switch r.IntN(8) {
		case 0:
			spec.GPUs, spec.Share = 1, float64(1+r.IntN(3))/4
		case 1, 2, 3, 4, 5:
			spec.VRAMMiB = (1 + r.Int64N(8)) * 1500
		}
		s.Queue.Add(Pending{
			Job: fmt.Sprint(i), User: []string{"ann", "bob", "cay"}[r.IntN(3)], Priority: spec.Priority,
			Rank: int64(i / 3), Seq: int64(i), Request: NewRequest(spec, spec.VRAMMiB, s.Rules),
		})
	}
	return s
}

// TestPlansStayAsTheyWere compares with plans that were written down before
// there were limits, arrays and fair share: who uses none of them sees no
// difference.
func TestPlansStayAsTheyWere(t *testing.T) {
	var b strings.Builder
	for seed := range uint64(200) {
		fmt.Fprintf(&b, "%d: %s\n", seed, brief(Decide(plainState(seed))))
	}
	const path = "testdata/plans.golden"
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("plans changed (-want +got):\n%s", diff)
	}
}
