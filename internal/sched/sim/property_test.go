package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// aWorkload makes workloads with ties in everything: few moments, few
// durations, few users.
func aWorkload(t *rapid.T) input {
	in := input{
		Machine: Machine{GPUs: rapid.IntRange(1, 5).Draw(t, "gpus"), VRAMMiB: 10_000},
		Policy:  rapid.SampledFrom(Policies()).Draw(t, "policy"),
	}
	for i := range rapid.IntRange(0, 40).Draw(t, "jobs") {
		j := Job{
			ID:       fmt.Sprint(i),
			User:     rapid.SampledFrom([]string{"ann", "bob", "cid", ""}).Draw(t, "user"),
			Submit:   Millis(rapid.IntRange(0, 20).Draw(t, "submit") * 1000),
			Duration: Millis(rapid.SampledFrom([]int{0, 1, 1000, 3000, 3000, 20_000}).Draw(t, "duration")),
			GPUs:     rapid.SampledFrom([]int{1, 1, 1, 2, 3, 5, 6}).Draw(t, "needs"),
			Priority: rapid.IntRange(0, 1).Draw(t, "priority"),
		}
		switch rapid.IntRange(0, 5).Draw(t, "kind") {
		case 0:
			j.Share = rapid.SampledFrom([]float64{0.1, 1.0 / 3, 0.5, 0.7}).Draw(t, "share")
		case 1:
			j.VRAMMiB = rapid.SampledFrom([]int64{100, 4000, 9000, 9488, 9489, 20_000}).Draw(t, "vram")
		case 2:
			j.Share, j.VRAMMiB = 0.5, 2000
		}
		if rapid.IntRange(0, 9).Draw(t, "limited") == 0 {
			j.Limit = 2000
		}
		in.Jobs = append(in.Jobs, j)
	}
	return in
}

func TestEachJobRunsOnceForItsTimeOrIsRefusedAndNoCardIsOverfull(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := aWorkload(t)
		res := run(in)
		if res.Stopped || len(res.Fates) != len(in.Jobs) {
			t.Fatalf("%d fates of %d jobs", len(res.Fates), len(in.Jobs))
		}
		for i, fate := range res.Fates {
			checkFate(t, &in, i, fate)
		}
		for i := range res.Fates {
			checkCardsAt(t, &in, &res, res.Fates[i].Start)
		}
	})
}

func checkFate(t *rapid.T, in *input, i int, fate Fate) {
	j := &in.Jobs[i]
	if fits := j.GPUs <= in.Machine.GPUs && j.VRAMMiB <= in.Machine.VRAMMiB-in.Policy.Rules.MarginMiB; fits == (fate.Refused != nil) {
		t.Fatalf("job %+v on %+v: %+v", j, in.Machine, fate)
	} else if !fits {
		return
	}
	cards := slices.Compact(slices.Sorted(slices.Values(fate.Cards)))
	wants := j.Duration
	if j.Limit > 0 {
		wants = min(wants, j.Limit)
	}
	switch {
	case fate.Start < j.Submit:
		t.Fatalf("job %d starts at %d and is submitted at %d", i, fate.Start, j.Submit)
	case fate.End-fate.Start != wants:
		t.Fatalf("job %d runs for %d, not %d", i, fate.End-fate.Start, wants)
	case len(cards) != j.GPUs:
		t.Fatalf("job %d wants %d cards and gets %v", i, j.GPUs, fate.Cards)
	case fate.TimedOut != (wants < j.Duration):
		t.Fatalf("job %d: timed out is %v", i, fate.TimedOut)
	}
}

// checkCardsAt adds up afresh what is on each card at a moment.
func checkCardsAt(t *rapid.T, in *input, res *Result, moment Millis) {
	for card := range in.Machine.GPUs {
		var shares float64
		var memoryMiB int64
		jobs, alone := 0, false
		for i, fate := range res.Fates {
			if fate.Refused != nil || moment < fate.Start || moment >= fate.End || !slices.Contains(fate.Cards, card) {
				continue
			}
			j := &in.Jobs[i]
			jobs++
			shares += j.Share
			memoryMiB += j.VRAMMiB
			alone = alone || j.Share == 0 && j.VRAMMiB == 0
		}
		if alone && jobs > 1 || shares > 1+1e-6 || memoryMiB > in.Machine.VRAMMiB {
			t.Fatalf("at %d card %d holds %d jobs, shares %g, %d MiB, alone %v", moment, card, jobs, shares, memoryMiB, alone)
		}
	}
}

func TestNoJobWaitsBesideAnIdleMachine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := aWorkload(t)
		res := run(in)
		for i, fate := range res.Fates {
			if fate.Refused != nil || fate.Start == in.Jobs[i].Submit {
				continue
			}
			busy := slices.ContainsFunc(res.Fates, func(other Fate) bool {
				return other.Refused == nil && other.Start < fate.Start && other.End >= fate.Start
			})
			if !busy {
				t.Fatalf("job %d starts at %d after an idle machine", i, fate.Start)
			}
		}
	})
}

func TestTheOrderOfTheInputDecidesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := aWorkload(t)
		shuffled := in
		shuffled.Jobs = slices.Clone(in.Jobs)
		chance := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		chance.Shuffle(len(in.Jobs), func(i, k int) {
			shuffled.Jobs[i], shuffled.Jobs[k] = shuffled.Jobs[k], shuffled.Jobs[i]
		})
		one, other := run(in), run(shuffled)
		for i, j := range shuffled.Jobs {
			k := slices.IndexFunc(in.Jobs, func(original Job) bool { return original.ID == j.ID })
			a, b := one.Fates[k], other.Fates[i]
			if a.Start != b.Start || a.End != b.End || !slices.Equal(a.Cards, b.Cards) {
				t.Fatalf("job %s: %+v, and shuffled %+v", j.ID, a, b)
			}
		}
		if a, b := measure(in, one), measure(shuffled, other); a != b {
			t.Fatalf("%+v\nand shuffled\n%+v", a, b)
		}
	})
}

func TestFiguresAreWithinTheirBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := aWorkload(t)
		m := measure(in, run(in))
		if m.Jobs+m.Infeasible != len(in.Jobs) {
			t.Fatalf("%d ran and %d never can, of %d", m.Jobs, m.Infeasible, len(in.Jobs))
		}
		if m.Jobs == 0 {
			return
		}
		const slack = 1 + 1e-9
		switch {
		case m.Bounds.MakespanS > m.MakespanS*slack || m.Bounds.FlowMeanS > m.FlowMeanS*slack+1e-9:
			t.Fatalf("better than possible: %+v", m)
		case m.JainUsers <= 0 || m.JainUsers > slack || m.WorstOverMedianUser < 1/slack:
			t.Fatalf("fairness: %+v", m)
		case m.WaitP50S > m.WaitP95S || m.WaitP95S > m.WaitP99S || m.WaitP99S > m.WaitMaxS || m.WaitMeanS > m.WaitMaxS*slack:
			t.Fatalf("waits: %+v", m)
		case m.GPUAllocated < 0 || m.GPUAllocated+m.Fragmentation > slack || m.GPUUseful > m.GPUAllocated:
			t.Fatalf("capacity: %+v", m)
		case m.BoundedSlowdownMean < 1/slack || m.FlowMeanS < m.WaitMeanS:
			t.Fatalf("slowdown: %+v", m)
		}
	})
}
