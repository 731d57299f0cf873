package sched

import (
	"math"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/job/reason"
)

// eight cards, each for one job at a time
func eight() []Card { return cardsOf(1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000) }

func fifo(r *Rules) { r.Policy = FIFO }
func fair(r *Rules) { r.Fair = true }

func TestArrays(t *testing.T) {
	runs := func(n int) func(*State) { return func(s *State) { s.ArrayRuns = map[string]int{"17": n} } }
	one := idle(1)
	checkRows(t, []row{
		{says: "no more tasks of an array run than it says", cards: eight(), jobs: asks(one, one, one), arrays: "17 17 17", atOnce: 2, want: "1@0 2@1"},
		{says: "tasks that run already count", cards: eight(), jobs: asks(one, one), arrays: "17 17", atOnce: 3, lab: runs(2), want: "1@0"},
		{says: "a full array starts nothing", cards: eight(), jobs: asks(one), arrays: "17", atOnce: 2, lab: runs(2), want: ""},
		{says: "a limit lowered below what runs starts nothing", cards: eight(), jobs: asks(one), arrays: "17", atOnce: 2, lab: runs(5), want: ""},
		{says: "others pass a full array", cards: eight(), jobs: asks(one, one), arrays: "17 -", atOnce: 1, lab: runs(1), want: "2@0"},
		{says: "others pass a full array even under fifo", rules: fifo, cards: eight(), jobs: asks(one, one, one), arrays: "17 - 18", atOnce: 1, lab: runs(1), want: "2@0 3@1"},
		{says: "under fifo a task of a full array that would not fit blocks nobody", rules: fifo, cards: eight(), host: Host{CPUs: 4}, held: []Allocation{{Job: "9", Cards: []int{0}, Alone: true, CPUs: 3}}, jobs: asks(idle(8), cpus(1)), arrays: "17 -", atOnce: 1, lab: runs(1), want: "2@"},
		{says: "arrays do not share a limit", cards: eight(), jobs: asks(one, one, one, one), arrays: "17 18 17 18", atOnce: 1, want: "1@0 2@1"},
		{says: "tasks of one array that ask for different things share its limit", cards: eight(), jobs: asks(one, vram(100), share(0.5)), arrays: "17 17 17", atOnce: 2, want: "1@0 2@1"},
		{says: "an array without a limit has none", cards: eight(), jobs: asks(one, one), arrays: "17 17", lab: runs(9), want: "1@0 2@1"},
		{says: "a task that can never fit is refused though its array is full", cards: eight(), jobs: asks(idle(9)), arrays: "17", atOnce: 1, lab: runs(1), want: "!1"},
	})
}

