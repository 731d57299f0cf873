package sched

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"berth/internal/job"
	"berth/internal/job/reason"
)

// outcome says what a plan makes of each job.
func outcome(p Plan) (starts map[string]job.Grant, refused map[string]bool) {
	starts, refused = map[string]job.Grant{}, map[string]bool{}
	for _, s := range p.Starts {
		starts[s.Job] = s.Grant
	}
	for _, r := range p.Infeasible {
		refused[r.Job] = true
	}
	return starts, refused
}

func TestNothingIsOvercommitted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawAny(t)
		plan := Decide(s)
		before, after := s.Allocations, commit(s, plan).Allocations
		for _, c := range s.Cards {
			checkCard(t, s, c, before, after)
		}
		usedCPUs, usedMemMiB := 0, int64(0)
		for _, h := range before {
			usedCPUs, usedMemMiB = usedCPUs+h.CPUs, usedMemMiB+h.MemMiB
		}
		for _, h := range after[len(before):] { // what was too much before is not ours
			usedCPUs, usedMemMiB = usedCPUs+h.CPUs, usedMemMiB+h.MemMiB
			if s.Host.CPUs > 0 && (h.CPUs > 0 && usedCPUs > s.Host.CPUs || h.MemMiB > 0 && usedMemMiB > s.Host.MemMiB) {
				t.Fatalf("the host gives %d cpus and %d MiB", usedCPUs, usedMemMiB)
			}
		}
		if s.MaxStarts > 0 && len(plan.Starts) > s.MaxStarts {
			t.Fatalf("%d starts, at most %d wanted", len(plan.Starts), s.MaxStarts)
		}
	})
}

// TestNobodyIsTakenOverALimit adds up what users and arrays have after a plan.
// Whoever was over a limit before gets nothing more of what it limits.
func TestNobodyIsTakenOverALimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawState(t)
		drawLab(t, &s)
		drawTime(t, &s)
		jobs, gpus, tasks, joined := map[string]int{}, map[string]float64{}, map[string]int{}, map[GroupName]int{}
		whole, unproven := map[string]float64{}, map[string]int{}
		for _, start := range Decide(s).Starts {
			p, _ := s.Queue.Get(start.Job)
			limit, own := s.Limits[p.User]
			if !own {
				limit = s.DefaultLimit
			}
			more := float64(len(start.Grant.GPUs))
			if start.Grant.Share > 0 {
				more *= start.Grant.Share
			}
			if !p.Parked { // a parked job counts already
				jobs[p.User]++
			}
			gpus[p.User] += more
			whole[p.User] += more
			if p.Unproven {
				whole[p.User] += float64(len(start.Grant.GPUs)) - more
				unproven[p.User]++
			}
			tasks[p.Array]++
			name := GroupName{p.User, p.Group}
			joined[name]++
			of := s.Groups[name]
			switch use := s.InUse[p.User]; {
			case limit.Jobs > 0 && !p.Parked && use.Jobs+jobs[p.User] > limit.Jobs:
				t.Fatalf("%s runs %d jobs with job %s, the limit is %d", p.User, use.Jobs+jobs[p.User], p.Job, limit.Jobs)
			case limit.GPUs > 0 && more > 0 && use.GPUs+gpus[p.User] > limit.GPUs+1e-5:
				t.Fatalf("%s holds %g GPUs with job %s, the limit is %g", p.User, use.GPUs+gpus[p.User], p.Job, limit.GPUs)
			case p.ArrayLimit > 0 && s.ArrayRuns[p.Array]+tasks[p.Array] > p.ArrayLimit:
				t.Fatalf("%d tasks of array %s run with job %s, its limit is %d", s.ArrayRuns[p.Array]+tasks[p.Array], p.Array, p.Job, p.ArrayLimit)
			case of.PausedBy != "" || of.Limit > 0 && len(of.Running)+joined[name] > of.Limit:
				t.Fatalf("job %s starts, the %d-th of %+v", p.Job, joined[name], of)
			// One share may start on its word. With a second, each counts as whole GPUs.
			case p.Unproven && limit.GPUs > 0 && (unproven[p.User] > 1 || use.Unmeasured > 0) && use.GPUs+use.Unmeasured+whole[p.User] > limit.GPUs+1e-5:
				t.Fatalf("%s may take %g GPUs with job %s, the limit is %g", p.User, use.GPUs+use.Unmeasured+whole[p.User], p.Job, limit.GPUs)
			}
		}
	})
}

