package sched

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"berth/internal/job"
	"berth/internal/job/reason"
	"berth/internal/tests/testkit"
)

// sundayNoon is now in the tables.
var sundayNoon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func aboutLong(d time.Duration) Estimate { return Estimate{Low: d / 2, Mid: d, High: 2 * d} }

func guessed(d time.Duration) Estimate {
	guess := aboutLong(d)
	guess.Guess = true
	return guess
}

// expecting is a queued job of a forecast's table.
type expecting struct {
	spec  job.Spec
	user  string
	run   Estimate
	limit time.Duration

	served time.Duration
	array  string
	atOnce int
	group  string
}

// Expect is when a waiting job is expected to start.
func Expect(s State, job string) reason.Forecast { return NewPreview(s, []string{job}).forecasts()[0] }

func exactly(d time.Duration) Estimate { return Estimate{Low: d, Mid: d, High: d} }

// preemptible is the same run, which gives way within ten seconds.
func preemptible(h Allocation) Allocation {
	h.Preempt = Preempt{Mode: Requeue, StopTime: 10 * time.Second}
	return h
}

// runningFor is a run on cards of its own, under way for so long.
func runningFor(id string, ago time.Duration, run Estimate, limit time.Duration, cards ...int) Allocation {
	return Allocation{Job: id, User: "bob", Cards: cards, Alone: true, Started: sundayNoon.Add(-ago), Run: run, Limit: limit}
}

func forecastState(rules Rules, cards []Card, held []Allocation, jobs []expecting) State {
	s := State{Now: sundayNoon, Rules: rules, Cards: cards, Allocations: held, Queue: NewQueue()}
	s.Queue.SetRules(rules)
	for i, w := range jobs {
		s.Queue.Add(Pending{
			Job: fmt.Sprint(i + 1), User: w.user, Priority: w.spec.Priority, Rank: int64(i), Seq: int64(i),
			Request: NewRequest(w.spec, w.spec.VRAMMiB, rules), Since: sundayNoon.Add(-time.Hour), Run: w.run, Limit: w.limit,
			RanBefore: w.served, Array: w.array, ArrayLimit: w.atOnce, Group: w.group,
		})
	}
	s.Queue.Tick(sundayNoon)
	return s
}

