package sched

import (
	"testing"
	"time"
)

// TestSharesAreLent: beyond their share, users have what nobody else waits for.
func TestSharesAreLent(t *testing.T) {
	// share is a machine of users with so many GPUs each, who take turns by nothing else.
	share := func(gpus float64) func(*State) {
		return func(s *State) {
			s.DefaultLimit.Share, s.InUse = gpus, map[string]Use{}
			for i := range s.Allocations {
				h := &s.Allocations[i]
				use := s.InUse[h.User]
				use.Add(h)
				s.InUse[h.User] = use
			}
		}
	}
	and := func(changes ...func(*State)) func(*State) {
		return func(s *State) {
			for _, change := range changes {
				change(s)
			}
		}
	}
	most := func(gpus float64) func(*State) { return func(s *State) { s.DefaultLimit.GPUs = gpus } }
	noTurns := func(r *Rules) { r.BorrowTime, r.Slice = 4*time.Hour, false }
	turns := func(r *Rules) { r.BorrowTime = 4 * time.Hour }
	ann := func(h *Allocation) { h.User = "ann" }
	one, two := queuedJob{user: "bob", gpus: 1}, queuedJob{user: "bob", gpus: 2}
	stays := func(j queuedJob, limit time.Duration) queuedJob { j.stays, j.limit = true, limit; return j }
	anns := func(j queuedJob) queuedJob { j.user = "ann"; return j }
	rows := []orderRow{
		{says: "a user who is alone has all GPUs", cards: 4, jobs: []queuedJob{one, one, one, one}, state: share(2), want: "1@0 2@1 3@2 4@3"},
		{says: "but no more than may ever be", cards: 4, jobs: []queuedJob{one, one, one, one}, state: and(share(2), most(3)), want: "1@0 2@1 3@2"},
		{says: "a job that is larger than the share runs too", cards: 2, jobs: []queuedJob{two}, state: share(1), want: "1@0,1"},
		{says: "first all have their share, then one has more", cards: 4, jobs: []queuedJob{one, one, one, anns(one), anns(one)}, state: share(2), want: "1@0 2@1 4@2 5@3 3?0+1m0s"},
		{says: "nothing is lent while somebody below their share waits", cards: 3, jobs: []queuedJob{one, anns(two)}, state: share(2),
			held: []Allocation{running("8", hour, nil, 0), running("9", hour, nil, 1)}, want: "2?0,1+1h0m0s"},
		{says: "unless they wait for another GPU", cards: 3, jobs: []queuedJob{{user: "bob", gpus: 1}, anns(one)},
			state: and(share(2), func(s *State) {
				for job, ids := range map[string]string{"1": "2", "2": "0"} {
					p, _ := s.Queue.Get(job)
					p.Request.IDs = ids
					s.Queue.Add(p)
				}
			}),
			held: []Allocation{running("8", hour, nil, 0), running("9", hour, nil, 1)}, want: "1@2 2?0+1h0m0s"},
		{says: "a job that waits for a paused GPU delays no other job", cards: 3, jobs: []queuedJob{one, anns(two)},
			state: and(share(2), func(s *State) { s.Cards[0].Paused, s.Cards[1].Paused = true, true }),
			held:  []Allocation{running("8", hour, nil, 0), running("9", hour, nil, 1)}, want: "1@2"},
		{says: "a job that waits for its group delays no other job", cards: 3, jobs: []queuedJob{one, anns(two)},
			state: and(share(2), func(s *State) {
				s.Groups = map[GroupName]Group{{"ann", ""}: {PausedBy: "ann"}}
			}),
			held: []Allocation{running("8", hour, nil, 0), running("9", hour, nil, 1)}, want: "1@2"},
		{says: "what is borrowed gives way", cards: 2, jobs: []queuedJob{anns(one)}, state: share(1),
			held: []Allocation{running("8", hour, parkable, 0), running("9", 2*hour, both(parkable, func(h *Allocation) { h.Seq = -50 }), 1)}, want: "9>1 1?1+20s"},
		{says: "even if its work is lost", cards: 2, jobs: []queuedJob{anns(one)}, state: share(1),
			held: []Allocation{running("8", hour, startsAnew, 0), running("9", 2*hour, startsAnew, 1)}, want: "8>1 1?0+10s"},
		{says: "after its minimum run", cards: 2, jobs: []queuedJob{anns(one)}, state: share(1),
			held: []Allocation{running("8", 20*time.Second, startsAnew, 0), running("9", 2*hour, startsAnew, 1)}, want: "1?0+50s", again: 40 * time.Second},
		{says: "not to a lower priority", cards: 2, jobs: []queuedJob{anns(one)}, state: share(1),
			held: []Allocation{running("8", hour, both(startsAnew, func(h *Allocation) { h.Priority = 1 }), 0), running("9", 2*hour, both(startsAnew, func(h *Allocation) { h.Priority = 1 }), 1)}, want: "1?0+1h0m0s"},
		{says: "not to a job without a GPU", cards: 2, jobs: []queuedJob{{user: "ann", cpus: 1}}, state: and(share(1), func(s *State) { s.Host.CPUs = 2 }),
			held: []Allocation{running("8", hour, both(parkable, func(h *Allocation) { h.CPUs = 1 }), 0), running("9", 2*hour, both(parkable, func(h *Allocation) { h.CPUs = 1 }), 1)}, want: "1?+1h0m0s"},
		{says: "what is within a share does not", cards: 2, jobs: []queuedJob{anns(one)}, state: share(2),
			held: []Allocation{running("8", hour, parkable, 0), running("9", 2*hour, parkable, 1)}, want: "1?0+1h0m0s"},
		{says: "one who has their share takes none of another's", cards: 2, jobs: []queuedJob{anns(one)}, state: share(1), rules: turns,
			held: []Allocation{running("8", hour, both(parkable, ann), 0), running("9", hour, parkable, 1)}, want: ""},
		{says: "nor of what another borrowed, but in turn", cards: 3, jobs: []queuedJob{anns(one)}, state: share(1),
			held: []Allocation{running("7", hour, both(parkable, ann), 0), running("8", hour, parkable, 1), running("9", hour, parkable, 2)}, want: "1?0+1h0m0s"},
		{says: "what is borrowed is used in turn", cards: 3, jobs: []queuedJob{anns(one)}, state: share(1), rules: turns,
			held: []Allocation{running("7", hour, both(parkable, ann), 0), running("8", hour, parkable, 1), running("9", hour, parkable, 2)}, want: "8>1 1?1+20s"},
		{says: "what cannot give way fills the share first", cards: 2, jobs: []queuedJob{anns(one)}, state: share(1),
			held: []Allocation{running("8", 2*hour, parkable, 0), running("9", hour, nil, 1)}, want: "8>1 1?0+20s"},
		{says: "a small job is within the share that a large one exceeds", cards: 3, jobs: []queuedJob{anns(one)}, state: share(1),
			held: []Allocation{running("8", 2*hour, parkable, 0, 1), running("9", hour, both(parkable, func(h *Allocation) { h.Seq = -200 }), 2)}, want: "8>1 1?0+20s"},
		{says: "what leaves already is not borrowed", cards: 2, jobs: []queuedJob{anns(one), {user: "eve", gpus: 1}}, state: share(1),
			held: []Allocation{running("8", hour, both(startsAnew, leaving("1", 5*time.Second)), 0), running("9", hour, startsAnew, 1)}, want: "1?0+5s 2?0+1m5s"},
		{says: "what cannot give way is not borrowed", cards: 2, jobs: []queuedJob{stays(one, 0), stays(one, 0)}, state: share(1), want: "1@0"},
		{says: "unless it ends soon", cards: 4, jobs: []queuedJob{stays(one, 0), stays(one, 4*hour+12*time.Minute), stays(one, 4*hour+13*time.Minute)}, state: share(1), want: "1@0 2@1"},
		{says: "or never, where no time is short enough", cards: 2, rules: func(r *Rules) { r.BorrowTime = -1 }, jobs: []queuedJob{stays(one, 1), stays(one, 1)}, state: share(1), want: "1@0"},
		{says: "and what could never start is refused", cards: 2, jobs: []queuedJob{stays(two, 0), stays(two, hour)}, state: share(1), want: "2@0,1 !1"},
		{says: "of those beyond their share the first has GPUs reserved", cards: 2, jobs: []queuedJob{two, {user: "ann", gpus: 1, run: 2 * hour}, {user: "ann", gpus: 1, run: 50 * time.Second}}, state: share(0.5),
			held: []Allocation{running("9", hour, both(parkable, lasting(hour+time.Minute), func(h *Allocation) { h.User = "eve" }), 0)}, want: "3@1 1?0,1+1m0s"},
		{says: "one that could never run within the share has its turn", cards: 2, jobs: []queuedJob{{user: "bob", gpus: 2, since: DefaultMaxBypass}, anns(one)}, state: share(1),
			held: []Allocation{running("9", hour, both(parkable, ann), 0)}, want: "9>1 1?0,1+20s 2?0+1m20s"},
		{says: "one that could waits for its own user", cards: 2, jobs: []queuedJob{{user: "bob", gpus: 1, since: DefaultMaxBypass}, anns(one)}, state: share(1),
			held: []Allocation{running("9", hour, parkable, 0)}, want: "2@1 1?1+1m0s"},
		{says: "under fifo a job beyond the share delays no other job", cards: 2, rules: func(r *Rules) { noTurns(r); r.Policy = FIFO }, jobs: []queuedJob{two, anns(one)}, state: share(1), want: "2@0"},
	}
	for i := range rows {
		if rows[i].rules == nil {
			rows[i].rules = noTurns
		}
	}
	checkOrder(t, rows)
}

