package sched

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"berth/internal/job/reason"
)

// TestRoomIsMade is about several that give way, and what may be in between.
func TestRoomIsMade(t *testing.T) {
	minute := time.Minute
	aged := func(h *Allocation) { h.RanBefore = hour }
	fourCPUs := func(h *Allocation) { h.CPUs = 4 }
	checkOrder(t, []orderRow{
		{says: "two make room for two in one plan", cards: 2,
			held: []Allocation{running("8", 6*minute, parkable, 0), running("9", 7*minute, parkable, 1)},
			jobs: []queuedJob{{gpus: 1, run: hour}, {gpus: 1, run: hour}}, want: "8>1 9>2 1?0+20s 2?1+20s"},
		{says: "also where the host has nothing to spare", cards: 2, state: func(s *State) { s.Host.CPUs = 8 },
			held: []Allocation{running("8", 6*minute, both(parkable, fourCPUs), 0), running("9", 7*minute, both(parkable, fourCPUs), 1)},
			jobs: []queuedJob{{gpus: 1, run: hour, cpus: 4}, {gpus: 1, run: hour, cpus: 4}}, want: "8>1 9>2 1?0+20s 2?1+20s"},
		{says: "what is left for one is not taken by another in front who could not have had it", cards: 4,
			held: []Allocation{running("9", 100*time.Second, both(parkable, aged, leaving("2", 5*time.Second)), 0, 1, 2, 3)},
			jobs: []queuedJob{{gpus: 1}, {gpus: 4}}, want: "2?0,1,2,3+5s 1?0+1m5s"},
		{says: "what remains of it may be", cards: 4,
			held: []Allocation{running("9", 100*time.Second, both(parkable, aged, leaving("2", 5*time.Second)), 0, 1, 2, 3)},
			jobs: []queuedJob{{gpus: 1}, {gpus: 3}}, want: "2?0,1,2+5s 1?3+5s"},
		{says: "who starts beside one that comes is gone when another comes for its other card", cards: 2,
			held: []Allocation{running("8", hour, both(parkable, leaving("", 2*time.Minute), beside(12_000)), 0), running("9", hour, both(parkable, leaving("", time.Minute), beside(12_000)), 1)},
			jobs: []queuedJob{{gpus: 1}, {gpus: 1, vram: 14_000}, {gpus: 2, vram: 4000, run: 90 * time.Second}}, want: "3@0,1 1?0+2m0s 2?1+1m0s"},
		{says: "when it is not wanted any more, the first in line has it", cards: 1,
			held: []Allocation{running("9", hour, both(startsAnew, leaving("77", 5*time.Second)), 0)},
			jobs: []queuedJob{{gpus: 1}, {gpus: 1}}, want: "1?0+5s 2?0+1m5s"},
		{says: "and nobody else is set aside for who has a card already", cards: 2,
			held: []Allocation{running("8", hour, parkable, 0), running("9", hour, both(parkable, leaving("2", 5*time.Second)), 1)},
			jobs: []queuedJob{{gpus: 1}, {gpus: 1}}, want: "8>1 2?1+5s 1?0+20s"},
		{says: "one that asks for too many cpus does not stand for one that asks for none", cards: 1, state: func(s *State) { s.Host.CPUs = 8 },
			held: []Allocation{running("8", hour, func(h *Allocation) { h.Cards, h.CPUs = nil, 8 }), running("9", hour, startsAnew, 0)},
			jobs: []queuedJob{{gpus: 1, cpus: 1, priority: 1}, {gpus: 1, priority: 1}}, want: "9>2 1?0+1h0m0s 2?0+10s"},
		{says: "no memory to park in is none of those that begin anew", cards: 1, state: func(s *State) { s.ParkMiB = -1 },
			held: []Allocation{running("9", hour, startsAnew, 0)}, jobs: []queuedJob{{gpus: 1, priority: 1}}, want: "9>1 1?0+10s"},
		{says: "one is parked where there is memory for one", cards: 2, state: func(s *State) { s.ParkMiB = 1500 },
			held: []Allocation{running("8", hour, both(parkable, func(h *Allocation) { h.Preempt.MemMiB = 1000 }), 0), running("9", hour, both(parkable, func(h *Allocation) { h.Preempt.MemMiB = 1000 }), 1)},
			jobs: []queuedJob{{gpus: 1}, {gpus: 1}}, want: "8>1 1?0+20s 2?0+1m20s"},
		{says: "not two for one who needs both", cards: 2, state: func(s *State) { s.ParkMiB = 1500 },
			held: []Allocation{running("8", hour, both(parkable, func(h *Allocation) { h.Preempt.MemMiB = 1000 }), 0), running("9", hour, both(parkable, func(h *Allocation) { h.Preempt.MemMiB = 1000 }), 1)},
			jobs: []queuedJob{{gpus: 2}}, want: "1?0,1+20s"},
		{says: "who needs one to leave does not fail with who needs two", cards: 2, state: func(s *State) { s.ParkMiB, s.Host.CPUs = 1500, 8 },
			held: []Allocation{
				running("8", hour, both(parkable, fourCPUs, func(h *Allocation) { h.Preempt.MemMiB = 1000 }), 0),
				running("9", hour, both(parkable, fourCPUs, func(h *Allocation) { h.Preempt.MemMiB = 1000 }), 1)},
			jobs: []queuedJob{{gpus: 1, cpus: 8}, {gpus: 1}}, want: "9>2 1?0+20s 2?1+20s"},
		{says: "a card that is too busy is no room", cards: 2, rules: func(r *Rules) { r.LoadThreshold = 0.5 }, state: func(s *State) { s.Cards[0].UtilPct = 100 },
			held: []Allocation{running("9", hour, startsAnew, 1)}, jobs: []queuedJob{{gpus: 1, priority: 1}}, want: "9>1 1?1+10s"},
		{says: "nor is it kept for anybody", cards: 2, rules: func(r *Rules) { r.LoadThreshold = 0.5 }, state: func(s *State) { s.Cards[0].UtilPct = 100 },
			held: []Allocation{running("9", hour, lasting(2*hour), 1)}, jobs: []queuedJob{{gpus: 1}}, want: "1?1+1h0m0s"},
		{says: "one on a card that is paused makes no room", cards: 2, state: func(s *State) { s.Cards[0].Paused = true },
			held: []Allocation{running("8", hour, startsAnew, 0), running("9", 2*hour, startsAnew, 1)}, jobs: []queuedJob{{gpus: 1, priority: 1}}, want: "9>1 1?1+10s"},
		{says: "the victim is on the GPU that the job names", cards: 2,
			state: func(s *State) {
				p, _ := s.Queue.Get("1")
				p.Request.IDs = "1"
				s.Queue.Add(p)
			},
			held: []Allocation{running("8", hour, startsAnew, 0), running("9", 2*hour, startsAnew, 1)}, jobs: []queuedJob{{gpus: 1, priority: 1}}, want: "9>1 1?1+10s"},
		{says: "one that lost a card makes room on the others", cards: 2,
			held: []Allocation{running("9", hour, startsAnew, 0, 7)}, jobs: []queuedJob{{gpus: 2, priority: 1}}, want: "9>1 1?0,1+10s"},
		{says: "another berth's job of the same name stays", cards: 2,
			held: []Allocation{running("9", hour, both(startsAnew, leaving("1", 5*time.Second)), 0), running("9", hour, both(lasting(2*hour), func(h *Allocation) { h.Other = true }), 1)},
			jobs: []queuedJob{{gpus: 2, priority: 1}}, want: "1?0,1+1h0m0s"},
		{says: "a job without a GPU has its cpus when they are left", cards: 1, state: func(s *State) { s.Host.CPUs = 4 },
			held: []Allocation{running("9", 2*hour, both(startsAnew, fourCPUs), 0)}, jobs: []queuedJob{{cpus: 4, priority: 1}}, want: "9>1 1?+10s"},
		{says: "for which a card's job runs for long", cards: 1, state: func(s *State) { s.Host.CPUs = 4 },
			held: []Allocation{running("9", 24*minute, both(startsAnew, fourCPUs), 0)}, jobs: []queuedJob{{cpus: 4, priority: 1}}, want: "1?+1m10s", again: minute},
		{says: "a clock that was set back keeps a job running", cards: 1, held: []Allocation{running("9", -hour, startsAnew, 0)},
			jobs: []queuedJob{{gpus: 1, priority: 1}}, want: "1?0+1h1m10s", again: hour + minute},
		{says: "who would be over a limit makes no room", cards: 1, held: []Allocation{running("9", hour, startsAnew, 0)},
			state: func(s *State) {
				s.Limits, s.InUse = map[string]Limit{"ann": {Jobs: 1}}, map[string]Use{"ann": {Jobs: 1}}
			},
			jobs: []queuedJob{{gpus: 1, priority: 1, user: "ann"}}, want: ""},
		{says: "and what room was made for counts against it", cards: 2, held: []Allocation{running("8", hour, startsAnew, 0), running("9", hour, startsAnew, 1)},
			state: func(s *State) { s.Limits = map[string]Limit{"ann": {Jobs: 1}} },
			jobs:  []queuedJob{{gpus: 1, priority: 1, user: "ann"}, {gpus: 1, priority: 1, user: "ann"}}, want: "8>1 1?0+10s"},
		{says: "a turn that was taken for having been passed is a turn", cards: 2, rules: func(r *Rules) { r.Fair = true },
			state: func(s *State) { s.FairQuantum = FairQuantum },
			jobs:  []queuedJob{{gpus: 1, user: "ann", since: DefaultMaxBypass}, {gpus: 1, user: "ann"}, {gpus: 1, user: "eve"}}, want: "1@0 3@1 2?0+1m0s"},
	})
}