func TestForecast(t *testing.T) {
	const hour = time.Hour
	one, two := idle(1), idle(2)
	none := Estimate{}
	for _, row := range []struct {
		says  string
		cards []Card
		held  []Allocation
		jobs  []expecting
		job   string // 1 unless it says
		rules func(*Rules)
		lab   func(*State)
		want  string
	}{
		{says: "an idle machine starts a job now", cards: eight(), jobs: []expecting{{spec: one}},
			want: "expected to start now"},
		{says: "a job waits for the end that history tells", cards: eight()[:1], held: []Allocation{runningFor("9", hour, aboutLong(2*hour), 0, 0)}, jobs: []expecting{{spec: one}},
			want: "expected to start between now and 15:00, from earlier runs of 1 running job"},
		{says: "the load that a run makes ends with it", cards: with(eight()[:1], 0, func(c *Card) { c.UtilPct = 99 }), rules: func(r *Rules) { r.LoadThreshold, r.LoadAlways = 0.5, true },
			held: []Allocation{runningFor("9", hour, aboutLong(2*hour), 0, 0)}, jobs: []expecting{{spec: one}},
			want: "expected to start between now and 15:00, from earlier runs of 1 running job"},
		{says: "a limit is the latest", cards: eight()[:1], held: []Allocation{runningFor("9", hour, none, 3*hour, 0)}, jobs: []expecting{{spec: one}},
			want: "expected to start between now and 14:00, from the time limit of 1 running job"},
		{says: "of a run that nothing is known of there is no latest", cards: eight()[:1], held: []Allocation{runningFor("9", hour, none, 0, 0)}, jobs: []expecting{{spec: one}},
			want: "expected to start about 13:00; 1 running job has no time estimate"},
		{says: "a run that outlasts what was known is one of those", cards: eight()[:1], held: []Allocation{runningFor("9", 10*hour, aboutLong(hour), 0, 0)}, jobs: []expecting{{spec: one}},
			want: "expected to start about 22:00; 1 running job has no time estimate"},
		{says: "the day is said where it is another", cards: eight()[:1], held: []Allocation{runningFor("9", 20*hour, none, 44*hour, 0)}, jobs: []expecting{{spec: one}},
			want: "expected to start between now and 2026-03-02 12:00, from the time limit of 1 running job"},
		{says: "and the date where it is far", cards: eight()[:1], held: []Allocation{runningFor("9", 0, none, 240*hour, 0)}, jobs: []expecting{{spec: one}},
			want: "expected to start between now and 2026-03-11 12:00, from the time limit of 1 running job"},
		{says: "seconds are said of what is near", cards: eight()[:1], held: []Allocation{runningFor("9", 2*time.Minute, Estimate{Low: 3 * time.Minute, Mid: 4 * time.Minute, High: 5 * time.Minute}, 0, 0)}, jobs: []expecting{{spec: one}},
			want: "expected to start between 12:01:00 and 12:03:00, from earlier runs of 1 running job"},
		{says: "a guess is called one", cards: eight()[:1], held: []Allocation{runningFor("9", 2*hour, guessed(3*hour), 0, 0)}, jobs: []expecting{{spec: one}},
			want: "expected to start between now and 16:00, from a guess at 1 running job (by other jobs of the same user)"},
		{says: "a guess beside what is known", cards: eight()[:1], held: []Allocation{runningFor("9", 0, guessed(hour), 0, 0)}, jobs: []expecting{{spec: one, run: aboutLong(hour)}, {spec: one, limit: hour}, {spec: one}}, job: "3",
			want: "expected to start between 13:00 and 17:00, from the time limit of 1 job, earlier runs of 1 and a guess at 1 (by other jobs of the same user)"},
		{says: "those in front come first", cards: eight()[:1], held: []Allocation{runningFor("9", hour, aboutLong(2*hour), 0, 0)}, jobs: []expecting{{spec: one, run: aboutLong(hour)}, {spec: one}}, job: "2",
			want: "expected to start between 12:30 and 17:00, from earlier runs of 2 jobs"},
		{says: "limits and history are told apart", cards: eight()[:1], held: []Allocation{runningFor("9", hour, none, 2*hour, 0)}, jobs: []expecting{{spec: one, run: aboutLong(hour)}, {spec: one}}, job: "2",
			want: "expected to start between 12:30 and 15:00, from the time limit of 1 job and earlier runs of 1"},
		{says: "one in front that is not known counts as the others do", cards: eight()[:1], held: []Allocation{runningFor("9", hour, aboutLong(2*hour), 0, 0)}, jobs: []expecting{{spec: one}, {spec: one}}, job: "2",
			want: "expected to start about 15:00, from earlier runs of 1 job; 1 job has no time estimate"},
		{says: "two cards take two in front at a time", cards: eight()[:2], held: []Allocation{runningFor("9", hour, none, 2*hour, 0), runningFor("8", hour, none, 2*hour, 1)},
			jobs: []expecting{{spec: one, limit: hour}, {spec: one, limit: hour}, {spec: one}}, job: "3",
			want: "expected to start between now and 14:00, from the time limits of 4 jobs"},
		{says: "a job for two waits for both", cards: eight()[:2], held: []Allocation{runningFor("9", hour, none, 2*hour, 0), runningFor("8", hour, none, 4*hour, 1)}, jobs: []expecting{{spec: two}},
			want: "expected to start between now and 15:00, from the time limits of 2 running jobs"},
		{says: "a card that is named is waited for", cards: eight()[:2], held: []Allocation{runningFor("9", hour, none, 2*hour, 0), runningFor("8", hour, none, 4*hour, 1)}, jobs: []expecting{{spec: ids(100, 1)}},
			want: "expected to start between now and 15:00, from the time limits of 2 running jobs"},
		{says: "memory is shared: the first end makes room enough", cards: cardsOf(gib24),
			held: []Allocation{
				{Job: "9", Cards: []int{0}, BudgetMiB: []int64{10000}, Started: sundayNoon, Limit: hour},
				{Job: "8", Cards: []int{0}, BudgetMiB: []int64{10000}, Started: sundayNoon, Limit: 4 * hour}},
			jobs: []expecting{{spec: vram(12000)}}, want: "expected to start between now and 13:00, from the time limits of 2 running jobs"},
		{says: "of shares four quarters begin together", cards: cardsOf(gib24), held: []Allocation{runningFor("9", 0, none, hour, 0)},
			jobs: []expecting{{spec: share(.25), limit: hour}, {spec: share(.25), limit: hour}, {spec: share(.25), limit: hour}, {spec: share(.25)}}, job: "4",
			want: "expected to start between now and 13:00, from the time limits of 4 jobs"},
		{says: "and a fifth after them", cards: cardsOf(gib24), held: []Allocation{runningFor("9", 0, none, hour, 0)},
			jobs: []expecting{{spec: share(.25), limit: hour}, {spec: share(.25), limit: hour}, {spec: share(.25), limit: hour}, {spec: share(.25), limit: hour}, {spec: share(.25)}}, job: "5",
			want: "expected to start between now and 14:00, from the time limits of 5 jobs"},
		{says: "under fifo nobody passes the one in front", rules: fifo, cards: eight()[:2], held: []Allocation{runningFor("9", 0, Estimate{Low: hour, Mid: hour, High: hour}, 0, 0)},
			jobs: []expecting{{spec: two, run: Estimate{Low: hour, Mid: hour, High: hour}}, {spec: one}}, job: "2",
			want: "expected to start about 14:00, from earlier runs of 2 jobs"},
		{says: "host memory is waited for too", cards: nil, held: []Allocation{{Job: "9", MemMiB: 60, CPUs: 1, Started: sundayNoon, Limit: hour}},
			jobs: []expecting{{spec: job.Spec{MemMiB: 50}}}, lab: func(s *State) { s.Host = Host{CPUs: 4, MemMiB: 100} },
			want: "expected to start between now and 13:00, from the time limit of 1 running job"},
		{says: "a job that leaves is gone when it said", cards: eight()[:1],
			held: []Allocation{{Job: "9", Cards: []int{0}, Alone: true, Started: sundayNoon.Add(-hour), BeingPreempted: true, PreemptedFor: "1", FreeBy: sundayNoon.Add(20 * time.Second)}},
			jobs: []expecting{{spec: one}}, want: "expected to start about 12:00:20, from earlier runs of 1 running job"},
		{says: "a paused machine starts nothing", cards: with(eight()[:1], 0, func(c *Card) { c.Paused = true }), jobs: []expecting{{spec: one}},
			want: "its start cannot be estimated until enough of its GPUs are available"},
		{says: "a card that is not well takes no job", cards: with(eight()[:1], 0, func(c *Card) { c.Health = HealthQuarantined }), jobs: []expecting{{spec: one}},
			want: "its start cannot be estimated until enough of its GPUs are available"},
		{says: "a card that the job rules out is not waited for", cards: eight()[:2], held: []Allocation{runningFor("9", 0, none, hour, 0), runningFor("8", 0, none, hour/2, 1)}, jobs: []expecting{{spec: also(one, func(s *job.Spec) { s.Allow = []int{0} })}},
			want: "expected to start between now and 13:00, from the time limits of 2 running jobs"},
		{says: "a stranger's process may stay for ever", cards: with(eight()[:1], 0, func(c *Card) { c.ForeignMiB, c.IdleForeignMiB = 900, 900 }), jobs: []expecting{{spec: one}},
			want: "its start cannot be estimated until enough of its GPUs are available"},
		{says: "cards that cannot be read have no future", cards: eight(), jobs: []expecting{{spec: one}}, lab: func(s *State) { s.Unreadable = "no answer" },
			want: "its start cannot be estimated until the GPUs can be read"},
		{says: "what can never run says so", cards: eight(), jobs: []expecting{{spec: idle(9)}}, want: "it can never start here"},
		{says: "a user at the limit waits for no card", cards: eight(), jobs: []expecting{{spec: one, user: "ann"}},
			lab:  func(s *State) { s.DefaultLimit, s.InUse = Limit{Jobs: 1}, map[string]Use{"ann": {Jobs: 1}} },
			want: "it starts once its user is below the limit"},
		{says: "a job that wants a card for itself waits for all who are there", cards: cardsOf(gib24), held: []Allocation{{Job: "9", Cards: []int{0}, BudgetMiB: []int64{100}, Started: sundayNoon, Limit: hour}}, jobs: []expecting{{spec: one}},
			want: "expected to start between now and 13:00, from the time limit of 1 running job"},
		{says: "a job of unknown length is not let past a reservation", cards: eight()[:2], held: []Allocation{runningFor("9", 0, exactly(hour), 0, 0), runningFor("8", 0, exactly(2*hour), 0, 1)},
			jobs: []expecting{{spec: job.Spec{IDs: []int{0}}, run: exactly(hour)}, {spec: two, run: exactly(5 * hour)}, {spec: one}}, job: "3",
			want: "expected to start about 19:00, from earlier runs of 4 jobs"},
		{says: "under fifo not even onto a card that nobody else wants", rules: fifo, cards: eight()[:2], held: []Allocation{runningFor("9", 0, exactly(hour), 0, 0)},
			jobs: []expecting{{spec: job.Spec{IDs: []int{0}}, run: exactly(hour)}, {spec: one}}, job: "2",
			want: "expected to start about 13:00, from earlier runs of 2 jobs"},
		{says: "one in front that its user's limit keeps is in nobody's way", cards: eight()[:1], held: []Allocation{runningFor("9", 0, exactly(hour), 0, 0), {Job: "8", User: "cay", CPUs: 1, Started: sundayNoon, Run: exactly(9 * hour)}},
			jobs: []expecting{{spec: one, user: "cay", run: exactly(hour)}, {spec: one, user: "ann"}}, job: "2",
			lab:  func(s *State) { s.DefaultLimit, s.InUse = Limit{Jobs: 1}, map[string]Use{"cay": {Jobs: 1}} },
			want: "expected to start about 13:00, from earlier runs of 3 jobs"},
		{says: "nor one that its user's limit on CPUs keeps", cards: eight()[:1], held: []Allocation{runningFor("9", 0, exactly(hour), 0, 0), {Job: "8", User: "cay", CPUs: 1, Started: sundayNoon, Run: exactly(9 * hour)}},
			jobs: []expecting{{spec: also(one, func(s *job.Spec) { s.CPUs = 1 }), user: "cay", run: exactly(hour)}, {spec: one, user: "ann"}}, job: "2",
			lab:  func(s *State) { s.DefaultLimit, s.InUse = Limit{CPUs: 1}, map[string]Use{"cay": {CPUs: 1}} },
			want: "expected to start about 13:00, from earlier runs of 3 jobs"},
		{says: "tasks of an array follow one another where it says so", cards: eight()[:2], held: []Allocation{runningFor("9", 0, exactly(hour), 0, 0, 1)},
			jobs: []expecting{{spec: one, array: "17", atOnce: 1, run: exactly(hour)}, {spec: one, array: "17", atOnce: 1, run: exactly(hour)}, {spec: one}}, job: "3",
			want: "expected to start about 13:00, from earlier runs of 3 jobs"},
		{says: "parts of cards are packed, so that whole ones are left", cards: cardsOf(gib24, gib24), held: []Allocation{runningFor("9", 0, exactly(hour), 0, 0, 1)},
			jobs: []expecting{{spec: share(.5), run: exactly(2 * hour)}, {spec: share(.5), run: exactly(2 * hour)}, {spec: one}}, job: "3",
			want: "expected to start about 13:00, from earlier runs of 3 jobs"},
		{says: "the margin has to be free too", cards: cardsOf(gib24), held: []Allocation{{Job: "9", Cards: []int{0}, BudgetMiB: []int64{12200}, Started: sundayNoon, Limit: hour}}, jobs: []expecting{{spec: vram(12000)}},
			want: "expected to start between now and 13:00, from the time limit of 1 running job"},
		{says: "a limit is that of one run alone", cards: eight()[:1], held: []Allocation{{Job: "9", Cards: []int{0}, Alone: true, Started: sundayNoon, RanBefore: hour, Limit: 2 * hour}},
			jobs: []expecting{{spec: one, served: hour, limit: hour}, {spec: one, served: hour}}, job: "2",
			want: "expected to start between now and 15:00, from the time limits of 2 jobs"},
		{says: "a guess from nothing but a limit is called that", cards: eight()[:1], held: []Allocation{runningFor("9", 0, Estimate{Mid: hour / 2, High: hour}, hour, 0)}, jobs: []expecting{{spec: one}},
			want: "expected to start between now and 13:00, from the time limit of 1 running job"},
		{says: "what only waits for its turn to be started starts now", cards: eight(), jobs: []expecting{{spec: one}, {spec: one}}, job: "2", lab: func(s *State) { s.MaxStarts = 1 },
			want: "expected to start now"},
		{says: "a job of a full group waits for another of it", cards: eight(), jobs: []expecting{{spec: one, group: "io"}}, lab: func(s *State) { s.Groups = map[GroupName]Group{{Name: "io"}: {Limit: 1, Running: []string{"9"}}} },
			want: "it starts once another job of its group has ended"},
		{says: "a job of a paused group waits for somebody", cards: eight(), jobs: []expecting{{spec: one, group: "io"}}, lab: func(s *State) { s.Groups = map[GroupName]Group{{Name: "io"}: {PausedBy: "ann"}} },
			want: "it starts once the group is resumed"},
		{says: "a job of a paused group in front is passed", cards: eight()[:1], held: []Allocation{runningFor("9", 0, exactly(hour), 0, 0)}, jobs: []expecting{{spec: one, run: exactly(hour), group: "io"}, {spec: one}}, job: "2", lab: func(s *State) { s.Groups = map[GroupName]Group{{Name: "io"}: {PausedBy: "ann"}} },
			want: "expected to start about 13:00, from earlier runs of 2 jobs"},
		{says: "jobs of a limited group in front start one after the other", cards: eight()[:2], held: []Allocation{runningFor("8", 0, exactly(hour), 0, 0), runningFor("9", 0, exactly(2*hour), 0, 1)},
			jobs: []expecting{{spec: one, run: exactly(hour), group: "io"}, {spec: one, run: exactly(hour), group: "io"}, {spec: one}}, job: "3", lab: func(s *State) { s.Groups = map[GroupName]Group{{Name: "io"}: {Limit: 1, Running: []string{"9"}}} },
			want: "expected to start about 13:00, from earlier runs of 4 jobs"},
		{says: "a full array waits for its own", cards: eight(), jobs: []expecting{{spec: one, array: "17", atOnce: 1}}, lab: func(s *State) { s.ArrayRuns = map[string]int{"17": 1} },
			want: "it starts once another task of its array has ended"},
		{says: "what is set aside for it is gone soon", cards: eight()[:1], held: []Allocation{preemptible(runningFor("9", hour, exactly(9*hour), 0, 0))}, jobs: []expecting{{spec: urgently(one, 5)}},
			want: "expected to start about 12:00:10, from earlier runs of 1 running job"},
		{says: "who may only be set aside later is gone later", cards: eight()[:1], held: []Allocation{preemptible(runningFor("9", 10*time.Second, exactly(9*hour), 0, 0))}, jobs: []expecting{{spec: urgently(one, 5)}},
			want: "expected to start about 12:01:00, from earlier runs of 1 running job"},
		{says: "a card of which nothing was heard takes no job", cards: with(eight()[:1], 0, func(c *Card) { c.Stale = true }), jobs: []expecting{{spec: one}},
			want: "its start cannot be estimated until enough of its GPUs are available"},
		{says: "a job that would delay a reservation waits for its job", cards: eight()[:2], held: []Allocation{runningFor("9", 0, exactly(2*hour), 0, 0), runningFor("8", 0, exactly(hour), 0, 1)},
			jobs: []expecting{{spec: two, run: exactly(5 * hour)}, {spec: one, run: exactly(hour)}}, job: "2",
			want: "expected to start about 19:00, from earlier runs of 3 jobs"},
		{says: "a long one is not so lucky", cards: eight()[:2], held: []Allocation{runningFor("9", 0, exactly(2*hour), 0, 0), runningFor("8", 0, exactly(hour), 0, 1)},
			jobs: []expecting{{spec: two, run: exactly(5 * hour)}, {spec: one, run: exactly(3 * hour)}}, job: "2",
			want: "expected to start about 19:00, from earlier runs of 3 jobs"},
		{says: "of two cards that a limit leaves idle the one is taken that came free last", cards: eight()[:2],
			held: []Allocation{runningFor("9", 0, exactly(hour), 0, 0), runningFor("8", 0, exactly(3*hour), 0, 1), {Job: "7", User: "cay", CPUs: 1, Started: sundayNoon, Run: exactly(3 * hour)}},
			jobs: []expecting{{spec: one, user: "cay", run: exactly(9 * hour)}, {spec: one, user: "ann", run: exactly(5 * hour)}, {spec: one, user: "ann"}}, job: "3",
			lab: func(s *State) {
				s.Limits, s.InUse = map[string]Limit{"cay": {Jobs: 1}}, map[string]Use{"cay": {Jobs: 1}}
			},
			want: "expected to start about 18:00, from earlier runs of 5 jobs"},
		{says: "where nothing is known of anything, nothing is said", cards: eight()[:1], held: []Allocation{{Job: "9", Cards: []int{0}, Alone: true}}, jobs: []expecting{{spec: one}, {spec: one}}, job: "2",
			want: "its start cannot be estimated; 2 jobs have no time estimate"},
		{says: "parts of cards are spread where the rules say so", rules: func(r *Rules) { r.Placement = Spread }, cards: cardsOf(gib24, gib24), held: []Allocation{runningFor("9", 0, exactly(hour), 0, 0, 1)},
			jobs: []expecting{{spec: share(.5), run: exactly(2 * hour)}, {spec: share(.5), run: exactly(2 * hour)}, {spec: one}}, job: "3",
			want: "expected to start about 15:00, from earlier runs of 3 jobs"},
		{says: "a job that is not there has no forecast", cards: eight(), job: "7", want: ""},
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
			id := "1"
			if row.job != "" {
				id = row.job
			}
			if got := Expect(s, id).String(); got != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
		})
	}
}

