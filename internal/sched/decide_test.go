package sched

import (
	"math"
	"slices"
	"testing"

	"berth/internal/job"
)

const gib24 = 24576

func TestDeclaredVRAM(t *testing.T) {
	checkRows(t, []row{
		{says: "a declared job needs the margin beside it", cards: cardsOf(10512), jobs: asks(vram(10000)), want: "1@0"},
		{says: "one MiB short of the margin waits", cards: with(cardsOf(10512), 0, func(c *Card) { c.ForeignMiB = 1 }), jobs: asks(vram(10000)), want: ""},
		{says: "what the driver reserves is not free", cards: with(cardsOf(20000), 0, func(c *Card) { c.ReservedMiB = 5000; c.ForeignMiB = 4489 }), jobs: asks(vram(10000)), want: ""},
		{says: "a job is budgeted from the moment it is placed", cards: cardsOf(20000), jobs: asks(vram(10000), vram(10000)), want: "1@0"},
		{says: "the margin is needed once, not per job", cards: cardsOf(20512), jobs: asks(vram(10000), vram(10000)), want: "1@0 2@0"},
		{says: "what runs is held at its budget", cards: cardsOf(20000), held: []Allocation{{Job: "9", Cards: []int{0}, BudgetMiB: []int64{9489}}}, jobs: asks(vram(10000)), want: ""},
		{says: "another berth's job is held at its budget", cards: cardsOf(20000), held: []Allocation{{Job: "9", Cards: []int{0}, BudgetMiB: []int64{9489}, Other: true}}, jobs: asks(vram(10000)), want: ""},
		{says: "a budget is taken off the card it belongs to", cards: cardsOf(20000, 20000), held: []Allocation{{Job: "9", Cards: []int{1, 0}, BudgetMiB: []int64{100, 15000}}}, jobs: asks(vram(10000)), want: "1@1"},
		{says: "a negative budget makes no room", cards: with(cardsOf(20000), 0, func(c *Card) { c.ForeignMiB = 15000 }), held: []Allocation{{Job: "9", Cards: []int{0}, BudgetMiB: []int64{-9000}}}, jobs: asks(vram(10000)), want: ""},
		{says: "what is held on a lost card stands in nobody's way", cards: cardsOf(20000), held: []Allocation{{Job: "9", Cards: []int{4}, BudgetMiB: []int64{100}}}, jobs: asks(vram(10000)), want: "1@0"},
		{says: "declared jobs join shares", cards: cardsOf(gib24), held: []Allocation{{Job: "9", Cards: []int{0}, BudgetMiB: []int64{11673}, Share: 0.5}}, jobs: asks(vram(12000)), want: "1@0"},
		{says: "nothing joins a job that is alone", cards: cardsOf(gib24), held: []Allocation{{Job: "9", Cards: []int{0}, Alone: true}}, jobs: asks(vram(100), share(0.1), idle(1)), want: ""},
		{says: "nothing joins a job that is exclusive", cards: cardsOf(gib24), held: []Allocation{{Job: "9", Cards: []int{0}, BudgetMiB: []int64{10}, Exclusive: true}}, jobs: asks(vram(100), share(0.1), idle(1)), want: ""},
	})
}

