package sched

import (
	"strings"
	"testing"
	"time"

	"berth/internal/job"
)

// TestABadPlanPanics writes plans that Decide must never make.
func TestABadPlanPanics(t *testing.T) {
	on := func(g job.Grant, cards ...int) job.Grant {
		g.GPUs = cards
		return g
	}
	half := Allocation{Job: "9", Cards: []int{0}, BudgetMiB: []int64{11673}, Share: 0.5}
	for _, c := range []struct {
		says   string
		row    row
		grants []job.Grant // of jobs 1, 2, …
		bug    string
	}{
		{"a card is overbooked", row{cards: cardsOf(1000), jobs: asks(vram(600), vram(600))},
			[]job.Grant{on(job.Grant{BudgetMiB: 600}, 0), on(job.Grant{BudgetMiB: 600}, 0)}, "gpu0 is overbooked by 200 MiB"},
		{"a job that is alone is joined", row{cards: cardsOf(1000), jobs: asks(idle(1), vram(10))},
			[]job.Grant{on(job.Grant{Alone: true}, 0), on(job.Grant{BudgetMiB: 10}, 0)}, "job 1 is joined on gpu0"},
		{"an exclusive job is joined", row{cards: cardsOf(1000), held: []Allocation{{Job: "9", Cards: []int{0}, Exclusive: true}}, jobs: asks(vram(10))},
			[]job.Grant{on(job.Grant{BudgetMiB: 10}, 0)}, "job 9 is joined on gpu0"},
		{"shares pass 1", row{cards: cardsOf(gib24), held: []Allocation{half}, jobs: asks(also(share(0.6), func(s *job.Spec) { s.VRAMMiB = 10 }))},
			[]job.Grant{on(job.Grant{BudgetMiB: 10, Share: 0.6}, 0)}, "gpu0 is divided into shares of 1.1"},
		{"a paused card is given away", row{cards: with(cardsOf(1000), 0, func(c *Card) { c.Paused = true }), jobs: asks(vram(10))},
			[]job.Grant{on(job.Grant{BudgetMiB: 10}, 0)}, "gpu0 is closed (paused)"},
		{"one card is given twice", row{cards: cardsOf(1000), jobs: asks(vrams(2, 10))},
			[]job.Grant{on(job.Grant{BudgetMiB: 10}, 0, 0)}, "job 1 is given gpu0 twice"},
		{"fewer cards than asked for", row{cards: cardsOf(1000), jobs: asks(vrams(2, 10))},
			[]job.Grant{on(job.Grant{BudgetMiB: 10}, 0)}, "job 1 asked for 2 GPUs and is given 1"},
		{"a user is over the limit on jobs", row{cards: cardsOf(1000), jobs: asks(vram(10), vram(10)), users: "ann ann", lab: func(s *State) { s.DefaultLimit = Limit{Jobs: 1} }},
			[]job.Grant{on(job.Grant{BudgetMiB: 10}, 0), on(job.Grant{BudgetMiB: 10}, 0)}, "ann runs 2 jobs, the limit is 1"},
		{"a user is over the limit on GPUs", row{cards: cardsOf(1000), jobs: asks(vram(10)), users: "ann", lab: func(s *State) {
			s.Limits, s.InUse = map[string]Limit{"ann": {GPUs: 2}}, map[string]Use{"ann": {GPUs: 1.5}}
		}},
			[]job.Grant{on(job.Grant{BudgetMiB: 10}, 0)}, "ann holds 2.5 GPUs, the limit is 2"},
		{"an array is over its limit", row{cards: cardsOf(1000), jobs: asks(vram(10)), arrays: "17", atOnce: 1, lab: func(s *State) { s.ArrayRuns = map[string]int{"17": 1} }},
			[]job.Grant{on(job.Grant{BudgetMiB: 10}, 0)}, "2 tasks of array 17 run, its limit is 1"},
		{"a job that is not queued", row{cards: cardsOf(1000)},
			[]job.Grant{{}}, "job 1 is started but not queued"},
	} {
		t.Run(c.says, func(t *testing.T) {
			s := c.row.state()
			d := newDecision(&s)
			for i, g := range c.grants {
				d.plan.Starts = append(d.plan.Starts, Start{Job: string(rune('1' + i)), Grant: g})
			}
			wantPanic(t, c.bug, d.audit().assertSound)
		})
	}
}