// drawTimed draws a snapshot in which some is known of how long runs last.
func drawTimed(t *rapid.T) State {
	s := drawState(t)
	s.Now = sundayNoon
	span := rapid.SampledFrom([]Estimate{{}, {}, aboutLong(time.Minute), aboutLong(time.Hour), {High: 2 * time.Hour, Mid: time.Hour}})
	limit := rapid.SampledFrom([]time.Duration{0, 0, 2 * time.Hour})
	for i := range s.Allocations {
		h := &s.Allocations[i]
		h.Run, h.Limit = span.Draw(t, "held run"), limit.Draw(t, "held limit")
		h.Started = sundayNoon.Add(-rapid.SampledFrom([]time.Duration{0, time.Minute, 3 * time.Hour}).Draw(t, "ran"))
	}
	s.Rules.MaxBypass = rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(t, "bypass")
	s.Queue.SetRules(s.Rules)
	for _, p := range s.Queue.First(s.Queue.Len()) {
		p.Run, p.Limit = span.Draw(t, "run"), limit.Draw(t, "limit")
		p.Since = sundayNoon.Add(-rapid.SampledFrom([]time.Duration{0, time.Minute, 2 * time.Hour}).Draw(t, "waited"))
		s.Queue.Add(p)
	}
	s.Queue.Tick(sundayNoon)
	return s
}

