package sched

import (
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/job/reason"
)

// changed changes every queued job.
func changed(change func(*Pending), then ...func(*State)) func(*State) {
	return func(s *State) {
		for _, p := range s.Queue.First(s.Queue.Len()) {
			change(&p)
			s.Queue.Add(p)
		}
		for _, f := range then {
			f(s)
		}
	}
}

func unproven(p *Pending) { p.Unproven = p.Request.Share > 0 }

// TestAFirstWaveOfSmallShares: a share that no job vouches for counts as a whole GPU
// until it is measured.
func TestAFirstWaveOfSmallShares(t *testing.T) {
	limit := func(gpus float64, use Use) func(*State) {
		return func(s *State) {
			s.DefaultLimit, s.InUse = Limit{GPUs: gpus}, map[string]Use{"ann": use}
		}
	}
	tiny, four := share(0.01), "ann ann ann ann"
	wave := asks(tiny, tiny, tiny, tiny)
	whole := idle(1)
	cards := cardsOf(gib24, gib24, gib24, gib24)
	checkRows(t, []row{
		{says: "as many start as would fit with a GPU each", cards: cards, jobs: wave, users: four, lab: changed(unproven, limit(2, Use{})), want: "1@0 2@0"},
		{says: "those that start and are not measured count", cards: cards, jobs: wave, users: four, lab: changed(unproven, limit(2, Use{Jobs: 1, GPUs: 0.01, Unmeasured: 0.99})), want: "1@0"},
		{says: "none starts while as many are not measured", cards: cards, jobs: wave, users: four, lab: changed(unproven, limit(2, Use{Jobs: 2, GPUs: 0.02, Unmeasured: 1.98})), want: ""},
		{says: "what is known starts at once", cards: cards, jobs: wave, users: four, lab: limit(2, Use{}), want: "1@0 2@0 3@0 4@0"},
		{says: "without a limit on GPUs all start", cards: cards, jobs: wave, users: four, lab: changed(unproven, limit(0, Use{})), want: "1@0 2@0 3@0 4@0"},
		{says: "one may always start that fits by what it asks for", cards: cards, jobs: wave, users: four, lab: changed(unproven, limit(2, Use{Jobs: 2, GPUs: 1.9})), want: "1@0"},
		{says: "even where the limit is less than a GPU", cards: cards, jobs: wave, users: four, lab: changed(unproven, limit(0.5, Use{})), want: "1@0"},
		{says: "not one that is over the limit by what it asks for", cards: cards, jobs: wave, users: four, lab: changed(unproven, limit(2, Use{Jobs: 2, GPUs: 2})), want: ""},
		{says: "a whole GPU waits for what is not measured too", cards: cards, jobs: asks(tiny, tiny, whole), users: "ann ann ann", lab: changed(unproven, limit(2, Use{})), want: "1@0 2@0"},
		{says: "others do not wait for it", cards: cards, jobs: asks(tiny, tiny, tiny, tiny), users: "ann ann ann bob", lab: changed(unproven, limit(2, Use{})), want: "1@0 2@0 4@0"},
	})
	s := row{cards: cards, jobs: wave, users: four, lab: changed(unproven, limit(2, Use{}))}.state()
	const want = "ann holds 2 GPUs and this job needs 1 more; the limit per user is 2 (limits.gpus_max); a share counts as a whole GPU until its memory is measured, usually within seconds"
	if why := Explain(s, "3"); why.Kind != reason.WaitsForLimit || why.String() != want {
		t.Errorf("the third waits: %s", why)
	}
}

func TestParkedJobsCountAsJobsOfTheirUser(t *testing.T) {
	full := func(s *State) {
		s.DefaultLimit, s.InUse = Limit{Jobs: 2}, map[string]Use{"ann": {Jobs: 2, Parked: 2}}
	}
	cards := cardsOf(gib24, gib24)
	checkRows(t, []row{
		{says: "no more start", cards: cards, jobs: asks(vram(100)), users: "ann", lab: full, want: ""},
		{says: "but those that are parked come back", cards: cards, jobs: asks(vram(100), vram(100)), users: "ann ann", lab: changed(func(p *Pending) { p.Parked = true }, full), want: "1@0 2@0"},
	})
	s := row{cards: cards, jobs: asks(vram(100)), users: "ann", lab: full}.state()
	if why := Explain(s, "1").String(); why != "ann already has 2 jobs, 2 of them parked; the limit per user is 2 (limits.running_jobs)" {
		t.Errorf("it waits: %s", why)
	}
	if f := Expect(s, "1"); f.None == "" && !f.Mid.After(s.Now) {
		t.Errorf("it is expected to start now: %+v", f)
	}
}

