package sched

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"berth/internal/job"
)

// The generators draw from few values, so that ties, equal requests and
// amounts that just fit or just do not are common.

func drawRules(t *rapid.T) Rules {
	r := DefaultRules()
	r.MarginMiB = rapid.SampledFrom([]int64{0, 100}).Draw(t, "margin")
	r.Exclusive = rapid.IntRange(0, 5).Draw(t, "exclusive rule") == 0
	r.JobsPerGPU = rapid.SampledFrom([]int{0, 0, 0, 2, 3}).Draw(t, "jobs per gpu")
	r.MemThreshold = rapid.SampledFrom([]float64{0, 0, 0.5}).Draw(t, "memory threshold")
	r.LoadThreshold = rapid.SampledFrom([]float64{0, 0, 0.5}).Draw(t, "load threshold")
	r.LoadAlways = rapid.Bool().Draw(t, "load always")
	r.Placement = rapid.SampledFrom([]Placement{Pack, Spread}).Draw(t, "placement")
	r.Policy = rapid.SampledFrom([]Policy{Backfill, Backfill, FIFO}).Draw(t, "policy")
	return r
}

func drawCard(t *rapid.T, index, cards int) Card {
	c := cardOf(index, rapid.SampledFrom([]int64{1000, 1000, 2000}).Draw(t, "total"))
	c.ReservedMiB = rapid.SampledFrom([]int64{0, 0, 60}).Draw(t, "reserved")
	if rapid.IntRange(0, 2).Draw(t, "has foreign") == 0 {
		c.ForeignMiB = rapid.Int64Range(0, 1100).Draw(t, "foreign")
		c.IdleForeignMiB = rapid.Int64Range(0, c.ForeignMiB).Draw(t, "idle foreign")
		c.UsedMiB = min(c.ForeignMiB, c.TotalMiB)
	}
	c.UtilPct = rapid.SampledFrom([]float64{-1, 0, 50, 100}).Draw(t, "util")
	c.Paused = rapid.IntRange(0, 9).Draw(t, "paused") == 0
	c.Stale = rapid.IntRange(0, 9).Draw(t, "stale") == 0
	c.Health = rapid.SampledFrom([]Health{0, 0, 0, 0, 0, 0, 0, HealthSuspect, HealthQuarantined}).Draw(t, "health")
	c.NUMA = rapid.IntRange(-1, 1).Draw(t, "numa")
	c.Part = rapid.IntRange(0, 7).Draw(t, "part") == 0
	c.ParkedMiB = rapid.SampledFrom([]int64{0, 0, 500, 900}).Draw(t, "bound to come back")
	c.Links, c.Near = map[int]int{}, map[int]int{}
	for k := range cards {
		if rapid.IntRange(0, 4).Draw(t, "is near") == 0 {
			c.Near[k] = rapid.IntRange(1, 4).Draw(t, "near")
		}
		if n := rapid.IntRange(0, 5).Draw(t, "links"); n <= 2 {
			c.Links[k] = n
		}
	}
	return c
}

func drawIndices(t *rapid.T, cards int, what string) []int {
	return rapid.SliceOfN(rapid.IntRange(0, cards), 1, 3).Draw(t, what)
}

func drawSpec(t *rapid.T, cards int) job.Spec {
	s := job.Spec{GPUs: rapid.SampledFrom([]int{1, 1, 1, 1, 2, 2, 3, 0, 9}).Draw(t, "gpus")}
	if rapid.IntRange(0, 2).Draw(t, "declares") > 0 {
		s.VRAMMiB = rapid.SampledFrom([]int64{100, 300, 450, 500, 900, 901, 1900, 5000}).Draw(t, "vram")
	}
	if rapid.IntRange(0, 3).Draw(t, "shares") == 0 {
		s.GPUs, s.Share = 1, rapid.SampledFrom([]float64{0.1, 0.25, 1.0 / 3, 0.5, 0.99}).Draw(t, "share")
	}
	s.Exclusive = rapid.IntRange(0, 7).Draw(t, "exclusive") == 0
	switch rapid.IntRange(0, 9).Draw(t, "which") {
	case 0:
		s.IDs = drawIndices(t, cards, "ids")
	case 1:
		s.Allow = drawIndices(t, cards, "allow")
	case 2:
		s.Type = rapid.SampledFrom([]string{"test", "other"}).Draw(t, "type")
	}
	s.CPUs = rapid.SampledFrom([]int{0, 0, 1, 2, 5}).Draw(t, "cpus")
	s.MemMiB = rapid.SampledFrom([]int64{0, 0, 0, 40, 60, 200}).Draw(t, "mem")
	s.Priority = rapid.SampledFrom([]int{0, 0, 0, 1, -1}).Draw(t, "priority")
	return s
}