func TestParts(t *testing.T) {
	parted := func() []Card {
		cards := cardsOf(gib24, gib24)
		for i := range 3 {
			part := cardOf(200+i, 9728)
			part.Part = true
			cards = append(cards, part)
		}
		return cards
	}
	checkRows(t, []row{
		{says: "a part is a card of its own", cards: parted()[2:], jobs: asks(vram(8000), vram(8000), idle(1)), want: "1@200 2@201 3@202"},
		{says: "pack prefers the part to the whole card", cards: parted(), jobs: asks(vram(8000)), want: "1@200"},
		{says: "a job that declares nothing gets a whole card before a part", cards: parted(), jobs: asks(idle(1), idle(1), idle(1)), want: "1@0 2@1 3@200"},
		{says: "what is too large for a part gets a card", cards: parted(), jobs: asks(vram(10000)), want: "1@0"},
		{says: "several GPUs are never parts", cards: parted(), jobs: asks(vrams(2, 100), vram(100)), want: "1@0,1 2@200"},
		{says: "several parts by name are given", cards: parted(), jobs: asks(job.Spec{GPUs: 2, VRAMMiB: 100, IDs: []int{202, 200}}), want: "1@202,200"},
		{says: "several GPUs cannot come from parts alone", cards: parted()[2:], jobs: asks(vrams(2, 100)), want: "!1"},
	})
	why, ok := Feasible(State{Rules: DefaultRules(), Cards: parted()[2:]}, NewRequest(vrams(2, 100), 100, DefaultRules()))
	if want := "asks for 2 GPUs; 0 of this machine's 3 qualify: gpu200 Test GPU, gpu201 Test GPU, gpu202 Test GPU; a job can use only one part of a partitioned GPU"; ok || why.String() != want {
		t.Errorf("%v %s", ok, why)
	}
	for _, row := range []struct {
		says  string
		cards []Card
		spec  job.Spec
		want  string
	}{
		{"a card that is in parts is told by them", slices.Delete(parted(), 1, 2), job.Spec{GPUs: 1, IDs: []int{1}},
			"asks for gpu1, which is partitioned; its parts are 200, 201, 202"},
		{"also beside one that is nowhere", slices.Delete(parted(), 1, 2), job.Spec{GPUs: 2, IDs: []int{7, 1}},
			"asks for gpu1, which is partitioned; its parts are 200, 201, 202"},
		{"a card that is nowhere has no parts", slices.Delete(parted(), 1, 2), job.Spec{GPUs: 1, IDs: []int{7}},
			"asks for gpu7; this machine has gpu0 Test GPU, gpu200 Test GPU, gpu201 Test GPU, gpu202 Test GPU"},
		{"a whole card that the job rules out itself is not in parts", parted(), job.Spec{GPUs: 1, IDs: []int{1}, Allow: []int{0}},
			"asks for gpu1 among gpu0; this machine has gpu0 Test GPU, gpu1 Test GPU, gpu200 Test GPU, gpu201 Test GPU, gpu202 Test GPU"},
	} {
		t.Run(row.says, func(t *testing.T) {
			why, ok := Feasible(State{Rules: DefaultRules(), Cards: row.cards}, NewRequest(row.spec, 100, DefaultRules()))
			if ok || why.String() != row.want {
				t.Errorf("%v %s", ok, why)
			}
		})
	}
}

