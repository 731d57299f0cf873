package sched

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"berth/internal/job"
)

func TestBudget(t *testing.T) {
	for _, c := range []struct {
		says           string
		declared, peak int64
		buffer         float64
		want           int64
	}{
		{"below its declaration a job is held at the declaration", 1000, 999, 0.10, 1000},
		{"at its declaration too", 1000, 1000, 0.10, 1000},
		{"past it, at the buffered peak", 1000, 1001, 0.10, 1102},
		{"a whole product is not rounded up", 900, 1000, 0.10, 1100},
		{"without a buffer, at the peak", 900, 1000, 0, 1000},
	} {
		if got := Budget(c.declared, c.peak, c.buffer); got != c.want {
			t.Errorf("%s: %d, want %d", c.says, got, c.want)
		}
	}
}

func TestGrants(t *testing.T) {
	for _, c := range []struct {
		says  string
		rules func(*Rules)
		cards []Card
		ask   job.Spec
		want  job.Grant
	}{
		{"a declared job is budgeted at its declaration", nil, cardsOf(gib24), vram(9000),
			job.Grant{GPUs: []int{0}, UUIDs: []string{"GPU-0"}, BudgetMiB: 9000}},
		{"half of 24 GiB is 11.4 GiB", nil, cardsOf(gib24), share(0.5),
			job.Grant{GPUs: []int{0}, UUIDs: []string{"GPU-0"}, BudgetMiB: 11673, Share: 0.5}},
		{"a tiny share still has a budget", nil, cardsOf(gib24), share(1e-9),
			job.Grant{GPUs: []int{0}, UUIDs: []string{"GPU-0"}, BudgetMiB: 1, Share: 1e-9}},
		{"a share with VRAM is budgeted at its declaration", nil, cardsOf(gib24), also(share(0.5), func(s *job.Spec) { s.VRAMMiB = 700 }),
			job.Grant{GPUs: []int{0}, UUIDs: []string{"GPU-0"}, BudgetMiB: 700, Share: 0.5}},
		{"an undeclared job is alone", nil, cardsOf(gib24), idle(1),
			job.Grant{GPUs: []int{0}, UUIDs: []string{"GPU-0"}, Alone: true}},
		{"the exclusive rule reaches the grant", func(r *Rules) { r.Exclusive = true }, cardsOf(gib24), vram(5),
			job.Grant{GPUs: []int{0}, UUIDs: []string{"GPU-0"}, BudgetMiB: 5, Exclusive: true}},
		{"of cards of several sizes the largest budget is named", func(r *Rules) { r.JobsPerGPU = 2 }, cardsOf(10000, 20000), idle(2),
			job.Grant{GPUs: []int{0, 1}, UUIDs: []string{"GPU-0", "GPU-1"}, BudgetMiB: 9500, Share: 0.5}},
		{"UUIDs follow the order of the ids", nil, cardsOf(gib24, gib24), ids(5, 1, 0),
			job.Grant{GPUs: []int{1, 0}, UUIDs: []string{"GPU-1", "GPU-0"}, BudgetMiB: 5}},
		{"a CPU job is given nothing", nil, nil, cpus(2), job.Grant{}},
	} {
		plan := Decide(row{rules: c.rules, cards: c.cards, jobs: asks(c.ask)}.state())
		if len(plan.Starts) != 1 {
			t.Errorf("%s: plan is %q", c.says, brief(plan))
			continue
		}
		if diff := cmp.Diff(c.want, plan.Starts[0].Grant); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.says, diff)
		}
	}
}