func drawHeld(t *rapid.T, id string, cards int) Allocation {
	h := Allocation{Job: id, CPUs: rapid.IntRange(0, 1).Draw(t, "held cpus")}
	for i := range cards + 1 {
		if rapid.IntRange(0, 3).Draw(t, "holds") == 0 {
			h.Cards = append(h.Cards, i)
			h.BudgetMiB = append(h.BudgetMiB, rapid.SampledFrom([]int64{10, 300, 500, 1200}).Draw(t, "budget"))
		}
	}
	h.Share = rapid.SampledFrom([]float64{0, 0, 0.25, 0.5, 0.7}).Draw(t, "held share")
	h.OverGPUs = rapid.SampledFrom([]float64{0, 0, 0.25, 0.8}).Draw(t, "held beyond its share")
	h.Alone = rapid.IntRange(0, 6).Draw(t, "held alone") == 0
	h.Exclusive = rapid.IntRange(0, 6).Draw(t, "held exclusive") == 0
	h.Other = rapid.Bool().Draw(t, "other")
	return h
}

// drawLab adds what a machine has that several users share: limits and what
// counts against them, arrays, turns. Limits may be passed already.
func drawLab(t *rapid.T, s *State) {
	s.Rules.Fair = rapid.Bool().Draw(t, "fair")
	s.FairQuantum = rapid.SampledFrom([]float64{0, 10, 3600}).Draw(t, "quantum")
	s.Usage, s.InUse, s.Limits, s.ArrayRuns = map[string]float64{}, map[string]Use{}, map[string]Limit{}, map[string]int{}
	limit := rapid.Custom(func(t *rapid.T) Limit {
		return Limit{
			Jobs: rapid.SampledFrom([]int{0, 0, 1, 2, 3}).Draw(t, "most jobs"),
			GPUs: rapid.SampledFrom([]float64{0, 0, 0.5, 1, 2, 3}).Draw(t, "most GPUs"), Share: rapid.SampledFrom([]float64{0, 0, 0.5, 1, 2}).Draw(t, "share"),
			CPUs: rapid.SampledFrom([]int{0, 0, 1, 2, 3}).Draw(t, "most CPUs"), MemMiB: rapid.SampledFrom([]int64{0, 0, 50, 90}).Draw(t, "most memory"),
		}
	})
	s.DefaultLimit = limit.Draw(t, "limit")
	s.Rules.BorrowTime = rapid.SampledFrom([]time.Duration{0, time.Hour, time.Hour, -1}).Draw(t, "borrow time")
	s.Queue.SetRules(s.Rules)
	for i := range s.Allocations {
		s.Allocations[i].User = rapid.SampledFrom(users).Draw(t, "whose")
	}
	for _, user := range users {
		if rapid.Bool().Draw(t, "has history") {
			s.Usage[user] = rapid.SampledFrom([]float64{0, 10, 15, 3600}).Draw(t, "usage")
		}
		if rapid.Bool().Draw(t, "runs some") {
			s.InUse[user] = Use{
				Jobs:       rapid.IntRange(0, 3).Draw(t, "runs"),
				GPUs:       rapid.SampledFrom([]float64{0, 0.5, 1.0 / 3, 1, 2}).Draw(t, "holds"),
				Unmeasured: rapid.SampledFrom([]float64{0, 0, 0.75, 1.5}).Draw(t, "not measured"),
				CPUs:       rapid.IntRange(0, 3).Draw(t, "holds CPUs"), MemMiB: rapid.SampledFrom([]int64{0, 40, 100}).Draw(t, "holds memory"),
			}
		}
		if rapid.IntRange(0, 3).Draw(t, "own") == 0 {
			s.Limits[user] = limit.Draw(t, "own limit")
		}
	}
	for _, p := range s.Queue.First(s.Queue.Len()) {
		if rapid.IntRange(0, 2).Draw(t, "task") == 0 {
			p.Array = rapid.SampledFrom([]string{"17", "18"}).Draw(t, "array")
			p.ArrayLimit = rapid.IntRange(0, 3).Draw(t, "at once")
			s.Queue.Add(p)
			s.ArrayRuns[p.Array] = rapid.IntRange(0, 2).Draw(t, "tasks that run")
		}
		if p.Unproven = p.Request.Share > 0 && rapid.Bool().Draw(t, "unproven"); p.Unproven {
			s.Queue.Add(p)
		}
		if p.Parked = rapid.IntRange(0, 5).Draw(t, "parked") == 0; p.Parked {
			s.Queue.Add(p)
		}
		if rapid.IntRange(0, 2).Draw(t, "in a group") == 0 {
			p.Group = rapid.SampledFrom([]string{"io", "big", "plain"}).Draw(t, "group")
			s.Queue.Add(p)
		}
	}
	drawGroups(t, s)
}

// drawGroups sets some of the users' groups: limited, full, paused, or more than
// one of these.
func drawGroups(t *rapid.T, s *State) {
	s.Groups = map[GroupName]Group{}
	for _, user := range users {
		for _, name := range []string{"io", "big"} {
			if !rapid.Bool().Draw(t, "set") {
				continue
			}
			of := Group{Limit: rapid.IntRange(0, 3).Draw(t, "limit of the group")}
			if rapid.IntRange(0, 3).Draw(t, "paused") == 0 {
				of.PausedBy = "ann"
			}
			for i := range rapid.IntRange(0, 2).Draw(t, "of the group run") {
				of.Running = append(of.Running, fmt.Sprint("r", i))
			}
			s.Groups[GroupName{user, name}] = of
		}
	}
}