func TestShares(t *testing.T) {
	half := Allocation{Job: "9", Cards: []int{0}, BudgetMiB: []int64{11673}, Share: 0.5}
	small := Allocation{Job: "8", Cards: []int{0}, BudgetMiB: []int64{1000}, Share: 0.5, Other: true}
	checkRows(t, []row{
		{says: "two halves fill a card, a third waits", cards: cardsOf(gib24), jobs: asks(share(0.5), share(0.5), share(0.1)), want: "1@0 2@0"},
		{says: "three thirds are one", cards: cardsOf(gib24), jobs: asks(share(1.0/3), share(1.0/3), share(1.0/3), share(1.0/3)), want: "1@0 2@0 3@0"},
		{says: "ten tenths are one", cards: cardsOf(gib24), jobs: slices.Repeat(asks(share(0.1)), 11), want: "1@0 2@0 3@0 4@0 5@0 6@0 7@0 8@0 9@0 10@0"},
		{says: "nine ninths are one, though they add up to a bit more", rules: func(r *Rules) { r.JobsPerGPU = 9 }, cards: cardsOf(gib24), jobs: slices.Repeat(asks(idle(1)), 10), want: "1@0 2@0 3@0 4@0 5@0 6@0 7@0 8@0 9@0"},
		{says: "a smaller share fits where a larger did not", cards: cardsOf(gib24), held: []Allocation{half}, jobs: asks(share(0.6), share(0.4)), want: "2@0"},
		{says: "a share must find its part of the memory free", cards: with(cardsOf(gib24), 0, func(c *Card) { c.ForeignMiB = gib24 - 11672 }), jobs: asks(share(0.5)), want: ""},
		{says: "a share needs no margin", cards: with(cardsOf(gib24), 0, func(c *Card) { c.ForeignMiB = gib24 - 11673 }), jobs: asks(share(0.5)), want: "1@0"},
		{says: "a share with VRAM obeys the sum of shares", cards: cardsOf(gib24), held: []Allocation{half}, jobs: asks(also(share(0.6), func(s *job.Spec) { s.VRAMMiB = 100 })), want: ""},
		{says: "a share with VRAM is budgeted at its declaration", cards: cardsOf(gib24), held: []Allocation{half}, jobs: asks(also(share(0.5), func(s *job.Spec) { s.VRAMMiB = 12391 })), want: "1@0"},
		{says: "a share with VRAM keeps the margin", cards: cardsOf(gib24), held: []Allocation{half}, jobs: asks(also(share(0.5), func(s *job.Spec) { s.VRAMMiB = 12392 })), want: ""},
		{says: "a holder without a share counts by its budget only", cards: cardsOf(gib24), held: []Allocation{{Job: "9", Cards: []int{0}, BudgetMiB: []int64{1000}}}, jobs: asks(share(0.9)), want: "1@0"},
		{says: "a share that is no number does not count", cards: cardsOf(gib24), held: []Allocation{{Job: "9", Cards: []int{0}, BudgetMiB: []int64{1}, Share: math.NaN()}}, jobs: asks(share(0.9), share(0.9)), want: "1@0"},
		{says: "shares that others pushed over 1 do not stop declared jobs", cards: cardsOf(gib24), held: []Allocation{small, small, small}, jobs: asks(share(0.1), vram(100)), want: "2@0"},
		{says: "jobs-per-gpu gives undeclared jobs a share", rules: func(r *Rules) { r.JobsPerGPU = 2 }, cards: cardsOf(gib24, gib24), jobs: asks(idle(1), idle(1), idle(1), idle(1), idle(1)), want: "1@0 2@0 3@1 4@1"},
		{says: "jobs-per-gpu gives the share on each of several cards", rules: func(r *Rules) { r.JobsPerGPU = 2 }, cards: cardsOf(gib24, gib24), jobs: asks(idle(2), idle(1), idle(1), idle(1)), want: "1@0,1 2@0 3@1"},
		{says: "jobs-per-gpu of 1 leaves room for nobody else's share", rules: func(r *Rules) { r.JobsPerGPU = 1 }, cards: cardsOf(gib24), jobs: asks(idle(1), idle(1)), want: "1@0"},
		{says: "jobs-per-gpu leaves declared jobs as they are", rules: func(r *Rules) { r.JobsPerGPU = 1 }, cards: cardsOf(gib24), jobs: asks(vram(8000), vram(8000)), want: "1@0 2@0"},
	})
}

func TestUndeclared(t *testing.T) {
	checkRows(t, []row{
		{says: "an undeclared job takes an idle card and nothing joins it", cards: cardsOf(gib24), jobs: asks(idle(1), vram(10), idle(1)), want: "1@0"},
		{says: "foreign use under the idle threshold leaves a card idle", cards: with(cardsOf(gib24), 0, func(c *Card) { c.IdleForeignMiB = 199 }), jobs: asks(idle(1)), want: "1@0"},
		{says: "foreign use at the idle threshold does not", cards: with(cardsOf(gib24), 0, func(c *Card) { c.IdleForeignMiB = 200 }), jobs: asks(idle(1)), want: ""},
		{says: "a desktop's graphics leave a card idle", cards: with(cardsOf(gib24), 0, func(c *Card) { c.ForeignMiB = 3000 }), jobs: asks(idle(1)), want: "1@0"},
		{says: "any berth job makes a card not idle", cards: cardsOf(gib24), held: []Allocation{{Job: "9", Cards: []int{0}, BudgetMiB: []int64{1}}}, jobs: asks(idle(1)), want: ""},
		{says: "several idle cards, all or nothing", cards: cardsOf(gib24, gib24), held: []Allocation{{Job: "9", Cards: []int{0}, BudgetMiB: []int64{1}}}, jobs: asks(idle(2), idle(1)), want: "2@1"},
		{says: "declared jobs and shares fit where an undeclared one does not", cards: with(cardsOf(gib24), 0, func(c *Card) { c.ForeignMiB, c.IdleForeignMiB = 900, 900 }), jobs: asks(idle(1), vram(100), share(0.2)), want: "2@0 3@0"},
		{says: "an undeclared job takes the smallest idle card", cards: cardsOf(48000, gib24), jobs: asks(idle(1)), want: "1@1"},
	})
}