func TestBadSnapshotsPanic(t *testing.T) {
	wantPanic(t, "two cards have the index 0", func() {
		Decide(State{Cards: []Card{cardOf(0, 10), cardOf(0, 10)}})
	})
	running := row{cards: cardsOf(gib24), held: []Allocation{{Job: "1", Cards: []int{0}, BudgetMiB: []int64{10}}}, jobs: asks(vram(10))}
	wantPanic(t, "job 1 is started while it runs", func() { Decide(running.state()) })
	running.held[0].Other = true
	if got := brief(Decide(running.state())); got != "1@0" {
		t.Errorf("another berth's job 1 is not ours: plan is %q", got)
	}
}

func wantPanic(t *testing.T, text string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if got, _ := recover().(string); !strings.HasPrefix(got, "bug: ") || !strings.Contains(got, text) {
			t.Errorf("panics with %q, want %q", got, text)
		}
	}()
	f()
}

// TestABadPlanOfRoomPanics is about who gives way, and for whom.
func TestABadPlanOfRoomPanics(t *testing.T) {
	held := []Allocation{
		running("8", hour, startsAnew, 0), running("9", hour, nil, 1),
		running("7", hour, both(startsAnew, leaving("1", time.Minute)), 2),
	}
	keeps := func(job string, cards ...int) Reservation { return Reservation{Job: job, Cards: cards, At: midday} }
	for _, c := range []struct {
		says  string
		plan  Plan
		claim []Allocation
		bug   string
	}{
		{"what does not run is preempted", Plan{Victims: []Victim{{Job: "5", For: "1", Mode: Requeue}}}, nil, "job 5 is preempted and does not run"},
		{"what leaves is preempted", Plan{Victims: []Victim{{Job: "7", For: "1", Mode: Requeue}}}, nil, "job 7 is preempted twice"},
		{"one is preempted twice", Plan{Victims: []Victim{{Job: "8", For: "1", Mode: Requeue}, {Job: "8", For: "1", Mode: Requeue}}, Reservations: []Reservation{keeps("1", 0)}},
			nil, "job 8 is preempted twice"},
		{"what does not give way is preempted", Plan{Victims: []Victim{{Job: "9", For: "1", Mode: Requeue}}}, nil, `job 9 is preempted by "requeue" and allows ""`},
		{"one is parked that cannot be", Plan{Victims: []Victim{{Job: "8", For: "1", Mode: Park}}}, nil, `job 8 is preempted by "park" and allows "requeue"`},
		{"one is preempted for nobody", Plan{Victims: []Victim{{Job: "8", For: "1", Mode: Requeue}}}, nil, "job 8 is preempted for job 1, which has no cards"},
		{"what stays is in the way", Plan{}, []Allocation{{Job: "1", Cards: []int{1}, Alone: true}}, "job 9 is joined on gpu1"},
		{"who starts is in the way of who comes", Plan{Starts: []Start{{Job: "2", Grant: job.Grant{GPUs: []int{4}, Alone: true}}}}, []Allocation{{Job: "1", Cards: []int{4}, Alone: true}}, "job 2 is joined on gpu4"},
		{"two are promised a card", Plan{}, []Allocation{{Job: "1", Cards: []int{2}, Alone: true}, {Job: "2", Cards: []int{2}, Alone: true}}, "job 1 is joined on gpu2"},
		{"a card is kept for what is not queued", Plan{Reservations: []Reservation{keeps("5", 0)}}, nil, "job 5, which is not queued"},
		{"a card is kept that is paused", Plan{Reservations: []Reservation{keeps("1", 3)}}, nil, "gpu3 is reserved for job 1, which cannot have it"},
		{"a card is kept that is not there", Plan{Reservations: []Reservation{keeps("1", 9)}}, nil, "gpu9 is reserved for job 1, which cannot have it"},
		{"too few cards are kept", Plan{Reservations: []Reservation{keeps("1")}}, nil, "job 1 asked for 1 GPUs and 0 are reserved"},
		{"cards are kept twice for one", Plan{Reservations: []Reservation{keeps("1", 0), keeps("1", 2)}}, nil, "cards are reserved for job 1, which has some already"},
		{"cards are kept in the past", Plan{Reservations: []Reservation{{Job: "1", Cards: []int{0}}}}, nil, "which is past"},
	} {
		t.Run(c.says, func(t *testing.T) {
			s := State{Now: midday, Rules: DefaultRules(), Allocations: held, Queue: queueOf(DefaultRules(), asks(idle(1), idle(1)))}
			s.Cards = with(cardsOf(gib24, gib24, gib24, gib24, gib24), 3, func(c *Card) { c.Paused = true })
			d := newDecision(&s)
			d.plan = c.plan
			for i := range c.claim {
				d.reservations = append(d.reservations, &reservation{claim: true, strength: byLongest, held: &c.claim[i]})
			}
			wantPanic(t, c.bug, d.audit().assertSound)
		})
	}
}
