package sched

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"berth/internal/job"
	"berth/internal/job/reason"
	"berth/internal/tests/testkit"
)

var update = testkit.Update

// reasonRows end with the job whose reason is looked at.
func reasonRows() []row {
	mixed := cardsOf(gib24, gib24, gib24, gib24)
	mixed[0].Paused = true
	mixed[1].ForeignMiB = gib24 - 20512
	mixed[2].Health, mixed[2].HealthReason = HealthQuarantined, "Xid 79"
	mixed[3].ForeignMiB = gib24 - 9512
	a100 := cardsOf(40960, gib24)
	a100[0].Name = "NVIDIA A100"
	mine := Allocation{Job: "3", Cards: []int{0}, BudgetMiB: []int64{6000}, Share: 0.75}
	alone := Allocation{Job: "3", Cards: []int{0}, Alone: true}
	busy := with(cardsOf(gib24, gib24), 1, func(c *Card) { c.ForeignMiB, c.IdleForeignMiB = 1500, 1200 })
	limits := func(r *Rules) { r.MemThreshold, r.LoadThreshold = 0.9, 0.5 }
	loaded := with(with(cardsOf(gib24, gib24, gib24), 0, func(c *Card) { c.UsedMiB = gib24 }), 1, func(c *Card) { c.UtilPct = 97 })
	loaded[2].Stale = true
	only := func(s *job.Spec) { s.Exclusive = true }
	typed := func(s *job.Spec) { s.Type = "A100" }
	allow := func(s *job.Spec) { s.Allow = []int{0, 1} }
	crowd := []Allocation{mine, {Job: "4", Cards: []int{0}, Other: true}, {Job: "5", Cards: []int{0}}, {Job: "6", Cards: []int{0}}, {Job: "7", Cards: []int{0}}}
	many := cardsOf(1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008, 1009)
	host := Host{CPUs: 16, MemMiB: 64000}
	limited := func(l Limit, use Use) func(*State) {
		return func(s *State) { s.DefaultLimit, s.InUse = l, map[string]Use{"ann": use} }
	}
	own := func(l Limit, use Use) func(*State) {
		return func(s *State) { s.Limits, s.InUse = map[string]Limit{"ann": l}, map[string]Use{"ann": use} }
	}

	return []row{
		{says: "VRAM on two GPUs", cards: mixed, jobs: asks(vrams(2, 18432))},
		{says: "idle GPU", cards: busy, held: []Allocation{mine}, jobs: asks(idle(1))},
		{says: "two idle GPUs, one is", cards: cardsOf(gib24, gib24), held: []Allocation{mine}, jobs: asks(idle(2))},
		{says: "share, by the sum", cards: cardsOf(gib24), held: []Allocation{mine}, jobs: asks(share(0.5))},
		{says: "share, by the memory", cards: with(cardsOf(gib24), 0, func(c *Card) { c.ForeignMiB = 20000 }), jobs: asks(share(0.5))},
		{says: "share on two GPUs", rules: func(r *Rules) { r.JobsPerGPU = 2 }, cards: cardsOf(gib24, gib24), held: []Allocation{mine}, jobs: asks(idle(2))},
		{says: "behind a job that is alone", cards: cardsOf(gib24), held: []Allocation{alone}, jobs: asks(vram(100))},
		{says: "exclusive", cards: cardsOf(gib24, gib24), held: crowd, jobs: asks(also(vram(24064), only), also(vram(100), only))},
		{says: "thresholds and readings", rules: limits, cards: loaded, jobs: asks(vram(100))},
		{says: "type", cards: a100, held: []Allocation{alone}, jobs: asks(also(idle(1), typed))},
		{says: "allow", cards: cardsOf(gib24, gib24, gib24), jobs: asks(vrams(3, 20000), also(vram(9000), allow))},
		{says: "ids", cards: cardsOf(gib24, gib24), held: []Allocation{alone}, jobs: asks(ids(500, 1, 0))},
		{says: "idle ids", cards: cardsOf(gib24, gib24), held: []Allocation{alone}, jobs: asks(ids(0, 1, 0))},
		{says: "many cards", cards: many, jobs: asks(idle(10), vram(100)), held: nil},
		{says: "many cards with something free", cards: many, jobs: asks(vrams(10, 400), vrams(2, 200))},
		{says: "cpus", host: host, jobs: asks(cpus(13), cpus(8))},
		{says: "host memory", host: host, jobs: asks(also(cpus(1), func(s *job.Spec) { s.MemMiB = 60000 }), also(cpus(1), func(s *job.Spec) { s.MemMiB = 8000 }))},
		{says: "unreadable", blind: "nvidia-smi: no answer for 10 s", cards: cardsOf(gib24), jobs: asks(idle(1))},
		{says: "behind another under fifo", rules: fifo, cards: cardsOf(gib24), held: []Allocation{mine}, jobs: asks(vram(20000), vram(100))},
		{says: "bound on starts", cards: cardsOf(gib24), most: 1, jobs: asks(vram(100), vram(100))},
		{says: "array", cards: eight(), jobs: asks(idle(1), idle(1), idle(1), idle(1), idle(1)), arrays: "17 17 17 17 17", atOnce: 4},
		{says: "array of one at a time", cards: eight(), jobs: asks(idle(1), idle(1)), arrays: "17 17", atOnce: 1},
		{says: "array, even behind another under fifo", rules: fifo, cards: cardsOf(gib24), held: []Allocation{mine}, jobs: asks(vram(20000), vram(100)), arrays: "- 17", atOnce: 1, lab: func(s *State) { s.ArrayRuns = map[string]int{"17": 1} }},
		{says: "group", cards: eight(), jobs: asks(idle(1), idle(1)), groups: "io io", lab: ofGroup(Group{Limit: 2, Running: []string{"17"}})},
		{says: "group with many running jobs", cards: eight(), jobs: asks(idle(1)), groups: "io", lab: ofGroup(Group{Limit: 5, Running: []string{"17", "9", "20", "21", "101"}})},
		{says: "group of one at a time", cards: eight(), jobs: asks(idle(1)), groups: "io", lab: ofGroup(Group{Limit: 1, Running: []string{"17_3"}})},
		{says: "group over its limit", cards: eight(), jobs: asks(idle(1)), groups: "io", lab: ofGroup(Group{Limit: 1, Running: []string{"17", "18"}})},
		{says: "paused group", cards: eight(), jobs: asks(idle(1)), groups: "io", lab: ofGroup(Group{Limit: 1, PausedBy: "anna", Running: []string{"17"}})},
		{says: "limit on jobs", cards: eight(), jobs: asks(idle(1)), users: "ann", lab: limited(Limit{Jobs: 4}, Use{Jobs: 4, GPUs: 6})},
		{says: "limit on one job", cards: eight(), jobs: asks(idle(1), idle(1)), users: "ann ann", lab: limited(Limit{Jobs: 1}, Use{})},
		{says: "limit on GPUs", cards: eight(), jobs: asks(idle(4)), users: "ann", lab: limited(Limit{GPUs: 8}, Use{Jobs: 4, GPUs: 6})},
		{says: "limit on GPUs, in shares", cards: eight(), jobs: asks(share(0.75)), users: "ann", lab: limited(Limit{GPUs: 1.5}, Use{GPUs: 1})},
		{says: "limit on CPUs", host: host, jobs: asks(cpus(2)), users: "ann", lab: limited(Limit{CPUs: 8}, Use{Jobs: 4, CPUs: 7})},
		{says: "limit on CPUs of one's own", host: host, jobs: asks(cpus(1)), users: "ann", lab: own(Limit{CPUs: 1}, Use{CPUs: 1})},
		{says: "limit on host memory", host: host, jobs: asks(mem(8000)), users: "ann", lab: limited(Limit{MemMiB: 32000}, Use{MemMiB: 30000})},
		{says: "limits of one's own", cards: eight(), jobs: asks(idle(2)), users: "ann", lab: own(Limit{GPUs: 2}, Use{GPUs: 1.0 / 3})},
		{says: "limit of one's own on jobs", cards: eight(), jobs: asks(idle(1)), users: "ann", lab: own(Limit{Jobs: 2}, Use{Jobs: 3})},
		{says: "limit without a user's name", cards: eight(), jobs: asks(idle(1), idle(1)), lab: limited(Limit{Jobs: 1}, Use{})},
		{says: "nothing in the way", cards: cardsOf(gib24), jobs: asks(vram(100))},

		{says: "more GPUs than there are", cards: cardsOf(make([]int64, 8)...), jobs: asks(idle(12))},
		{says: "no GPU at all", jobs: asks(idle(1))},
		{says: "more VRAM than a card has", cards: cardsOf(gib24), jobs: asks(vram(40000))},
		{says: "more VRAM than two cards have", cards: cardsOf(gib24, 48000), jobs: asks(vrams(2, 40000))},
		{says: "more share than the reserve leaves", cards: with(cardsOf(1000), 0, func(c *Card) { c.ReservedMiB = 100 }), jobs: asks(share(0.99))},
		{says: "an id that is not there", cards: cardsOf(gib24), jobs: asks(ids(10, 9))},
		{says: "an id twice", cards: cardsOf(gib24, gib24), jobs: asks(ids(10, 1, 1))},
		{says: "a type that is not there", cards: cardsOf(gib24, gib24), jobs: asks(also(idle(1), typed))},
		{says: "an allow list that is too short", cards: cardsOf(gib24, gib24, gib24), jobs: asks(also(idle(3), allow))},
		{says: "more cpus than there are", host: host, jobs: asks(cpus(64))},
		{says: "more GPUs than a user may hold", cards: eight(), jobs: asks(idle(6)), users: "ann", lab: limited(Limit{GPUs: 4}, Use{})},
		{says: "more GPUs than this user may hold", cards: eight(), jobs: asks(share(0.75)), users: "ann", lab: own(Limit{GPUs: 0.5}, Use{})},
		{says: "more CPUs than a user may hold", host: host, jobs: asks(cpus(9)), users: "ann", lab: limited(Limit{CPUs: 8}, Use{})},
		{says: "more host memory than this user may hold", host: host, jobs: asks(mem(8000)), users: "ann", lab: own(Limit{MemMiB: 4000}, Use{})},
		{says: "more memory than there is", host: host, jobs: asks(also(cpus(1), func(s *job.Spec) { s.MemMiB = 500000 }))},
	}
}

func ofGroup(of Group) func(*State) {
	return func(s *State) { s.Groups = map[GroupName]Group{{Name: "io"}: of} }
}

func TestReasonsGolden(t *testing.T) {
	var b strings.Builder
	for _, r := range reasonRows() {
		last := strconv.Itoa(len(r.jobs))
		why := Explain(r.state(), last)
		if why.Kind != reason.StartsNow && strings.Contains(r.says, "nothing in the way") {
			t.Errorf("%s: %s", r.says, why)
		}
		fields, err := json.Marshal(why)
		if err != nil {
			t.Fatal(err)
		}
		var back reason.Reason
		if err := json.Unmarshal(fields, &back); err != nil || back.String() != why.String() {
			t.Errorf("%s: reads back as %q, %v", r.says, back, err)
		}
		fmt.Fprintf(&b, "# %s\n%s\n%s\n\n", r.says, why, fields)
	}
	fmt.Fprintf(&b, "# not queued\n%s\n", Explain(State{}, "77"))
	const path = "testdata/reasons.golden"
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
		t.Errorf("reasons changed (-want +got; -update rewrites them):\n%s", diff)
	}
}