func TestExclusive(t *testing.T) {
	only := func(mib int64) job.Spec { return also(vram(mib), func(s *job.Spec) { s.Exclusive = true }) }
	checkRows(t, []row{
		{says: "an exclusive job joins no berth job", cards: cardsOf(gib24), jobs: asks(vram(100), only(100)), want: "1@0"},
		{says: "no berth job joins an exclusive one", cards: cardsOf(gib24), jobs: asks(only(100), vram(100), share(0.1)), want: "1@0"},
		{says: "an exclusive job may share with foreign processes", cards: with(cardsOf(gib24), 0, func(c *Card) { c.ForeignMiB, c.IdleForeignMiB = 9000, 9000 }), jobs: asks(only(10000)), want: "1@0"},
		{says: "the exclusive rule keeps jobs apart", rules: func(r *Rules) { r.Exclusive = true }, cards: cardsOf(gib24, gib24), jobs: asks(vram(100), vram(100), vram(100)), want: "1@0 2@1"},
	})
}

func TestClosedCards(t *testing.T) {
	closed := func(says string, rules func(*Rules), change func(*Card), want string) row {
		return row{says: says, rules: rules, cards: with(cardsOf(gib24, 2*gib24), 0, change), jobs: asks(vram(100)), want: want}
	}
	mem := func(r *Rules) { r.MemThreshold = 0.5 }
	load := func(r *Rules) { r.LoadThreshold = 0.5 }
	rows := []row{
		closed("nothing starts on a paused card", nil, func(c *Card) { c.Paused = true }, "1@1"),
		closed("nothing starts on a suspect card", nil, func(c *Card) { c.Health = HealthSuspect }, "1@1"),
		closed("nothing starts on a quarantined card", nil, func(c *Card) { c.Health = HealthQuarantined }, "1@1"),
		closed("nothing starts on a card without a recent reading", nil, func(c *Card) { c.Stale = true }, "1@1"),
		closed("nothing starts over the memory threshold", mem, func(c *Card) { c.UsedMiB = 12289 }, "1@1"),
		closed("at the memory threshold it does", mem, func(c *Card) { c.UsedMiB = 12288 }, "1@0"),
		closed("without a memory threshold use does not matter", nil, func(c *Card) { c.UsedMiB = 20000 }, "1@0"),
		closed("nothing starts over the load threshold", load, func(c *Card) { c.UtilPct = 51 }, "1@1"),
		closed("at the load threshold it does", load, func(c *Card) { c.UtilPct = 50 }, "1@0"),
		closed("an unknown load is not over the threshold", load, func(c *Card) { c.UtilPct = -1 }, "1@0"),
	}
	busy := closed("the load of berth's own jobs does not count", load, func(c *Card) { c.UtilPct = 99 }, "1@0")
	busy.held = []Allocation{{Job: "9", Cards: []int{0}, BudgetMiB: []int64{100}}}
	always := closed("unless it is always looked at", func(r *Rules) { r.LoadThreshold, r.LoadAlways = 0.5, true }, func(c *Card) { c.UtilPct = 51 }, "1@1")
	always.held = busy.held
	under := closed("under the threshold it does not keep others off either", func(r *Rules) { r.LoadThreshold, r.LoadAlways = 0.5, true }, func(c *Card) { c.UtilPct = 50 }, "1@0")
	under.held = busy.held
	checkRows(t, append(rows, busy, always, under))
}