// checkCard adds one card up from nothing but what is written in the rules.
func checkCard(t *rapid.T, s State, c Card, before, after []Allocation) {
	on := func(held []Allocation) (here []Allocation) {
		for _, h := range held {
			if slices.Contains(h.Cards, c.Index) {
				here = append(here, h)
			}
		}
		return here
	}
	old, now := on(before), on(after)
	if len(old) == len(now) {
		return
	}
	freeMiB, shares, newShares := c.TotalMiB-c.ReservedMiB-c.ForeignMiB, 0.0, 0.0
	for i, h := range now {
		if !h.Alone {
			freeMiB -= h.BudgetMiB[slices.Index(h.Cards, c.Index)]
		}
		shares += h.Share
		if i >= len(old) {
			newShares += h.Share
		}
		switch {
		case len(now) > 1 && (h.Alone || h.Exclusive):
			t.Fatalf("gpu%d: job %s is joined", c.Index, h.Job)
		case h.Alone && c.IdleForeignMiB >= s.Rules.IdleThresholdMiB:
			t.Fatalf("gpu%d is not idle and runs job %s alone", c.Index, h.Job)
		}
	}
	switch {
	case !now[0].Alone && freeMiB < 0:
		t.Fatalf("gpu%d is overbooked: %d MiB free", c.Index, freeMiB)
	case newShares > 0 && shares > 1+1e-8:
		t.Fatalf("gpu%d is divided into %g", c.Index, shares)
	case c.Paused || c.Stale || c.Health != HealthOK || s.Unreadable != "":
		t.Fatalf("gpu%d takes no jobs", c.Index)
	case s.Rules.MemThreshold > 0 && float64(c.UsedMiB) > s.Rules.MemThreshold*float64(c.TotalMiB):
		t.Fatalf("gpu%d is over the memory threshold", c.Index)
	case s.Rules.LoadThreshold > 0 && (s.Rules.LoadAlways || len(old) == 0) && c.UtilPct > 100*s.Rules.LoadThreshold:
		t.Fatalf("gpu%d is over the load threshold", c.Index)
	}
}

func TestGrantsAreWhatWasAskedFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawAny(t)
		for _, start := range Decide(s).Starts {
			p, _ := s.Queue.Get(start.Job)
			g, r := start.Grant, p.Request
			if len(g.GPUs) != r.GPUs || len(g.UUIDs) != r.GPUs {
				t.Fatalf("job %s asks for %d GPUs and gets %v", p.Job, r.GPUs, g)
			}
			for i, index := range g.GPUs {
				switch c := s.Cards[index]; {
				case g.UUIDs[i] != c.UUID:
					t.Fatalf("job %s: gpu%d is not %s", p.Job, index, g.UUIDs[i])
				case !r.allows(&c):
					t.Fatalf("job %s does not allow gpu%d", p.Job, index)
				case r.IDs == "" && i > 0 && g.GPUs[i-1] >= index:
					t.Fatalf("job %s has %v, not ascending", p.Job, g.GPUs)
				}
			}
			if r.IDs != "" && joinIDs(g.GPUs) != r.IDs {
				t.Fatalf("job %s asks for %s and gets %v", p.Job, r.IDs, g.GPUs)
			}
		}
	})
}

func TestEveryJobStartsOrIsRefusedOrHasAReason(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawAny(t)
		starts, refused := outcome(Decide(s))
		var all []string
		for _, p := range s.Queue.First(s.Queue.Len()) {
			all = append(all, p.Job)
		}
		reasons, sentences := Reasons(s, all), Sentences(s, all)
		for i, id := range all {
			_, started := starts[id]
			for _, why := range []reason.Reason{Explain(s, id), reasons[i]} {
				switch {
				case why.String() == "":
					t.Fatalf("job %s has no reason", id)
				case sentences[i] != reasons[i].String():
					t.Fatalf("job %s: %q, in words %q", id, reasons[i], sentences[i])
				case started != (why.Kind == reason.StartsNow):
					t.Fatalf("job %s starts: %v, but %s", id, started, why)
				case refused[id] != why.Kind.Infeasible():
					t.Fatalf("job %s is refused: %v, but %s", id, refused[id], why)
				}
			}
		}
	})
}