// TestEveryJobHasAnExpectationOrAReason, and it is in order.
func TestEveryJobHasAnExpectationOrAReason(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawTimed(t)
		for _, p := range s.Queue.First(s.Queue.Len()) {
			story, queued := Tell(s, p.Job)
			f := story.Forecast()
			switch {
			case !queued:
				t.Fatalf("job %s has no story", p.Job)
			case f.String() == "" || story.String() == "":
				t.Fatalf("job %s: nothing is said: %+v", p.Job, f)
			case (f.None == "") != (!f.Low.IsZero()):
				t.Fatalf("job %s: a start and none: %+v", p.Job, f)
			case f.None == reason.NoneInfeasible != story.Kind.Infeasible():
				t.Fatalf("job %s: %s, yet %s", p.Job, story.Text, f)
			case f.None != "":
			case f.Low.Before(s.Now):
				t.Fatalf("job %s starts in the past: %+v", p.Job, f)
			case !f.Mid.IsZero() && f.Mid.Before(f.Low), !f.High.IsZero() && (f.Mid.IsZero() || f.High.Before(f.Mid)):
				t.Fatalf("job %s: not in order: %+v", p.Job, f)
			case story.Kind == reason.StartsNow && f.High != s.Now:
				t.Fatalf("job %s fits, and is expected later: %+v", p.Job, f)
			}
			if story.Position != Position(s, p.Job) || story.Position < 1 {
				t.Fatalf("job %s is number %d", p.Job, story.Position)
			}
			checkBehind(t, s, &story)
		}
	})
}