func TestGroups(t *testing.T) {
	set := func(user string, of Group) func(*State) {
		return func(s *State) { s.Groups = map[GroupName]Group{{user, "io"}: of} }
	}
	two := Group{Limit: 2}
	full, paused := Group{Limit: 2, Running: []string{"8", "9"}}, Group{PausedBy: "ann"}
	one := idle(1)
	checkRows(t, []row{
		{says: "no more jobs of a group run than its limit", cards: eight(), jobs: asks(one, one, one), groups: "io io io", lab: set("", two), want: "1@0 2@1"},
		{says: "jobs that run already count", cards: eight(), jobs: asks(one, one), groups: "io io", lab: set("", Group{Limit: 2, Running: []string{"9"}}), want: "1@0"},
		{says: "a limit lowered below what runs starts nothing", cards: eight(), jobs: asks(one), groups: "io", lab: set("", Group{Limit: 1, Running: []string{"8", "9"}}), want: ""},
		{says: "a paused group starts nothing", cards: eight(), jobs: asks(one), groups: "io", lab: set("", paused), want: ""},
		{says: "a paused group without a limit of running jobs starts nothing either", cards: eight(), jobs: asks(one, one), groups: "io io", lab: set("", Group{Limit: 5, PausedBy: "ann"}), want: ""},
		{says: "a group that is only a name has no limit", cards: eight(), jobs: asks(one, one), groups: "other other", lab: set("", full), want: "1@0 2@1"},
		{says: "another user's group of that name is another", cards: eight(), jobs: asks(one, one), users: "ann bob", groups: "io io", lab: set("ann", paused), want: "2@0"},
		{says: "jobs that ask for different things share the limit", cards: eight(), jobs: asks(one, vram(100), share(0.5)), groups: "io io io", lab: set("", two), want: "1@0 2@1"},
		{says: "tasks of arrays count one by one", cards: eight(), jobs: asks(one, one, one, one), arrays: "17 17 17 18", atOnce: 3, groups: "io io io io", lab: set("", two), want: "1@0 2@1"},
		{says: "the limit of the array holds too", cards: eight(), jobs: asks(one, one, one), arrays: "17 17 17", atOnce: 1, groups: "io io io", lab: set("", two), want: "1@0"},
		{says: "others pass a full group even under fifo", rules: fifo, cards: eight(), jobs: asks(one, one), groups: "io -", lab: set("", full), want: "2@0"},
		{says: "under fifo a job of a paused group that would not fit blocks nobody", rules: fifo, cards: eight(), host: Host{CPUs: 4}, held: []Allocation{{Job: "9", Cards: []int{0}, Alone: true, CPUs: 3}}, jobs: asks(idle(8), cpus(1)), groups: "io -", lab: set("", paused), want: "2@"},
		{says: "nothing is reserved for a job of a full group", cards: eight()[:2], held: []Allocation{{Job: "9", Cards: []int{0}, Alone: true}}, jobs: asks(idle(2), one), groups: "io -", lab: set("", full), want: "2@1"},
		{says: "nor for one of a paused group, and no job is preempted for it", cards: eight()[:1], held: []Allocation{preemptible(runningFor("9", 10*time.Hour, Estimate{}, 0, 0))}, jobs: asks(also(one, func(s *job.Spec) { s.Priority = 5 })), groups: "io", lab: set("", paused), want: ""},
		{says: "a job that can never fit is refused though its group is paused", cards: eight(), jobs: asks(idle(9)), groups: "io", lab: set("", paused), want: "!1"},
	})
}