// TestACommittedPlanIsComplete decides again at once: nothing was forgotten,
// and both ways to ask for a reason now agree.
func TestACommittedPlanIsComplete(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawState(t)
		s.MaxStarts = 0
		next := commit(s, Decide(s))
		if again := Decide(next); brief(again) != "" {
			t.Fatalf("decides %s after everything was decided", brief(again))
		}
		for _, p := range next.Queue.First(next.Queue.Len()) {
			if diff := cmp.Diff(Explain(next, p.Job), Reasons(next, []string{p.Job})[0]); diff != "" {
				t.Fatalf("job %s (-explained +among reasons):\n%s", p.Job, diff)
			}
		}
	})
}

func TestInputOrderIsIrrelevant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawAny(t)
		other := s
		other.Cards = rapid.Permutation(s.Cards).Draw(t, "cards in another order")
		other.Allocations = rapid.Permutation(s.Allocations).Draw(t, "held in another order")
		other.Queue = requeued(t, s)
		if diff := cmp.Diff(Decide(s), Decide(other)); diff != "" {
			t.Fatalf("the order of the input matters:\n%s", diff)
		}
		for _, p := range s.Queue.First(s.Queue.Len()) {
			if a, b := Explain(s, p.Job).String(), Explain(other, p.Job).String(); a != b {
				t.Fatalf("job %s: %q or %q", p.Job, a, b)
			}
		}
	})
}

// addForeign starts a process that is not berth's on some of the cards.
func addForeign(t *rapid.T, s State) State {
	s.Cards = slices.Clone(s.Cards)
	for i := range s.Cards {
		if rapid.Bool().Draw(t, "hit") {
			mib := rapid.Int64Range(0, 600).Draw(t, "foreign process")
			c := &s.Cards[i]
			c.ForeignMiB, c.UsedMiB = c.ForeignMiB+mib, c.UsedMiB+mib
			if rapid.Bool().Draw(t, "computes") {
				c.IdleForeignMiB += mib
			}
		}
	}
	return s
}

// TestAForeignProcessMakesNoRoom holds for one job, and for many of a kind.
// Of a mixed queue it would be wrong: what keeps a large job out may let two
// small ones in.
func TestAForeignProcessMakesNoRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawState(t)
		s.MaxStarts = 0
		spec := drawSpec(t, len(s.Cards))
		copies := 1
		if len(spec.IDs) == 0 && spec.GPUs == 1 {
			copies = 6
		}
		s.Queue = queueOf(s.Rules, slices.Repeat(asks(spec), copies))
		before, after := len(Decide(s).Starts), len(Decide(addForeign(t, s)).Starts)
		if after > before {
			t.Fatalf("%d start, and %d beside a foreign process", before, after)
		}
	})
}

func TestInfeasibleDoesNotDependOnWhatIsFree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawState(t)
		other := addForeign(t, s)
		other.Allocations = nil
		if s.Unreadable == "" || len(s.Cards) > 0 {
			other.Unreadable = rapid.SampledFrom([]string{"", "the driver does not answer"}).Draw(t, "why")
			if len(s.Cards) == 0 {
				other.Unreadable = ""
			}
		}
		for i := range other.Cards {
			c := &other.Cards[i]
			c.Paused, c.Stale, c.Health = !c.Paused, !c.Stale, HealthQuarantined-c.Health
		}
		// Their order may: it is that of the turns, which starts count for.
		byJob := cmpopts.SortSlices(func(a, b Refusal) bool { return a.Job < b.Job })
		if diff := cmp.Diff(Decide(s).Infeasible, Decide(other).Infeasible, byJob); diff != "" {
			t.Fatalf("refusals depend on what is free:\n%s", diff)
		}
		for _, p := range s.Queue.First(s.Queue.Len()) {
			why, ok := FeasibleFor(other, p)
			_, refused := outcome(Decide(s))
			if ok == refused[p.Job] || ok != (why.Kind == "") {
				t.Fatalf("job %s is refused: %v, feasible: %v (%s)", p.Job, refused[p.Job], ok, why)
			}
		}
	})
}