func checkBehind(t *rapid.T, s State, story *reason.Story) {
	b := story.Behind
	switch {
	case b == nil:
	case b.First == reason.FirstShare:
	case story.Position == 1:
		t.Fatalf("the first job waits behind job %s", b.ID)
	// Where users take turns, a decision charges for what starts alone, and a
	// position for all that is in front.
	case !s.Rules.Fair && Position(s, b.ID) >= story.Position:
		t.Fatalf("number %d waits behind job %s, which is number %d, as %s", story.Position, b.ID, Position(s, b.ID), b.Because)
	case b.First == reason.FirstPriority && b.Priority <= story.Priority:
		t.Fatalf("priority %d goes before %d", b.Priority, story.Priority)
	}
}

// TestAForecastDoesNotDependOnTheOrderOfTheInput: of cards and of what runs.
func TestAForecastDoesNotDependOnTheOrderOfTheInput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawTimed(t)
		shuffled := s
		shuffled.Cards = rapid.Permutation(s.Cards).Draw(t, "cards")
		shuffled.Allocations = rapid.Permutation(s.Allocations).Draw(t, "held")
		for _, p := range s.Queue.First(s.Queue.Len()) {
			a, _ := Tell(s, p.Job)
			b, _ := Tell(shuffled, p.Job)
			if a.String() != b.String() || fmt.Sprint(a.Cards) != fmt.Sprint(b.Cards) {
				t.Fatalf("%s\n%s\n%v\n%v", a, b, a.Cards, b.Cards)
			}
		}
	})
}