func TestLimitsOfUsers(t *testing.T) {
	limit := func(l Limit, use Use) func(*State) {
		return func(s *State) { s.DefaultLimit, s.InUse = l, map[string]Use{"ann": use} }
	}
	own := func(l Limit) func(*State) {
		return func(s *State) { s.DefaultLimit, s.Limits = Limit{Jobs: 1, GPUs: 1}, map[string]Limit{"ann": l} }
	}
	one, two, third := idle(1), idle(2), share(1.0/3)
	fourCPUs := func(s *job.Spec) { s.CPUs = 4 }
	checkRows(t, []row{
		{says: "no user runs more jobs than the limit", cards: eight(), jobs: asks(one, one, one), users: "ann ann ann", lab: limit(Limit{Jobs: 2}, Use{}), want: "1@0 2@1"},
		{says: "what runs already counts", cards: eight(), jobs: asks(one, one), users: "ann ann", lab: limit(Limit{Jobs: 4}, Use{Jobs: 3}), want: "1@0"},
		{says: "a CPU job counts as a job", jobs: asks(cpus(1), cpus(1)), users: "ann ann", lab: limit(Limit{Jobs: 1}, Use{}), want: "1@"},
		{says: "users do not share a limit", cards: eight(), jobs: asks(one, one, one, one), users: "ann ann bob bob", lab: limit(Limit{Jobs: 1}, Use{}), want: "1@0 3@1"},
		{says: "others pass a user at the limit even under fifo", rules: fifo, cards: eight(), jobs: asks(one, one), users: "ann bob", lab: limit(Limit{Jobs: 1}, Use{Jobs: 1}), want: "2@0"},
		{says: "no user holds more GPUs than the limit", cards: eight(), jobs: asks(two, two, one), users: "ann ann ann", lab: limit(Limit{GPUs: 3}, Use{}), want: "1@0,1 3@2"},
		{says: "GPUs held already count", cards: eight(), jobs: asks(two), users: "ann", lab: limit(Limit{GPUs: 3}, Use{GPUs: 2}), want: ""},
		{says: "the limit itself may be reached", cards: eight(), jobs: asks(two), users: "ann", lab: limit(Limit{GPUs: 4}, Use{GPUs: 2}), want: "1@0,1"},
		{says: "a part of a card's memory counts as a whole card", cards: cardsOf(gib24), jobs: asks(vram(100), vram(100), vram(100)), users: "ann ann ann", lab: limit(Limit{GPUs: 2}, Use{}), want: "1@0 2@0"},
		{says: "three thirds of a card are one", cards: cardsOf(gib24), jobs: asks(third, third, third), users: "ann ann ann", lab: limit(Limit{GPUs: 1}, Use{}), want: "1@0 2@0 3@0"},
		{says: "three tenths are 0.3, whatever the last bit of a sum says", cards: cardsOf(gib24), jobs: asks(share(0.1), share(0.1), share(0.1)), users: "ann ann ann", lab: limit(Limit{GPUs: 0.3}, Use{}), want: "1@0 2@0 3@0"},
		{says: "a fourth third is over one", cards: cardsOf(gib24, gib24), jobs: asks(third, third, third, third), users: "ann ann ann ann", lab: limit(Limit{GPUs: 1}, Use{}), want: "1@0 2@0 3@0"},
		{says: "a CPU job needs no GPU of the limit", jobs: asks(cpus(1)), users: "ann", lab: limit(Limit{GPUs: 1}, Use{GPUs: 5}), want: "1@"},
		{says: "more GPUs than a user may ever hold is infeasible", cards: eight(), jobs: asks(idle(4), idle(3)), users: "ann ann", lab: limit(Limit{GPUs: 3}, Use{}), want: "2@0,1,2 !1"},
		{says: "it is refused even behind a block", rules: fifo, cards: eight(), held: []Allocation{{Job: "9", Cards: []int{0}, Alone: true}}, jobs: asks(idle(8), idle(4)), users: "bob ann", lab: func(s *State) { s.Limits = map[string]Limit{"ann": {GPUs: 3}} }, want: "!2"},
		{says: "a user's own limit is instead of everybody's", cards: eight(), jobs: asks(two, two, one, one), users: "ann ann bob bob", lab: own(Limit{GPUs: 4}), want: "1@0,1 2@2,3 3@4"},
		{says: "an empty limit of one's own is none", cards: eight(), jobs: asks(two, two), users: "ann ann", lab: own(Limit{}), want: "1@0,1 2@2,3"},
		{says: "no user holds more CPUs than the limit", host: Host{CPUs: 64}, jobs: asks(cpus(2), cpus(2), cpus(1)), users: "ann ann ann", lab: limit(Limit{CPUs: 3}, Use{}), want: "1@ 3@"},
		{says: "CPUs held already count", host: Host{CPUs: 64}, jobs: asks(cpus(2)), users: "ann", lab: limit(Limit{CPUs: 3}, Use{CPUs: 2}), want: ""},
		{says: "another user has the other CPUs", host: Host{CPUs: 4}, held: []Allocation{{Job: "9", User: "ann", CPUs: 2}}, jobs: asks(cpus(2), cpus(2)), users: "ann bob", lab: limit(Limit{CPUs: 2}, Use{CPUs: 2}), want: "2@"},
		{says: "CPUs of a job with GPUs count", cards: eight(), host: Host{CPUs: 64}, jobs: asks(also(one, fourCPUs), one), users: "ann ann", lab: limit(Limit{CPUs: 3}, Use{}), want: "2@0 !1"},
		{says: "a job with GPUs that asks for no CPU needs none of the limit", cards: eight(), host: Host{CPUs: 64}, jobs: asks(one), users: "ann", lab: limit(Limit{CPUs: 1}, Use{CPUs: 5}), want: "1@0"},
		{says: "more CPUs than a user may ever hold is infeasible", host: Host{CPUs: 64}, jobs: asks(cpus(5), cpus(4)), users: "ann ann", lab: limit(Limit{CPUs: 4}, Use{}), want: "2@ !1"},
		{says: "no user holds more host memory than the limit", host: Host{CPUs: 64, MemMiB: 1000}, jobs: asks(mem(300), mem(300), mem(200)), users: "ann ann ann", lab: limit(Limit{MemMiB: 500}, Use{}), want: "1@ 3@"},
		{says: "memory held already counts, and a job that asks for none needs none", host: Host{CPUs: 64, MemMiB: 1000}, jobs: asks(mem(300), cpus(1)), users: "ann ann", lab: limit(Limit{MemMiB: 500}, Use{MemMiB: 400}), want: "2@"},
		{says: "more host memory than a user may ever hold is infeasible", host: Host{CPUs: 64, MemMiB: 1000}, jobs: asks(mem(501), mem(500)), users: "ann ann", lab: limit(Limit{MemMiB: 500}, Use{}), want: "2@ !1"},
		{says: "under fifo others pass a user at the limit on CPUs", rules: fifo, host: Host{CPUs: 4}, held: []Allocation{{Job: "9", User: "ann", CPUs: 3}}, jobs: asks(cpus(2), cpus(1)), users: "ann bob", lab: limit(Limit{CPUs: 3}, Use{CPUs: 3}), want: "2@"},
		{says: "no CPU is reserved for a user at the limit on CPUs", cards: eight(), host: Host{CPUs: 4}, held: []Allocation{{Job: "9", User: "ann", CPUs: 1}}, jobs: asks(cpus(4), cpus(2)), users: "ann bob", lab: limit(Limit{CPUs: 4}, Use{CPUs: 1}), want: "2@"},
		{says: "both limits count", cards: eight(), jobs: asks(two, one, one), users: "ann ann ann", lab: limit(Limit{Jobs: 2, GPUs: 9}, Use{}), want: "1@0,1 2@2"},
	})
}