// TestCardsThatParkedJobsComeBackTo decide last, between cards that are as good.
func TestCardsThatParkedJobsComeBackTo(t *testing.T) {
	comeBack := func(mib ...int64) []Card {
		cards := cardsOf(gib24, gib24, gib24)
		for i := range mib {
			cards[i].ParkedMiB = mib[i]
		}
		return cards
	}
	spread := func(r *Rules) { r.Placement = Spread }
	busy := []Allocation{{Job: "9", Cards: []int{0}, BudgetMiB: []int64{1000}}}
	checkRows(t, []row{
		{says: "a new job goes where nobody has to come back", cards: comeBack(1500), jobs: asks(vram(100)), want: "1@1"},
		{says: "or where the least does", cards: comeBack(1500, 900, 1000), jobs: asks(vram(100)), want: "1@1"},
		{says: "also where jobs are spread", rules: spread, cards: comeBack(1500), jobs: asks(vram(100)), want: "1@1"},
		{says: "and for several cards", cards: comeBack(1500), jobs: asks(vrams(2, 100)), want: "1@1,2"},
		{says: "packing goes first", cards: comeBack(1500), held: busy, jobs: asks(vram(100)), want: "1@0"},
		{says: "and so does spreading", rules: spread, cards: comeBack(0, 1500, 1500), held: busy, jobs: asks(vram(100)), want: "1@1"},
	})
}

func TestTheHostsMemoryIsDividedAmongParkedJobs(t *testing.T) {
	of := func(user string, mib int64) func(*Allocation) {
		return func(h *Allocation) { h.User, h.Preempt.MemMiB = user, mib }
	}
	room := func(all int64, own map[string]int64) func(*State) {
		return func(s *State) { s.ParkMiB, s.ParkOfMiB = all, own }
	}
	two := func(mib int64) []Allocation {
		return []Allocation{running("8", hour, both(parkable, of("ann", mib)), 0), running("9", 2*time.Hour, both(parkable, of("bob", mib)), 1)}
	}
	one := []queuedJob{{gpus: 1, priority: 1}}
	checkOrder(t, []orderRow{
		{says: "a user's part bounds that user's jobs", cards: 2, state: room(9000, map[string]int64{"ann": 999, "bob": 1000}), held: two(1000), jobs: one, want: "9>1 1?1+20s"},
		{says: "nobody's part is large enough", cards: 2, state: room(9000, map[string]int64{"ann": 999, "bob": 999}), held: two(1000), jobs: one, want: ""},
		{says: "a part is no more than all of it", cards: 2, state: room(999, map[string]int64{"ann": 5000, "bob": 5000}), held: two(1000), jobs: one, want: ""},
		{says: "two jobs of one user share a part, so neither is parked for both GPUs", cards: 2, state: room(9000, map[string]int64{"ann": 1999}),
			held: []Allocation{running("8", hour, both(parkable, of("ann", 1000)), 0), running("9", hour, both(parkable, of("ann", 1000)), 1)},
			jobs: []queuedJob{{gpus: 2, priority: 1}}, want: "1?0,1+20s"},
		{says: "nor are both parked for two jobs", cards: 2, state: room(9000, map[string]int64{"ann": 1999}),
			held: []Allocation{running("8", hour, both(parkable, of("ann", 1000)), 0), running("9", hour, both(parkable, of("ann", 1000)), 1)},
			jobs: []queuedJob{{gpus: 1, priority: 1}, {gpus: 1, priority: 1}}, want: "8>1 1?0+20s 2?0+1m20s"},
		{says: "of two as good, the one is parked whose card waits for fewer", cards: 2, state: func(s *State) { s.Cards[1].ParkedMiB = 500 },
			held: []Allocation{running("8", hour, parkable, 0), running("9", hour, parkable, 1)}, jobs: one, want: "8>1 1?0+20s"},
		{says: "and the other way round", cards: 2, state: func(s *State) { s.Cards[0].ParkedMiB = 500 },
			held: []Allocation{running("8", hour, parkable, 0), running("9", hour, parkable, 1)}, jobs: one, want: "9>1 1?1+20s"},
	})
}