// TestMoreInFrontThanAreLookedAt: then only the earliest is said.
func TestMoreInFrontThanAreLookedAt(t *testing.T) {
	s := forecastState(DefaultRules(), eight()[:1], []Allocation{runningFor("9", 0, Estimate{Low: time.Hour, Mid: time.Hour, High: time.Hour}, 0, 0)}, nil)
	for i := range frontBound + 2 {
		s.Queue.Add(Pending{Job: fmt.Sprint(i), Seq: int64(i), Request: Request{GPUs: 1}, Run: aboutLong(time.Second)})
	}
	want := fmt.Sprintf("not expected before 15:16: more than %d jobs are ahead of it", frontBound)
	if f := Expect(s, fmt.Sprint(frontBound+1)); !strings.HasPrefix(f.String(), want) || !f.Mid.IsZero() || !f.High.IsZero() {
		t.Errorf("got  %s\nwant %s\n%+v", f, want, f)
	}
	if f := Expect(s, fmt.Sprint(frontBound)); f.Beyond || f.High.IsZero() {
		t.Errorf("the last that is looked at: %+v", f)
	}
}

func TestEnds(t *testing.T) {
	const hour = time.Hour
	one, none := idle(1), Estimate{}
	for _, row := range []struct {
		says  string
		cards []Card
		held  []Allocation
		jobs  []expecting
		rules func(*Rules)
		want  string
	}{
		{says: "one after the other on the only card", cards: eight()[:1], held: []Allocation{runningFor("r", hour, exactly(2*hour), 0, 0)},
			jobs: []expecting{{spec: one, run: exactly(hour)}, {spec: one, run: exactly(2 * hour)}}, want: "r 1h, 1 2h, 2 4h"},
		{says: "a job without an estimate is not expected to end, and lasts as others do", cards: eight()[:1], held: []Allocation{runningFor("r", hour, exactly(2*hour), 0, 0)},
			jobs: []expecting{{spec: one, run: none}, {spec: one, run: exactly(2 * hour)}}, want: "r 1h, 2 5h"},
		{says: "a time limit says too little", cards: eight()[:1], held: []Allocation{runningFor("r", hour, exactly(2*hour), 0, 0)},
			jobs: []expecting{{spec: one, run: none, limit: hour}}, want: "r 1h"},
		{says: "a job that fits, and does not start, waits for something unknown", cards: eight()[:1], jobs: []expecting{{spec: one, run: exactly(hour)}}, want: ""},
		{says: "a job of a paused group", cards: eight()[:1], held: []Allocation{runningFor("r", hour, exactly(2*hour), 0, 0)},
			jobs: []expecting{{spec: one, run: exactly(hour), group: "paused"}, {spec: one, run: exactly(hour)}}, want: "r 1h, 2 2h"},
		{says: "the limit of an array", cards: eight()[:2], held: []Allocation{runningFor("r", hour, exactly(2*hour), 0, 0, 1)},
			jobs: []expecting{{spec: one, run: exactly(hour), array: "1", atOnce: 1}, {spec: one, run: exactly(hour), array: "1", atOnce: 1}}, want: "r 1h, 1 2h, 2 3h"},
		{says: "first come, first served", cards: eight()[:2], held: []Allocation{runningFor("r", hour, exactly(2*hour), 0, 0), runningFor("q", hour, exactly(4*hour), 0, 1)},
			jobs: []expecting{{spec: idle(2), run: exactly(hour)}, {spec: one, run: exactly(hour)}}, rules: func(r *Rules) { r.Policy = FIFO }, want: "r 1h, q 3h, 1 4h, 2 5h"},
	} {
		rules := DefaultRules()
		if row.rules != nil {
			row.rules(&rules)
		}
		s := forecastState(rules, row.cards, row.held, row.jobs)
		s.Groups = map[GroupName]Group{{Name: "paused"}: {PausedBy: "ann"}}
		var got []string
		Ends(s, func(id string, at time.Time) {
			got = append(got, id+" "+strings.TrimSuffix(at.Sub(sundayNoon).String(), "0m0s"))
			if _, queued := s.Queue.Get(id); !queued {
				return
			}
			m := s.Queue.jobs[id]
			if starts := Expect(s, id); starts.None == "" && !starts.Mid.Add(knownLeft(m.run, m.class.term.limit, m.served).Mid).Equal(at) {
				t.Errorf("%s: %s ends at %v, but is expected to start at %v", row.says, id, at, starts.Mid)
			}
		})
		if strings.Join(got, ", ") != row.want {
			t.Errorf("%s: %s; expected %s", row.says, strings.Join(got, ", "), row.want)
		}
	}
}