// TestWhatAJobCountsAs is the same for a request and for what is held on it.
func TestWhatAJobCountsAs(t *testing.T) {
	scale := Host{CPUs: 16, MemMiB: 1000}.Scale(8)
	for _, c := range []struct {
		says         string
		request      Request
		held         Allocation
		gpus, weight float64
	}{
		{"two cards are two", Request{GPUs: 2, CPUs: 4}, Allocation{Cards: []int{0, 3}, Alone: true, CPUs: 4}, 2, 2},
		{"a card of which some memory is declared is one", Request{GPUs: 1, VRAMMiB: 10}, Allocation{Cards: []int{0}, BudgetMiB: []int64{10}}, 1, 1},
		{"a share is a part", Request{GPUs: 1, Share: 0.25}, Allocation{Cards: []int{0}, Share: 0.25}, 0.25, 0.25},
		{"a share of two cards counts on both", Request{GPUs: 2, Share: 0.25}, Allocation{Cards: []int{0, 1}, Share: 0.25}, 0.5, 0.5},
		{"a CPU job is no GPU, and its part of the CPUs", Request{CPUs: 3}, Allocation{CPUs: 3}, 0, 1.5},
		{"a job with GPUs is its part of the CPUs if that is larger", Request{GPUs: 1, CPUs: 8}, Allocation{Cards: []int{0}, CPUs: 8}, 1, 4},
		{"memory of the host counts if that part is the largest", Request{GPUs: 1, CPUs: 1, MemMiB: 750}, Allocation{Cards: []int{0}, CPUs: 1, MemMiB: 750}, 1, 6},
		{"a CPU job with little memory is its CPUs", Request{CPUs: 1, MemMiB: 10}, Allocation{CPUs: 1, MemMiB: 10}, 0, 0.5},
		{"all CPUs are all GPUs", Request{CPUs: 16}, Allocation{CPUs: 16}, 0, 8},
		{"a card of which memory is declared with a share is that share until it runs", Request{GPUs: 1, Share: 0.25, VRAMMiB: 900}, Allocation{Cards: []int{0}, Share: 0.25}, 0.25, 0.25},
		{"nothing is nothing", Request{}, Allocation{}, 0, 0},
	} {
		for _, n := range []struct{ got, want float64 }{
			{c.request.CountedGPUs(), c.gpus}, {c.held.CountedGPUs(), c.gpus},
			{c.request.FairWeight(scale), c.weight}, {c.held.FairWeight(scale), c.weight},
		} {
			if n.got != n.want {
				t.Errorf("%s: %g, want %g", c.says, n.got, n.want)
			}
		}
	}
}