// TestWhatIsExpected is about how long jobs last that wait or run.
func TestWhatIsExpected(t *testing.T) {
	busy := []Allocation{running("8", hour, lasting(3*hour), 0), running("9", hour, lasting(2*hour), 1)}
	checkOrder(t, []orderRow{
		{says: "of a job that was parked only the rest counts", cards: 3, held: busy, rules: func(r *Rules) { r.Slice = false },
			jobs: []queuedJob{{gpus: 3}, {gpus: 1, run: 9 * hour, served: 8 * hour}}, want: "2@2 1?0,1,2+2h0m0s"},
		{says: "of one that had all that was expected nothing is known", cards: 3, held: busy, rules: func(r *Rules) { r.Slice = false },
			jobs: []queuedJob{{gpus: 3, since: DefaultMaxBypass}, {gpus: 1, run: hour, served: 8 * hour}}, want: "1?0,1,2+2h0m0s"},
		{says: "it is looked again when what is kept should begin", cards: 1, held: busy[:1], jobs: []queuedJob{{gpus: 1}}, want: "1?0+2h0m0s", again: 2 * hour},
		{says: "what passes for a while takes nothing of what is free later", cards: 1,
			held: []Allocation{running("9", 0, both(lasting(hour), func(h *Allocation) { h.Alone, h.BudgetMiB = false, []int64{10000} }), 0)},
			jobs: []queuedJob{{gpus: 1, vram: 16000}, {gpus: 1, vram: 5000, run: time.Minute}, {gpus: 1, vram: 7000, run: 9 * hour}},
			want: "2@0 3@0 1?0+1h0m0s"},
		{says: "behind one who was passed for too long another is served as usual", cards: 2, held: busy,
			jobs: []queuedJob{{gpus: 2, user: "ann", since: 2 * DefaultMaxBypass, run: 4096 * time.Second}, {gpus: 2, user: "eve", since: DefaultMaxBypass, run: 4096 * time.Second}, {gpus: 2, user: "bob"}},
			want: "1!0,1+2h0m0s 2?0,1+3h8m16s"},
		{says: "under conservative the next has its cards when the one before is done", cards: 1, held: busy[:1], rules: policy(Conservative),
			jobs: []queuedJob{{gpus: 1, run: 4096 * time.Second}, {gpus: 1, run: 4096 * time.Second}, {gpus: 1}, {gpus: 1}},
			want: "1?0+2h0m0s 2?0+3h8m16s 3?0+4h16m32s"},
		{says: "an overdue job that a paused card keeps is in nobody's way", cards: 2, state: func(s *State) { s.Cards[1].Paused = true },
			jobs: []queuedJob{{gpus: 2, user: "ann", since: 9 * DefaultMaxBypass}, {gpus: 1}}, want: "2@0"},
		{says: "what another berth runs is expected to last for a day", cards: 1, held: []Allocation{{Job: "9", Cards: []int{0}, Alone: true, Other: true}},
			jobs: []queuedJob{{gpus: 1}}, want: "1?0+24h0m0s", again: 24 * hour},
		{says: "cpus are kept too", cards: 2, state: func(s *State) { s.Host.CPUs = 4 },
			held: []Allocation{running("9", hour, both(lasting(2*hour), func(h *Allocation) { h.CPUs = 3 }), 0)},
			jobs: []queuedJob{{gpus: 1, cpus: 4}, {gpus: 1, cpus: 1, run: 2 * hour}, {gpus: 1, cpus: 1, run: hour / 2}}, want: "3@1 1?0+1h0m0s"},
	})
}