func TestWhichCards(t *testing.T) {
	named := func() []Card {
		cards := cardsOf(gib24, gib24, gib24, gib24)
		cards[2].Name, cards[3].Name = "NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB"
		return cards
	}
	checkRows(t, []row{
		{says: "ids are exactly these, in their order", cards: named(), jobs: asks(ids(100, 3, 1)), want: "1@3,1"},
		{says: "ids set the count", cards: named(), jobs: asks(also(ids(100, 3, 1, 0), func(s *job.Spec) { s.GPUs = 1 })), want: "1@3,1,0"},
		{says: "ids wait while one of them is short", cards: with(named(), 1, func(c *Card) { c.Paused = true }), jobs: asks(ids(100, 3, 1)), want: ""},
		{says: "an undeclared job with ids wants those idle", cards: with(named(), 1, func(c *Card) { c.IdleForeignMiB = 900 }), jobs: asks(ids(0, 3, 1), ids(0, 3, 2)), want: "2@3,2"},
		{says: "allow narrows the choice", cards: named(), jobs: asks(also(vram(100), func(s *job.Spec) { s.Allow = []int{3, 2} })), want: "1@2"},
		{says: "allow with several GPUs gives them ascending", cards: named(), jobs: asks(also(vrams(2, 100), func(s *job.Spec) { s.Allow = []int{3, 1} })), want: "1@1,3"},
		{says: "a type is a part of the name in any case", cards: named(), jobs: asks(also(vram(100), func(s *job.Spec) { s.Type = "a100" })), want: "1@2"},
		{says: "type and allow both count", cards: named(), jobs: asks(also(vram(100), func(s *job.Spec) { s.Type, s.Allow = "A100", []int{0, 3} })), want: "1@3"},
	})
}

func TestHostResources(t *testing.T) {
	host := Host{CPUs: 4, MemMiB: 1000}
	checkRows(t, []row{
		{says: "a CPU job needs no card", jobs: asks(cpus(1)), host: host, want: "1@"},
		{says: "a CPU job that declares no cpus counts as one", jobs: asks(cpus(0), cpus(0), cpus(0), cpus(0), cpus(0)), host: host, want: "1@ 2@ 3@ 4@"},
		{says: "a GPU job that declares no cpus counts as none", cards: cardsOf(gib24), jobs: asks(cpus(4), vram(100)), host: host, want: "1@ 2@0"},
		{says: "a GPU job's cpus count", cards: cardsOf(gib24), jobs: asks(also(vram(100), func(s *job.Spec) { s.CPUs = 3 }), cpus(2), cpus(1)), host: host, want: "1@0 3@"},
		{says: "a GPU job waits for its cpus", cards: cardsOf(gib24), jobs: asks(cpus(3), also(vram(100), func(s *job.Spec) { s.CPUs = 2 })), host: host, want: "1@"},
		{says: "memory is accounted alike", jobs: asks(also(cpus(1), func(s *job.Spec) { s.MemMiB = 600 }), also(cpus(1), func(s *job.Spec) { s.MemMiB = 401 }), also(cpus(1), func(s *job.Spec) { s.MemMiB = 400 })), host: host, want: "1@ 3@"},
		{says: "what runs holds its cpus and memory", jobs: asks(cpus(2), cpus(1)), host: host, held: []Allocation{{Job: "9", CPUs: 3}}, want: "2@"},
		{says: "an unknown host is not checked", jobs: asks(also(cpus(500), func(s *job.Spec) { s.MemMiB = 1 << 40 })), want: "1@"},
		{says: "more than the host has is infeasible", jobs: asks(cpus(5), also(cpus(1), func(s *job.Spec) { s.MemMiB = 1001 }), cpus(4)), host: host, want: "3@ !1 !2"},
		{says: "a job that asks for no memory is not stopped by a host that is over its own", jobs: asks(cpus(1)), host: host, held: []Allocation{{Job: "9", MemMiB: 5000}}, want: "1@"},
	})
}

func TestOrder(t *testing.T) {
	urgent := also(vram(20000), func(s *job.Spec) { s.Priority = 5 })
	checkRows(t, []row{
		{says: "higher priority goes first", cards: cardsOf(gib24), jobs: asks(vram(20000), urgent), want: "2@0"},
		{says: "equal priority goes by rank", cards: cardsOf(gib24), jobs: asks(vram(20000), vram(20001)), want: "1@0"},
		{says: "a job that fits passes one that does not", cards: cardsOf(gib24), jobs: asks(vram(20000), vram(20000), vram(3000)), want: "1@0 3@0"},
		{says: "under fifo nothing passes a job that does not fit", rules: fifo, cards: cardsOf(gib24), jobs: asks(vram(20000), vram(20000), vram(3000), cpus(1)), want: "1@0"},
		{says: "under fifo an infeasible job blocks nobody", rules: fifo, cards: cardsOf(gib24), jobs: asks(vram(90000), vram(3000)), want: "2@0 !1"},
		{says: "under fifo an infeasible job is refused even behind a block", rules: fifo, cards: cardsOf(gib24), jobs: asks(vram(20000), vram(20000), vram(90000)), want: "1@0 !3"},
		{says: "a larger job of another shape may still fit", cards: cardsOf(gib24, 10000), jobs: asks(vrams(2, 12000), vrams(2, 9000), vram(20000)), want: "2@0,1 !1"},
		{says: "no more starts than asked for", cards: cardsOf(gib24), most: 2, jobs: asks(vram(10), vram(10), vram(10)), want: "1@0 2@0"},
		{says: "a full plan still refuses what can never fit", cards: cardsOf(gib24), most: 1, jobs: asks(vram(10), vram(10), idle(3)), want: "1@0 !3"},
	})
}

