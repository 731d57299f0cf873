package sched

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/job/reason"
)

// urgently is the same with a priority.
func urgently(spec job.Spec, priority int) job.Spec {
	spec.Priority = priority
	return spec
}

// TestWaitsInOneLine is what people read for each kind of wait.
func TestWaitsInOneLine(t *testing.T) {
	const hour = time.Hour
	one, hours := idle(1), Estimate{Low: 2 * hour, Mid: 2 * hour, High: 2 * hour}
	taken := []Allocation{runningFor("9", hour, hours, 0, 0)}
	for _, row := range []struct {
		says  string
		rules func(*Rules)
		cards []Card
		held  []Allocation
		jobs  []expecting
		job   string
		lab   func(*State)
		want  string
	}{
		{says: "nothing keeps it", cards: eight(), jobs: []expecting{{spec: one}}, job: "1",
			want: "fits; it starts next; expected to start now"},
		{says: "it is first, and waits for a card", cards: eight()[:1], held: taken, jobs: []expecting{{spec: one}}, job: "1",
			want: "needs an idle GPU; gpu0 runs job 9; expected to start about 13:00, from earlier runs of 1 running job"},
		{says: "it waits behind a higher priority", cards: eight()[:1], held: taken, jobs: []expecting{{spec: one, user: "ann"}, {spec: urgently(one, 5), user: "bob", run: hours}}, job: "1",
			want: "waits behind job 2 (bob, priority 5) for an idle GPU; expected to start about 15:00, from earlier runs of 2 jobs"},
		{says: "it waits behind one of the same user", cards: cardsOf(gib24, gib24), held: []Allocation{runningFor("9", hour, hours, 0, 0, 1)}, jobs: []expecting{{spec: vrams(2, 18432), user: "ann", run: hours}, {spec: vrams(2, 18432), user: "ann"}}, job: "2",
			want: "waits behind job 1 (ann) for 2 GPUs with 18432 MiB each; expected to start about 15:00, from earlier runs of 2 jobs"},
		{says: "what it may not pass is said under fifo", rules: fifo, cards: eight()[:2], held: taken, jobs: []expecting{{spec: idle(2), run: hours}, {spec: one}}, job: "2",
			want: "waits behind job 1, which needs 2 idle GPUs; gpu0 runs job 9, gpu1 is idle; expected to start about 15:00, from earlier runs of 2 jobs"},
		{says: "a card that is kept is said with for whom", cards: eight()[:2], held: taken, jobs: []expecting{{spec: idle(2), run: hours}, {spec: one, run: Estimate{Low: 9 * hour, Mid: 9 * hour, High: 9 * hour}}}, job: "2",
			want: "waits behind job 1 for an idle GPU; expected to start about 15:00, from earlier runs of 2 jobs"},
		{says: "a limit is told, and no time", cards: eight(), jobs: []expecting{{spec: one, user: "ann"}}, job: "1",
			lab:  func(s *State) { s.DefaultLimit, s.InUse = Limit{Jobs: 1}, map[string]Use{"ann": {Jobs: 1}} },
			want: "ann already runs 1 job; the limit per user is 1 (limits.running_jobs); it starts once its user is below the limit"},
		{says: "a paused machine is told, whoever is in front", cards: with(eight()[:1], 0, func(c *Card) { c.Paused = true }), jobs: []expecting{{spec: one}, {spec: one}}, job: "2",
			want: "needs an idle GPU; gpu0 is paused; its start cannot be estimated until enough of its GPUs are available"},
		{says: "what can never run is told", cards: eight(), jobs: []expecting{{spec: idle(9)}}, job: "1",
			want: "asks for 9 GPUs; this machine has 8; it can never start here"},
		{says: "cpus are waited for like cards", jobs: []expecting{{spec: cpus(3)}}, held: []Allocation{{Job: "9", CPUs: 2, Started: sundayNoon, Limit: hour}}, job: "1",
			lab:  func(s *State) { s.Host = Host{CPUs: 4} },
			want: "needs 3 CPUs; 2 of 4 are free; expected to start between now and 13:00, from the time limit of 1 running job"},
	} {
		t.Run(row.says, func(t *testing.T) {
			rules := DefaultRules()
			if row.rules != nil {
				row.rules(&rules)
			}
			s := forecastState(rules, row.cards, row.held, row.jobs)
			if row.lab != nil {
				row.lab(&s)
			}
			story, ok := Tell(s, row.job)
			if got := story.String(); got != row.want || !ok {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
		})
	}
}

// TestWhyOneGoesFirst: each rule of the order has its words.
func TestWhyOneGoesFirst(t *testing.T) {
	const hour = time.Hour
	hours := Estimate{Low: 2 * hour, Mid: 2 * hour, High: 2 * hour}
	base := func(user string, seq int64) Pending {
		return Pending{User: user, Seq: seq, Since: sundayNoon.Add(-time.Minute), Request: Request{GPUs: 1}, Run: hours}
	}
	for _, row := range []struct {
		says        string
		rules       func(*Rules)
		first, then func(*Pending)
		usage       map[string]float64
		want        reason.First
		words       string
	}{
		{says: "submitted earlier", want: reason.FirstEarlier, words: "it was submitted earlier"},
		{says: "priority", first: func(p *Pending) { p.Priority, p.Seq = 3, 9 }, want: reason.FirstPriority, words: "its priority (3) is higher"},
		{says: "passed for too long, whatever its priority", first: func(p *Pending) { p.Priority, p.Since = -1, sundayNoon.Add(-DefaultMaxBypass) },
			want: reason.FirstOvertaken, words: "it has reached the overtake limit"},
		{says: "its user had less", rules: fair, first: func(p *Pending) { p.User, p.Seq = "bob", 9 }, usage: map[string]float64{"ann": 72000, "bob": 18000},
			want: reason.FirstUser, words: "bob has used less: 5 GPU hours recently, against 20 by this job's user"},
		{says: "had less service", first: func(p *Pending) { p.Seq = 9 }, then: func(p *Pending) { p.RanBefore = hour }, want: reason.FirstService, words: "it has received less GPU time so far"},
		{says: "set aside and waited for long", first: func(p *Pending) { p.Seq, p.RanBefore, p.Since = 9, hour, sundayNoon.Add(-5*hour) }, then: func(p *Pending) { p.RanBefore = hour },
			want: reason.FirstWaited, words: "it was preempted and has waited a long time since"},
		{says: "both waited for long, and it had less than a while", first: func(p *Pending) { p.Seq, p.RanBefore, p.Since = 9, 40*time.Minute, sundayNoon.Add(-3*hour) }, then: func(p *Pending) { p.RanBefore, p.Since = hour, sundayNoon.Add(-9*hour) },
			want: reason.FirstService, words: "it has received less GPU time so far"},
		{says: "neither had a while, and it was due first", first: func(p *Pending) { p.Seq, p.RanBefore, p.Since = 9, 40*time.Minute, sundayNoon.Add(-4*hour) }, then: func(p *Pending) { p.RanBefore, p.Since = 40*time.Minute, sundayNoon.Add(-3*hour) },
			want: reason.FirstWaited, words: "it was preempted and has waited a long time since"},
		{says: "both waited for long, and it for longer in all", first: func(p *Pending) {
			p.Seq, p.RanBefore, p.Since, p.Submitted = 9, hour, sundayNoon.Add(-5*hour), sundayNoon.Add(-20*hour)
		}, then: func(p *Pending) {
			p.RanBefore, p.Since, p.Submitted = hour, sundayNoon.Add(-9*hour), sundayNoon.Add(-10*hour)
		}, want: reason.FirstWaited, words: "it was preempted and has waited a long time since"},
		{says: "what had much goes by the time, whoever's it is", rules: fair, first: func(p *Pending) { p.User, p.RanBefore = "bob", hour }, then: func(p *Pending) { p.RanBefore = hour }, usage: map[string]float64{"ann": 7200, "bob": 1800},
			want: reason.FirstEarlier, words: "it was submitted earlier"},
		{says: "shorter", rules: func(r *Rules) { r.Policy = Shortest }, first: func(p *Pending) { p.Seq, p.Run = 9, aboutLong(time.Minute) }, want: reason.FirstShorter, words: "it is expected to need less GPU time"},
		{says: "had less, under las", rules: func(r *Rules) { r.Policy = LAS }, first: func(p *Pending) { p.Seq = 9 }, then: func(p *Pending) { p.RanBefore = hour }, want: reason.FirstService, words: "it has received less GPU time so far"},
	} {
		t.Run(row.says, func(t *testing.T) {
			rules := DefaultRules()
			if row.rules != nil {
				row.rules(&rules)
			}
			s := forecastState(rules, eight()[:1], []Allocation{runningFor("9", hour, hours, 0, 0)}, nil)
			s.Usage = row.usage
			first, then := base("ann", 1), base("ann", 2)
			first.Job, then.Job = "first", "then"
			for p, change := range map[*Pending]func(*Pending){&first: row.first, &then: row.then} {
				if change != nil {
					change(p)
				}
				s.Queue.Add(*p)
			}
			s.Queue.Tick(sundayNoon)
			story, _ := Tell(s, "then")
			if b := story.Behind; b == nil || b.ID != "first" || b.First != row.want || b.Because != row.words {
				t.Errorf("%+v %s", b, story)
			}
			if story, _ = Tell(s, "first"); story.Behind != nil || story.Position != 1 {
				t.Errorf("the first: %+v", story)
			}
		})
	}
}

// TestOnlyTheOldestOfAUserWasPassedForTooLong: another of its jobs goes first
// for reasons of its own.
func TestOnlyTheOldestOfAUserWasPassedForTooLong(t *testing.T) {
	s := forecastState(DefaultRules(), eight()[:1], []Allocation{runningFor("9", time.Hour, exactly(2*time.Hour), 0, 0)}, nil)
	for i, p := range []Pending{
		{Job: "old", User: "ann", Priority: -1, Since: sundayNoon.Add(-DefaultMaxBypass - time.Hour)},
		{Job: "young", User: "ann", Priority: 3, Since: sundayNoon},
		{Job: "then", User: "bob", Since: sundayNoon},
	} {
		p.Seq, p.Request, p.Run = int64(i), Request{GPUs: 1}, exactly(time.Hour)
		s.Queue.Add(p)
	}
	s.Queue.Tick(sundayNoon)
	story, _ := Tell(s, "then")
	if b := story.Behind; b == nil || b.ID != "young" || b.First != reason.FirstPriority || story.Position != 3 {
		t.Errorf("%+v %s", b, story)
	}
	if story, _ = Tell(s, "young"); story.Behind == nil || story.Behind.First != reason.FirstOvertaken {
		t.Errorf("%+v %s", story.Behind, story)
	}
}

// TestTheStoryOfEachCard: what is missing, and who holds it.
func TestTheStoryOfEachCard(t *testing.T) {
	const hour = time.Hour
	cards := cardsOf(gib24, gib24, gib24, gib24, gib24)
	cards[2].Paused = true
	cards[3].Health, cards[3].HealthReason = HealthQuarantined, "Xid 79"
	held := []Allocation{
		{Job: "12", User: "bob", Cards: []int{0}, BudgetMiB: []int64{10000}, Started: sundayNoon.Add(-hour), Limit: 3 * hour},
		{Job: "7", User: "ann", Cards: []int{0, 1}, BudgetMiB: []int64{8000, 8000}, Started: sundayNoon.Add(-2 * hour), Run: Estimate{Low: hour, Mid: 3 * hour, High: 4 * hour}},
		{Job: "x", Cards: []int{1}, Alone: true, Other: true},
	}
	s := forecastState(DefaultRules(), cards, held, []expecting{{spec: also(vrams(2, 18432), func(s *job.Spec) { s.Allow = []int{0, 1, 2, 3} }), user: "cay"}})
	story, _ := Tell(s, "1")
	var got strings.Builder
	for _, c := range story.Cards {
		fmt.Fprintf(&got, "gpu%d: %s\n", c.GPU, c.What)
		for _, h := range c.Runs {
			fmt.Fprintf(&got, "  %s %s %d alone=%v other=%v since %s until %s %s %s by %s\n", h.ID, h.User, h.BudgetMiB, h.Alone, h.Other,
				clockOf(h.Since), clockOf(h.Low), clockOf(h.Mid), clockOf(h.High), h.By)
		}
	}
	want := `gpu0: 6064 MiB free, 12368 more needed
  7 ann 8000 alone=false other=false since 10:00 until 12:00 13:00 14:00 by history
  12 bob 10000 alone=false other=false since 11:00 until 12:00 13:00 14:00 by limit
gpu1: in use by a job that does not share it
  x  0 alone=true other=true since – until 12:00 – – by none
  7 ann 8000 alone=false other=false since 10:00 until 12:00 13:00 14:00 by history
gpu2: paused
gpu3: quarantined: Xid 79
gpu4: not among the GPUs it asks for
`
	if got.String() != want {
		t.Errorf("got\n%s\nwant\n%s", got.String(), want)
	}
}

func clockOf(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.Format("15:04")
}

// TestAReservationIsTold: for when, on which cards, and who gives way.
func TestAReservationIsTold(t *testing.T) {
	const hour = time.Hour
	exact := Estimate{Low: 2 * hour, Mid: 2 * hour, High: 2 * hour}
	s := forecastState(DefaultRules(), eight()[:2], []Allocation{runningFor("9", hour, exact, 0, 0)}, []expecting{{spec: idle(2), user: "ann"}, {spec: idle(1), run: Estimate{Low: 9 * hour, Mid: 9 * hour, High: 9 * hour}}})
	story, _ := Tell(s, "1")
	if k := story.Kept; k == nil || !k.At.Equal(sundayNoon.Add(hour)) || len(k.Cards) != 2 || story.Expected.Mid != k.At || story.OldestSince.IsZero() {
		t.Errorf("%+v %+v", story.Kept, story.Expected)
	}
	story, _ = Tell(s, "2")
	if b := story.Behind; b == nil || !b.Kept || b.ID != "1" || story.Cards[1].KeptFor != "1" || story.Cards[1].What != "reserved for job 1" {
		t.Errorf("%+v %+v", story.Behind, story.Cards)
	}
	leaving := runningFor("9", hour, exact, 0, 0)
	leaving.BeingPreempted, leaving.PreemptedFor, leaving.FreeBy = true, "1", sundayNoon.Add(30*time.Second)
	s = forecastState(DefaultRules(), eight()[:1], []Allocation{leaving}, []expecting{{spec: idle(1)}})
	if story, _ = Tell(s, "1"); len(story.Victims) != 1 || story.Victims[0] != "9" || story.Cards[0].Runs[0].LeavesFor != "1" {
		t.Errorf("%+v", story)
	}
}