// BenchmarkEnds is about the same queue as BenchmarkTell.
func BenchmarkEnds(b *testing.B) {
	s := tenThousand()
	b.ResetTimer()
	fastest(b, func() {
		n := 0
		if Ends(s, func(string, time.Time) { n++ }); n != 10_008 {
			b.Fatal(n)
		}
	})
}

// BenchmarkTell is the whole answer for the last of 10,000 jobs, of 300 kinds
// and 100 users.
func BenchmarkTell(b *testing.B) {
	s := tenThousand()
	b.ResetTimer()
	fastest(b, func() {
		if story, _ := Tell(s, "9999"); story.Forecast().Mid.IsZero() {
			b.Fatal("no forecast")
		}
	})
}

// A story of the last of 10,000 jobs allocates what a copy of those in front takes,
// once: 160 bytes each, and nothing that is thrown away.
func TestStoryOfALongQueueAllocatesOnce(t *testing.T) {
	most := uint64(300)
	if testkit.Race {
		most = 450 // with what the detector allocates
	}
	s := tenThousand()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	Tell(s, "9999")
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / 10_000; each > most {
		t.Errorf("%d bytes for each job in front", each)
	}
}

func tenThousand() State {
	s := State{Now: sundayNoon, Rules: DefaultRules(), Queue: NewQueue(), Host: Host{CPUs: 64, MemMiB: 512 * 1024}, FairQuantum: FairQuantum, Usage: map[string]float64{}}
	s.Rules.Fair = true
	for i := range 8 {
		s.Cards = append(s.Cards, cardOf(i, gib24))
		s.Allocations = append(s.Allocations, Allocation{Job: fmt.Sprintf("h%d", i), Cards: []int{i}, BudgetMiB: []int64{12000}, Started: sundayNoon.Add(-time.Minute), Run: aboutLong(time.Hour)})
	}
	for i := range 10_000 {
		s.Queue.Add(Pending{
			Job: fmt.Sprint(i), User: fmt.Sprint("user", i%100), Seq: int64(i), Request: ofThreeHundred(i),
			Since: sundayNoon.Add(-time.Minute), Run: aboutLong(time.Duration(1+i%7) * time.Hour),
		})
	}
	s.Queue.Tick(sundayNoon)
	return s
}