// TestMemoryBeyondTheDeclarationCounts: once a job runs, it counts as the memory
// it takes where that is more.
func TestMemoryBeyondTheDeclarationCounts(t *testing.T) {
	size := func(card int) int64 { return []int64{1000, 2000, 0}[card] }
	for _, c := range []struct {
		says        string
		grant       job.Grant
		declaredMiB int64
		peaks       map[int]int64
		want        float64
	}{
		{"nothing was measured", job.Grant{GPUs: []int{0}, Share: 0.25}, 0, nil, 0.25},
		{"within its share", job.Grant{GPUs: []int{0}, Share: 0.25}, 0, map[int]int64{0: 250}, 0.25},
		{"beyond its share", job.Grant{GPUs: []int{0}, Share: 0.25}, 0, map[int]int64{0: 600}, 0.6},
		{"beyond its share of one of two cards", job.Grant{GPUs: []int{0, 1}, Share: 0.25}, 0, map[int]int64{0: 600, 1: 400}, 0.85},
		{"declared beyond its share", job.Grant{GPUs: []int{0}, Share: 0.25}, 900, map[int]int64{0: 600}, 0.9},
		{"a whole card is one, whatever was declared and used", job.Grant{GPUs: []int{0}}, 100, map[int]int64{0: 1000}, 1},
		{"a card is one at most", job.Grant{GPUs: []int{0}, Share: 0.5}, 0, map[int]int64{0: 1500}, 1},
		{"memory on a card that is not its own", job.Grant{GPUs: []int{0}}, 0, map[int]int64{0: 900, 1: 1000}, 1.5},
		{"a CPU job that uses a card", job.Grant{}, 0, map[int]int64{1: 500}, 0.25},
		{"a card of unknown size", job.Grant{GPUs: []int{2}, Share: 0.5}, 0, map[int]int64{2: 900}, 0.5},
	} {
		h := Allocation{Cards: c.grant.GPUs, Share: c.grant.Share, OverGPUs: OverGPUs(c.grant, c.declaredMiB, c.peaks, size)}
		if got := h.CountedGPUs(); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %g GPUs, want %g", c.says, got, c.want)
		}
		if got := h.FairWeight(Host{}.Scale(3)); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: a weight of %g, want %g", c.says, got, c.want)
		}
	}
	busy := Allocation{CPUs: 64, OverGPUs: 0.01}
	for says, c := range map[string]struct {
		host Host
		gpus int
		want float64
	}{
		"half the CPUs of a machine with two GPUs": {Host{CPUs: 128}, 2, 1},
		"half the CPUs of a machine without GPUs":  {Host{CPUs: 128}, 0, 0.5},
		"CPUs of a host that is not known":         {Host{}, 8, 0.64},
	} {
		if got := busy.FairWeight(c.host.Scale(c.gpus)); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: a weight of %g, want %g", says, got, c.want)
		}
	}
}

func TestFeasibleForAUser(t *testing.T) {
	s := State{Cards: eight(), DefaultLimit: Limit{GPUs: 2}, Limits: map[string]Limit{"root": {}}, InUse: map[string]Use{"ann": {GPUs: 2}}}
	for _, c := range []struct {
		says, user string
		gpus       int
		want       reason.Kind
	}{
		{"what is in use plays no part", "ann", 2, ""},
		{"a limit does", "ann", 3, reason.OverUserLimit},
		{"unless the user's own is none", "root", 8, ""},
		{"the machine comes before the limit", "ann", 9, reason.TooManyGPUs},
	} {
		if why, ok := FeasibleFor(s, Pending{User: c.user, Request: Request{GPUs: c.gpus}}); why.Kind != c.want || ok != (c.want == "") {
			t.Errorf("%s: %v, %s", c.says, ok, why)
		}
	}
}