func TestHold(t *testing.T) {
	rules := DefaultRules()
	cards := cardsOf(10000, 20000)
	for _, c := range []struct {
		says string
		job  job.Job
		want Allocation
	}{
		{"a declared job is escalated on the card where it passed its declaration",
			job.Job{ID: "1", Spec: vrams(2, 100), VRAMMiB: 100, Attempt: job.Attempt{PeakMiB: map[int]int64{1: 200}, Grant: job.Grant{GPUs: []int{0, 1}, BudgetMiB: 100}}},
			Allocation{Job: "1", Cards: []int{0, 1}, BudgetMiB: []int64{100, 220}}},
		{"a share is a part of the card it lies on",
			job.Job{ID: "1", Spec: idle(2), Attempt: job.Attempt{Grant: job.Grant{GPUs: []int{0, 1}, BudgetMiB: 9500, Share: 0.5}}},
			Allocation{Job: "1", Cards: []int{0, 1}, BudgetMiB: []int64{4750, 9500}, Share: 0.5}},
		{"on a card that is gone it is held at what it was granted",
			job.Job{ID: "1", Spec: share(0.5), Attempt: job.Attempt{Grant: job.Grant{GPUs: []int{7}, BudgetMiB: 9500, Share: 0.5}}},
			Allocation{Job: "1", Cards: []int{7}, BudgetMiB: []int64{9500}, Share: 0.5}},
		{"a CPU job holds its one cpu",
			job.Job{ID: "1", Spec: cpus(0)}, Allocation{Job: "1", BudgetMiB: []int64{}, CPUs: 1}},
		{"a raised declaration is what counts",
			job.Job{ID: "1", Spec: vram(100), VRAMMiB: 300, Attempt: job.Attempt{PeakMiB: map[int]int64{0: 200}, Grant: job.Grant{GPUs: []int{0}, BudgetMiB: 300}}},
			Allocation{Job: "1", Cards: []int{0}, BudgetMiB: []int64{300}}},
	} {
		if diff := cmp.Diff(c.want, AllocationOf(&c.job, rules, cards)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.says, diff)
		}
	}
}

func TestCapMiB(t *testing.T) {
	a100 := func(s *job.Spec) { s.Type = "a100" }
	cards := cardsOf(40000, 80000, 24000)
	cards[2].Name, cards[2].ReservedMiB, cards[2].ForeignMiB = "A100", 600, 9000
	state := State{Rules: DefaultRules(), Cards: cards}
	for _, c := range []struct {
		says string
		ask  job.Spec
		want int64
	}{
		{"the largest card less the margin", vram(1), 79488},
		{"of two GPUs, the smaller of the two largest", vrams(2, 1), 39488},
		{"only cards of its type, less the reserve, whatever is in use", also(vram(1), a100), 22888},
		{"of named cards, the smallest", ids(1, 1, 0), 39488},
		{"more cards than there are can hold nothing", vrams(4, 1), 0},
		{"a CPU job has no VRAM", cpus(1), 0},
	} {
		if got := CapMiB(state, NewRequest(c.ask, c.ask.VRAMMiB, state.Rules)); got != c.want {
			t.Errorf("%s: %d, want %d", c.says, got, c.want)
		}
	}
}

func TestParseNames(t *testing.T) {
	for _, name := range []string{"fifo", "backfill"} {
		if p, err := ParsePolicy(name); err != nil || string(p) != name {
			t.Errorf("policy %s: %q, %v", name, p, err)
		}
	}
	for _, name := range []string{"pack", "spread"} {
		if p, err := ParsePlacement(name); err != nil || string(p) != name {
			t.Errorf("placement %s: %q, %v", name, p, err)
		}
	}
	if _, err := ParsePolicy("lifo"); err == nil || err.Error() != `unknown policy "lifo": known are backfill, fifo, conservative, shortest, las` {
		t.Errorf("lifo: %v", err)
	}
	if _, err := ParsePlacement(""); err == nil {
		t.Error("an empty placement was taken")
	}
	for h := HealthOK; h <= HealthQuarantined; h++ {
		text, _ := h.MarshalText()
		var back Health
		if err := back.UnmarshalText(text); err != nil || back != h {
			t.Errorf("health %s reads back as %s, %v", h, back, err)
		}
	}
}