func TestWhoWaitsForACard(t *testing.T) {
	busy := []Allocation{{Job: "9", Cards: []int{0}, Alone: true, User: "bob"}, {Job: "8", Cards: []int{1}, Alone: true, User: "bob"}}
	on := func(card int) job.Spec { return ids(0, card) }
	for _, c := range []struct {
		says string
		row
		gpu0, gpu1 bool // somebody besides bob waits for it
	}{
		{"nobody", row{}, false, false},
		{"any card", row{jobs: asks(idle(1)), users: "ann"}, true, true},
		{"one's own job", row{jobs: asks(idle(1)), users: "bob"}, false, false},
		{"another's behind one's own", row{jobs: asks(idle(1), idle(1)), users: "bob ann"}, true, true},
		{"one card", row{jobs: asks(on(1)), users: "ann"}, false, true},
		{"a job without a GPU", row{jobs: asks(cpus(1)), users: "ann"}, false, false},
		{"a job that a limit holds back", row{jobs: asks(idle(1)), users: "ann", lab: func(s *State) { s.DefaultLimit, s.InUse = Limit{Jobs: 1}, map[string]Use{"ann": {Jobs: 1}} }}, false, false},
		{"a job that the host holds back", row{jobs: asks(also(idle(1), func(s *job.Spec) { s.CPUs = 3 })), users: "ann", host: Host{CPUs: 2}}, false, false},
	} {
		c.cards, c.held = cardsOf(gib24, gib24), busy
		waiting := Contended(c.state())
		if got0, got1 := waiting[0].Besides("bob"), waiting[1].Besides("bob"); got0 != c.gpu0 || got1 != c.gpu1 {
			t.Errorf("%s: gpu0 %v, gpu1 %v", c.says, got0, got1)
		}
	}
}

func TestWhySaysWhenAJobCanBeParked(t *testing.T) {
	for _, c := range []struct {
		says     string
		ran      time.Duration
		priority int
		how      func(*Allocation)
		want     string
	}{
		{"its minimum run", 36 * time.Second, 1, parkable, "job 9 can be parked for it in 44s, once it has run for 1m20s"},
		{"one that loses its work", 36 * time.Second, 1, func(h *Allocation) { h.Preempt.Mode = Requeue }, "job 9 can be stopped and queued again for it in 24s, once it has run for 1m"},
		{"one that saves its work every half hour", 18 * time.Minute, 0, func(h *Allocation) {
			h.Preempt = Preempt{Mode: Requeue, Saves: true, SavesEvery: 30 * time.Minute}
		}, "job 9 gives way at its next checkpoint, in 12m, once it has run for 30m"},
		{"a new one of the same priority", time.Minute, 0, parkable, "job 9 can be parked for it in 2m, once it has run for 3m"},
		{"it can leave at once", time.Hour, 1, parkable, ""},
		{"it cannot leave", time.Minute, 1, func(*Allocation) {}, ""},
	} {
		s := orderRow{cards: 1, held: []Allocation{running("9", c.ran, c.how, 0)}, jobs: []queuedJob{{gpus: 1, priority: c.priority}}}.snapshot()
		story, _ := Tell(s, "1")
		if got := story.Leaves.Words(s.Now); got != c.want {
			t.Errorf("%s: %q, want %q", c.says, got, c.want)
		}
	}
}

// TestWhatAGangGainsByMakingRoom: its turn comes, instead of the end of an older job.
func TestWhatAGangGainsByMakingRoom(t *testing.T) {
	saves := Preempt{Mode: Requeue, Saves: true, StopTime: 10 * time.Second}
	older := func(h *Allocation) {
		h.Preempt, h.Rank, h.Run = saves, -1, Estimate{Low: 6 * hour, Mid: 6 * hour, High: 6 * hour}
	}
	for _, c := range []struct {
		says string
		gpus int
		own  Preempt
		want time.Duration
	}{
		{"it waits for the end", 2, Preempt{}, 5*hour - 10*time.Second},
		{"it takes turns already", 2, saves, 0},
		{"with one GPU it has a turn", 1, Preempt{}, 0},
	} {
		s := orderRow{cards: 2, held: []Allocation{running("9", hour, older, 0, 1)}, jobs: []queuedJob{{gpus: c.gpus}}}.snapshot()
		p, _ := s.Queue.Get("1")
		p.Preempt = c.own
		s.Queue.Add(p)
		if got := NewPreview(s, []string{"1"}).Gain(saves); got != c.want {
			t.Errorf("%s: it gains %s, want %s", c.says, got, c.want)
		}
	}
}

func TestWhyNamesTheJobsThatCannotBeParked(t *testing.T) {
	s := orderRow{cards: 1, state: func(s *State) { s.ParkMiB = 999 },
		held: []Allocation{running("9", hour, both(parkable, func(h *Allocation) { h.Preempt.MemMiB = 1000 }), 0)}, jobs: []queuedJob{{gpus: 1, priority: 1}}}.snapshot()
	story, _ := Tell(s, "1")
	if got := story.Unparked(); got != "job 9 cannot be parked for it: parked jobs may take no more host memory (scheduling.park_memory, limits.parked_memory)" {
		t.Errorf("why: %q", got)
	}
	s.ParkMiB = 1000
	if story, _ := Tell(s, "1"); story.NotParked != nil {
		t.Errorf("why with room: %q", story.Unparked())
	}
}