func TestKeptCPUsAreAReason(t *testing.T) {
	s := State{
		Now: midday, Rules: DefaultRules(), Host: Host{CPUs: 4}, Cards: cardsOf(gib24, gib24), Queue: NewQueue(),
		Allocations: []Allocation{running("9", hour, both(lasting(2*hour), func(h *Allocation) { h.CPUs = 3 }), 0)},
	}
	for i, cpus := range []int{4, 1} {
		s.Queue.Add(Pending{Job: fmt.Sprint(i + 1), Seq: int64(i), Request: Request{GPUs: 1, CPUs: cpus}, Run: Estimate{Low: 9 * hour, Mid: 9 * hour, High: 9 * hour}})
	}
	for _, why := range []reason.Reason{Explain(s, "2"), Reasons(s, []string{"2"})[0]} {
		if want := (reason.Reason{Kind: reason.WaitsForCPUs, Amount: 1, Total: 4, Job: "1"}); why.String() != want.String() || why.Job != "1" {
			t.Errorf("%+v, want %+v", why, want)
		}
	}
}

// TestNobodyWaitsForTheirOwnCards: what is kept for a job is not among what keeps
// it.
func TestNobodyWaitsForTheirOwnCards(t *testing.T) {
	for _, policy := range []Policy{Backfill, FIFO} {
		s := State{Now: midday, Rules: DefaultRules(), Cards: cardsOf(gib24, gib24), Queue: NewQueue(), Allocations: []Allocation{running("9", hour, lasting(2*hour), 0)}}
		s.Rules.Policy = policy
		s.Queue.SetRules(s.Rules)
		s.Queue.Add(Pending{Job: "1", Request: Request{GPUs: 2}, Since: midday.Add(-DefaultMaxBypass), Run: Estimate{Low: hour, Mid: hour, High: hour}})
		s.Queue.Add(Pending{Job: "2", User: "eve", Seq: 1, Request: Request{GPUs: 1}, Run: Estimate{Low: 9 * hour, Mid: 9 * hour, High: 9 * hour}, Since: midday})
		s.Queue.Tick(midday)
		for _, why := range []reason.Reason{Explain(s, "1"), Reasons(s, []string{"1"})[0]} {
			if why.Cards[1].Obstacle != "" {
				t.Errorf("%s: gpu1 is kept from the one for whom it is kept: %s", policy, why)
			}
		}
		if why := Explain(s, "2"); policy == Backfill && why.Cards[1].Obstacle != reason.ObstacleReserved {
			t.Errorf("gpu1 is kept from nobody: %s", why)
		}
	}
}