var users = []string{"ann", "bob", "cay"}

// drawState draws a whole snapshot, often one that several users share; its
// jobs are j0, j1, …
func drawState(t *rapid.T) State {
	s := drawPlain(t)
	if rapid.IntRange(0, 2).Draw(t, "shared") > 0 {
		drawLab(t, &s)
	}
	return s
}

// drawPlain draws a snapshot without limits, arrays and turns.
func drawPlain(t *rapid.T) State {
	s := State{Rules: drawRules(t)}
	cards := rapid.IntRange(0, 5).Draw(t, "cards")
	for i := range cards {
		s.Cards = append(s.Cards, drawCard(t, i, cards))
	}
	if rapid.Bool().Draw(t, "known host") {
		s.Host = Host{CPUs: 4, MemMiB: 100}
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "held") {
		s.Allocations = append(s.Allocations, drawHeld(t, fmt.Sprintf("h%d", i), cards))
	}
	if rapid.IntRange(0, 14).Draw(t, "unreadable") == 0 {
		s.Unreadable = "the driver does not answer"
	}
	s.MaxStarts = rapid.SampledFrom([]int{0, 0, 0, 1, 3}).Draw(t, "most")
	s.Queue = NewQueue()
	for i := range rapid.IntRange(0, 12).Draw(t, "jobs") {
		spec := drawSpec(t, cards)
		s.Queue.Add(Pending{
			Job: fmt.Sprintf("j%d", i), User: rapid.SampledFrom(users).Draw(t, "user"),
			Priority: spec.Priority, Rank: rapid.Int64Range(0, 4).Draw(t, "rank"), Seq: int64(i),
			Request: NewRequest(spec, spec.VRAMMiB, s.Rules),
		})
	}
	return s
}

func copied[V any](m map[string]V) map[string]V {
	c := map[string]V{}
	maps.Copy(c, m)
	return c
}

// commit gives the state after a plan was carried out, as a caller tells it
// that carries turns on from one plan to the next.
func commit(s State, p Plan) State {
	next := s
	next.InUse, next.Usage, next.ArrayRuns, next.Groups = copied(s.InUse), copied(s.Usage), copied(s.ArrayRuns), maps.Clone(s.Groups)
	next.Allocations = slices.Clone(s.Allocations)
	for _, a := range p.Victims {
		for i := range next.Allocations {
			if h := &next.Allocations[i]; h.Job == a.Job && !h.Other {
				h.BeingPreempted, h.PreemptedFor, h.FreeBy = true, a.For, s.Now.Add(h.Preempt.StopTime)
			}
		}
	}
	next.Queue = NewQueue()
	next.Queue.SetRules(s.Rules)
	gone := map[string]bool{}
	for _, start := range p.Starts {
		pending, _ := s.Queue.Get(start.Job)
		gone[start.Job] = true
		use := next.InUse[pending.User]
		if use.add(pending.Request.CountedGPUs(), pending.Request.CPUs, pending.Request.MemMiB); !pending.Parked {
			use.Jobs++
		}
		if pending.Unproven {
			use.Unmeasured += float64(pending.Request.GPUs) - pending.Request.CountedGPUs()
		}
		next.InUse[pending.User] = use
		next.Usage[pending.User] += s.FairQuantum * pending.Request.FairWeight(s.Host.Scale(len(s.Cards)))
		if pending.ArrayLimit > 0 {
			next.ArrayRuns[pending.Array]++
		}
		if of, set := next.Groups[GroupName{pending.User, pending.Group}]; set {
			of.Running = append(slices.Clone(of.Running), start.Job)
			next.Groups[GroupName{pending.User, pending.Group}] = of
		}
		next.Allocations = append(next.Allocations, Allocation{
			Job: start.Job, Cards: start.Grant.GPUs,
			BudgetMiB: CardBudgets(start.Grant, pending.Request.VRAMMiB, s.Cards),
			Share:     start.Grant.Share, Alone: start.Grant.Alone, Exclusive: start.Grant.Exclusive,
			CPUs: pending.Request.CPUs, MemMiB: pending.Request.MemMiB,
			User: pending.User, Priority: pending.Priority, Rank: pending.Rank, Seq: pending.Seq,
			Started: s.Now, Submitted: s.Now, RanBefore: pending.RanBefore, Waited: s.Now.Sub(pending.Since),
			Run: pending.Run, Limit: pending.Limit,
		})
	}
	for _, r := range p.Infeasible {
		gone[r.Job] = true
	}
	for _, pending := range s.Queue.First(s.Queue.Len()) {
		next.Queue.Add(pending)
	}
	for user, l := range s.Queue.byUser {
		next.Queue.setOldest(next.Queue.byUser[user], l.first, l.since)
	}
	for job := range gone {
		next.Queue.Remove(job)
	}
	if !s.Now.IsZero() {
		next.Queue.Tick(s.Now)
	}
	return next
}