// BenchmarkStoriesOfABoard is what the status board of a long file says: of the
// first hundred of 100,000.
func BenchmarkStoriesOfABoard(b *testing.B) {
	s := benchState(func(i int) Request { return Request{GPUs: 2, VRAMMiB: 15000 + int64(i%300)} })
	s.Now = sundayNoon
	s.Queue.Tick(s.Now)
	ids := make([]string, 100)
	for i := range ids {
		ids[i] = fmt.Sprint(i)
	}
	b.ResetTimer()
	fastest(b, func() {
		if stories := NewPreview(s, ids).Stories(); stories[99].Position != 100 {
			b.Fatalf("%+v", stories[99])
		}
	})
}

// BenchmarkTellNearTheFront is the whole answer for a job that Decide is stepped up
// to.
func BenchmarkTellNearTheFront(b *testing.B) {
	s := tenThousand()
	jobs := Order(s, 100)
	b.ResetTimer()
	fastest(b, func() {
		if story, _ := Tell(s, jobs[49]); story.Forecast().Mid.IsZero() {
			b.Fatal("no forecast")
		}
	})
}

// BenchmarkStoriesOfAHundred is that of the first hundred at once.
func BenchmarkStoriesOfAHundred(b *testing.B) {
	s := tenThousand()
	jobs := Order(s, 100)
	b.ResetTimer()
	fastest(b, func() {
		if stories := NewPreview(s, jobs).Stories(); stories[99].Position != 100 {
			b.Fatalf("%+v", stories[99])
		}
	})
}