func TestInfeasible(t *testing.T) {
	off := func(c *Card) { c.Paused, c.Stale, c.Health = true, true, HealthQuarantined }
	full := func(c *Card) { c.ForeignMiB, c.IdleForeignMiB = gib24, gib24 }
	checkRows(t, []row{
		{says: "more than the empty card holds beside the margin is infeasible", cards: cardsOf(gib24), jobs: asks(vram(24065), vram(24064)), want: "2@0 !1"},
		{says: "the driver's reserve never comes free", cards: with(cardsOf(gib24), 0, func(c *Card) { c.ReservedMiB = 1 }), jobs: asks(vram(24064)), want: "!1"},
		{says: "what is in use now does not make a job infeasible", cards: with(cardsOf(gib24), 0, full), jobs: asks(vram(24064), idle(1), share(0.9)), want: ""},
		{says: "a card that is paused, stale or unwell still exists", cards: with(cardsOf(gib24), 0, off), jobs: asks(vram(24064), idle(1)), want: ""},
		{says: "more GPUs than there are is infeasible", cards: cardsOf(gib24, gib24), jobs: asks(idle(3)), want: "!1"},
		{says: "each of several cards must hold the VRAM", cards: cardsOf(gib24, 48000), jobs: asks(vrams(2, 30000)), want: "!1"},
		{says: "an id that does not exist is infeasible", cards: cardsOf(gib24), jobs: asks(ids(10, 4)), want: "!1"},
		{says: "an id named twice is infeasible", cards: cardsOf(gib24, gib24), jobs: asks(ids(10, 1, 1)), want: "!1"},
		{says: "an id outside the job's own allow list is infeasible", cards: cardsOf(gib24, gib24), jobs: asks(also(ids(10, 1), func(s *job.Spec) { s.Allow = []int{0} })), want: "!1"},
		{says: "a type that matches nothing is infeasible", cards: cardsOf(gib24), jobs: asks(also(idle(1), func(s *job.Spec) { s.Type = "h100" })), want: "!1"},
		{says: "an allow list with too few cards is infeasible", cards: cardsOf(gib24, gib24), jobs: asks(also(idle(2), func(s *job.Spec) { s.Allow = []int{0, 7} })), want: "!1"},
		{says: "a share that the driver's reserve cuts into is infeasible", cards: with(cardsOf(1000), 0, func(c *Card) { c.ReservedMiB = 100 }), jobs: asks(share(0.99), share(0.9)), want: "2@0 !1"},
		{says: "without any GPU, GPU jobs are infeasible", jobs: asks(idle(1), cpus(1)), want: "2@ !1"},
		{says: "a whole group is refused at once", cards: cardsOf(gib24), jobs: asks(vram(90000), vram(10), vram(90000)), want: "2@0 !1 !3"},
		{says: "an amount that would overflow is infeasible", cards: cardsOf(gib24), jobs: asks(vram(math.MaxInt64)), want: "!1"},
	})
}

func TestUnreadable(t *testing.T) {
	checkRows(t, []row{
		{says: "while the GPUs are unreadable only CPU jobs start", blind: "driver gone", cards: cardsOf(gib24), jobs: asks(vram(10), idle(1), share(0.5), cpus(1)), want: "4@"},
		{says: "with no reading ever, no GPU job is infeasible", blind: "driver gone", jobs: asks(vram(1<<40), idle(99), ids(10, 7)), want: ""},
		{says: "with an old reading, totals are still judged", blind: "driver gone", cards: cardsOf(gib24), jobs: asks(idle(2)), want: "!1"},
	})
}