func TestALongServiceIsNoReasonToLookAgain(t *testing.T) {
	rules := DefaultRules()
	rules.Policy = LAS
	for _, h := range []Allocation{
		{Job: "1", Cards: []int{0}}, // nobody knows since when
		{Job: "2", Cards: []int{0}, Started: midday, RanBefore: 200 * 365 * 24 * hour},
		{Job: "3", Cards: []int{0, 1, 2, 3, 4, 5, 6, 7}, Started: midday.Add(-1), RanBefore: 250 * 365 * 24 * hour},
	} {
		if _, until := h.class(&rules, midday); !until.IsZero() && until.Before(midday.Add(time.Minute)) {
			t.Errorf("job %s leaves its class after %s", h.Job, until.Sub(midday))
		}
	}
}

// giveWayState is running jobs that can be parked, each on one of the cards, and
// ten thousand waiting jobs of which no two ask for the same.
func giveWayState(cards, held int, ran time.Duration) State {
	r := rand.New(rand.NewPCG(5, 6))
	s := State{Now: midday, Rules: DefaultRules(), Queue: NewQueue(), Host: Host{CPUs: 8 * cards, MemMiB: int64(cards) * 64 * 1024}}
	s.Rules.Fair, s.FairQuantum, s.ParkMiB = true, FairQuantum, 1<<40
	s.Queue.SetRules(s.Rules)
	for i := range cards {
		s.Cards = append(s.Cards, cardOf(i, gib24))
	}
	for i := range held {
		h := running(fmt.Sprint("h", i), ran, both(parkable, lasting(9*hour), func(h *Allocation) { h.CPUs, h.Preempt.MemMiB = 8*cards/held, 1000 }), i%cards)
		if held > cards {
			beside(gib24 * int64(cards) / int64(held) * 7 / 8)(&h)
		}
		s.Allocations = append(s.Allocations, h)
	}
	for i := range 10_000 {
		served := time.Duration(r.IntN(3)) * 10 * time.Minute
		run := time.Duration(1+r.IntN(1_000_000)) * time.Second
		s.Queue.Add(Pending{
			Job: fmt.Sprint(i), User: fmt.Sprint("user", i%50), Rank: int64(i), Seq: int64(i), Priority: r.IntN(3) - 1,
			Request: Request{GPUs: 1 + r.IntN(8), VRAMMiB: 1000 + r.Int64N(20000), CPUs: r.IntN(9), MemMiB: r.Int64N(60000)},
			Since:   midday.Add(-time.Duration(r.IntN(20_000)) * time.Second), RanBefore: served,
			Run: Estimate{Low: run / 2, Mid: run, High: 2 * run},
		})
	}
	s.Queue.Tick(midday)
	return s
}

// BenchmarkDecide10kGiveWay parks jobs, all of them in the crowd. Where they ran for
// too short a time, nothing can be done for any job. In the last case the first job
// asks for all GPUs.
func BenchmarkDecide10kGiveWay(b *testing.B) {
	for _, c := range []struct {
		name             string
		cards, held, all int
		ran              time.Duration
	}{{"now", 8, 8, 0, hour}, {"soon", 8, 8, 0, 30 * time.Second},
		{"crowd", 128, 1000, 0, hour}, {"crowd soon", 128, 1000, 0, 30 * time.Second}, {"crowd all", 128, 1000, 128, hour}} {
		b.Run(c.name, func(b *testing.B) {
			s := giveWayState(c.cards, c.held, c.ran)
			if c.all > 0 {
				s.Queue.Add(Pending{Job: "all", Priority: 2, Request: Request{GPUs: c.all}, Since: midday})
			}
			fastest(b, func() {
				if plan := Decide(s); (len(plan.Victims) > 0) != (c.ran == hour) {
					b.Fatalf("%d jobs are preempted", len(plan.Victims))
				}
			})
		})
	}
}