// TestAnOverdueJobThatWouldBeBorrowedIsExplainedInItsTurn: one whose user is beyond
// their share is considered after the jobs of others, overdue or not.
func TestAnOverdueJobThatWouldBeBorrowedIsExplainedInItsTurn(t *testing.T) {
	s := State{
		Now: sundayNoon, Rules: DefaultRules(), Cards: cardsOf(1000), Queue: NewQueue(),
		DefaultLimit: Limit{Share: 1}, InUse: map[string]Use{"cay": {Unmeasured: 1}},
	}
	s.Queue.Add(Pending{Job: "late", User: "cay", Request: Request{GPUs: 1}, Since: sundayNoon.Add(-2 * DefaultMaxBypass)})
	s.Queue.Add(Pending{Job: "new", User: "ann", Seq: 1, Request: Request{GPUs: 1}, Since: sundayNoon})
	s.Queue.SetRules(s.Rules)
	s.Queue.Tick(sundayNoon)
	if plan := Decide(s); brief(plan) != "new@0" {
		t.Fatalf("%s starts", brief(plan))
	}
	if alone, all := Explain(s, "late"), Reasons(s, []string{"late"})[0]; alone.String() != all.String() {
		t.Errorf("alone it is said that it %s, and with others that it %s", alone, all)
	}
}

// TestAHardLimitAsLowAsTheShareIsNamed: it is what holds a job back that could borrow.
func TestAHardLimitAsLowAsTheShareIsNamed(t *testing.T) {
	s := State{
		Now: sundayNoon, Rules: DefaultRules(), Cards: cardsOf(1000, 1000), Queue: NewQueue(),
		DefaultLimit: Limit{Share: 1, GPUs: 1}, InUse: map[string]Use{"cay": {Jobs: 1, GPUs: 1}},
	}
	s.Queue.Add(Pending{Job: "1", User: "cay", Request: Request{GPUs: 1}, Since: sundayNoon})
	s.Queue.SetRules(s.Rules)
	if why := Explain(s, "1"); why.LimitGPUs != 1 || why.LimitIsShare {
		t.Error(why)
	}
}