// seeds: M23
func TestFairShare(t *testing.T) {
	lab := func(quantum float64, usage map[string]float64) func(*State) {
		return func(s *State) { s.FairQuantum, s.Usage = quantum, usage }
	}
	fairFIFO := func(r *Rules) { r.Fair, r.Policy = true, FIFO }
	annHadMore := map[string]float64{"ann": 5000, "bob": 100}
	urgent := also(idle(1), func(s *job.Spec) { s.Priority = 1 })
	one, two := idle(1), idle(2)
	cards := func(n int) []Card { return eight()[:n] }
	checkRows(t, []row{
		{says: "who had less comes first", rules: fair, cards: cards(1), jobs: asks(one, one), users: "ann bob", lab: lab(3600, annHadMore), want: "2@0"},
		{says: "without fair share who came first comes first", cards: cards(1), jobs: asks(one, one), users: "ann bob", lab: lab(3600, annHadMore), want: "1@0"},
		{says: "who is not known had nothing", rules: fair, cards: cards(1), jobs: asks(one, one), users: "ann cay", lab: lab(3600, annHadMore), want: "2@0"},
		{says: "priority stays first", rules: fair, cards: cards(1), jobs: asks(one, urgent), users: "bob ann", lab: lab(3600, annHadMore), want: "2@0"},
		{says: "of equals, who came first comes first", rules: fair, cards: cards(1), jobs: asks(one, one), users: "bob ann", lab: lab(3600, nil), want: "1@0"},
		{says: "equals take turns", rules: fair, cards: cards(4), jobs: asks(one, one, one, one, one, one), users: "ann ann ann ann bob bob", lab: lab(3600, nil), want: "1@0 5@1 2@2 6@3"},
		{says: "a GPU given counts as the quantum", rules: fair, cards: cards(4), jobs: asks(one, one, one, one, one, one), users: "ann ann ann bob bob bob", lab: lab(2500, annHadMore), want: "4@0 5@1 1@2 6@3"},
		{says: "two GPUs count twice", rules: fair, cards: cards(4), jobs: asks(two, one, one, one), users: "ann ann bob bob", lab: lab(3600, nil), want: "1@0,1 3@2 4@3"},
		{says: "half a GPU counts half", rules: fair, cards: cards(3), jobs: asks(share(0.5), share(0.5), one, one), users: "ann ann bob bob", lab: lab(3600, nil), want: "1@0 3@1 2@0 4@2"},
		{says: "CPU jobs take turns too", rules: fair, host: Host{CPUs: 4}, jobs: asks(cpus(1), cpus(1), cpus(1), cpus(1), cpus(1)), users: "ann ann ann bob bob", lab: lab(3600, nil), want: "1@ 4@ 2@ 5@"},
		{says: "a user who holds the CPUs goes behind one who holds a GPU", rules: fair, cards: cards(2), host: Host{CPUs: 8}, jobs: asks(cpus(6), one, one, one), users: "ann ann bob bob", lab: lab(3600, nil), want: "1@ 3@0 4@1"},
		{says: "a job that does not fit costs no turn", rules: fair, cards: cards(2), held: []Allocation{{Job: "9", Cards: []int{1}, Alone: true}}, jobs: asks(two, one, one), users: "bob bob ann", lab: lab(3600, annHadMore), want: "2@0"},
		{says: "whoever is behind takes what the first cannot use", rules: fair, cards: cards(2), held: []Allocation{{Job: "9", Cards: []int{1}, Alone: true}}, jobs: asks(two, one), users: "bob ann", lab: lab(3600, annHadMore), want: "2@0"},
		{says: "under fifo the first in fair order blocks", rules: fairFIFO, cards: cards(2), held: []Allocation{{Job: "9", Cards: []int{1}, Alone: true}}, jobs: asks(one, two), users: "ann bob", lab: lab(3600, annHadMore), want: ""},
		{says: "a user's own jobs stay in order", rules: fair, cards: cards(3), jobs: asks(vram(100), one, vram(100)), users: "ann ann ann", lab: lab(3600, annHadMore), want: "1@0 2@1 3@0"},
		{says: "without a quantum who had less takes all", rules: fair, cards: cards(2), jobs: asks(one, one, one), users: "ann bob bob", lab: lab(0, annHadMore), want: "2@0 3@1"},
		{says: "a user at a limit leaves the rest to others", rules: fair, cards: cards(3), jobs: asks(one, one, one, one), users: "ann ann bob bob", lab: func(s *State) { s.DefaultLimit, s.Usage, s.FairQuantum = Limit{Jobs: 1}, annHadMore, 1 }, want: "3@0 1@1"},
	})
}
