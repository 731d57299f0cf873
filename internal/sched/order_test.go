package sched

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"berth/internal/job"
)

// midday is when the rows below are decided.
var midday = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// queuedJob is a queued job of whole cards.
type queuedJob struct {
	user     string
	gpus     int
	priority int
	since    time.Duration // how long it has waited
	served   time.Duration
	before   time.Duration // how long it had waited before, in all; of others it is not known when they were submitted
	run      time.Duration // expected, exactly
	most     time.Duration // expected at most, if not that
	limit    time.Duration
	vram     int64
	cpus     int
	stays    bool // it cannot give way once it runs; the others are parked
}

// running is a job on whole cards.
func running(id string, ran time.Duration, change func(*Allocation), cards ...int) Allocation {
	h := Allocation{
		Job: id, Cards: cards, Alone: true, User: "bob", Rank: -100, Seq: -100,
		Started: midday.Add(-ran), Submitted: midday.Add(-ran),
	}
	if change != nil {
		change(&h)
	}
	return h
}

func lasting(d time.Duration) func(*Allocation) {
	return func(h *Allocation) { h.Run = Estimate{Low: d, Mid: d, High: d} }
}

// parkable gives way, at twenty seconds each way.
func parkable(h *Allocation) {
	h.Preempt = Preempt{Mode: Park, StopTime: 20 * time.Second, ResumeTime: 20 * time.Second}
}

// saving ends and runs again from what it saved, every so often; 0: when it is told.
func saving(every time.Duration) func(*Allocation) {
	return func(h *Allocation) {
		h.Preempt = Preempt{Mode: Requeue, StopTime: 10 * time.Second, ResumeTime: 2 * time.Minute, Saves: true, SavesEvery: every}
	}
}

// startsAnew gives way and loses its work.
func startsAnew(h *Allocation) { h.Preempt = Preempt{Mode: Requeue, StopTime: 10 * time.Second} }

func both(changes ...func(*Allocation)) func(*Allocation) {
	return func(h *Allocation) {
		for _, change := range changes {
			change(h)
		}
	}
}

// told writes a plan as brief does, and "2?0,1+5m0s" for cards kept for job 2 that
// it is expected to have in five minutes, "2!0+1h0m0s" where nothing may pass it,
// "9>2" for job 9 set aside for job 2, and "~1m0s" for when to look again.
func told(p Plan) string {
	words := []string{}
	if starts := brief(p); starts != "" {
		words = append(words, starts)
	}
	for _, s := range p.Victims {
		words = append(words, s.Job+">"+s.For)
	}
	for _, r := range p.Reservations {
		mark := "?"
		if r.ByLimit {
			mark = "!"
		}
		words = append(words, fmt.Sprintf("%s%s%s+%s", r.Job, mark, joinIDs(r.Cards), r.At.Sub(midday)))
	}
	return strings.Join(words, " ")
}

// orderRow is one sentence about the order of jobs.
type orderRow struct {
	says  string
	rules func(*Rules)
	cards int
	held  []Allocation
	jobs  []queuedJob
	state func(*State)
	want  string
	again time.Duration // 0: not looked at
}

func (r orderRow) decide() Plan { return Decide(r.snapshot()) }

func (r orderRow) snapshot() State {
	rules := DefaultRules()
	if r.rules != nil {
		r.rules(&rules)
	}
	s := State{Now: midday, Rules: rules, Allocations: r.held, Queue: NewQueue()}
	for i := range r.cards {
		s.Cards = append(s.Cards, cardOf(i, gib24))
	}
	s.Queue.SetRules(rules)
	for i, w := range r.jobs {
		spec := job.Spec{GPUs: w.gpus, VRAMMiB: w.vram, CPUs: w.cpus}
		var gives Preempt
		if !w.stays {
			gives.Mode = Park
		}
		p := Pending{
			Preempt: gives,
			Job:     strconv.Itoa(i + 1), User: w.user, Priority: w.priority, Rank: int64(i), Seq: int64(i),
			Request: NewRequest(spec, w.vram, rules), Since: midday.Add(-w.since), RanBefore: w.served,
			Run: Estimate{Low: w.run, Mid: w.run, High: max(w.run, w.most)}, Limit: w.limit,
		}
		if w.before > 0 {
			p.Submitted = p.Since.Add(-w.before - w.served)
		}
		s.Queue.Add(p)
	}
	if r.state != nil {
		r.state(&s)
	}
	s.Queue.Tick(midday)
	return s
}

func checkOrder(t *testing.T, rows []orderRow) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.says, func(t *testing.T) {
			p := r.decide()
			if got := told(p); got != r.want {
				t.Errorf("plan is %q, want %q", got, r.want)
			}
			if r.again != 0 && p.Again != midday.Add(r.again) {
				t.Errorf("decides again after %s, want %s", p.Again.Sub(midday), r.again)
			}
		})
	}
}

func policy(p Policy) func(*Rules) { return func(r *Rules) { r.Policy = p } }

const hour = time.Hour

func TestCardsAreKept(t *testing.T) {
	busy := []Allocation{running("8", hour, lasting(3*hour), 0), running("9", hour, lasting(2*hour), 1)}
	checkOrder(t, []orderRow{
		{says: "the first that waits holds the card that comes free first", cards: 2, held: busy,
			jobs: []queuedJob{{gpus: 1}}, want: "1?1+1h0m0s"},
		{says: "several cards are there when the last of them is", cards: 2, held: busy,
			jobs: []queuedJob{{gpus: 2}}, want: "1?0,1+2h0m0s"},
		{says: "one that ends in time passes", cards: 3, held: busy,
			jobs: []queuedJob{{gpus: 3}, {gpus: 1, run: hour}}, want: "2@2 1?0,1,2+2h0m0s"},
		{says: "one that ends just then does too", cards: 2, held: []Allocation{running("9", 0, lasting(4096*time.Second), 0)},
			jobs: []queuedJob{{gpus: 2}, {gpus: 1, run: 4096 * time.Second}}, want: "2@1 1?0,1+1h8m16s"},
		{says: "one that would not end in time does not", cards: 3, held: busy,
			jobs: []queuedJob{{gpus: 3}, {gpus: 1, run: 3 * hour}}, want: "1?0,1,2+2h0m0s"},
		{says: "of one that nothing is known of it is not assumed to be long", cards: 3, held: busy,
			jobs: []queuedJob{{gpus: 3}, {gpus: 1}}, want: "2@2 1?0,1,2+2h0m0s"},
		{says: "a limit is something known", cards: 3, held: busy,
			jobs: []queuedJob{{gpus: 3}, {gpus: 1, limit: 3 * hour}, {gpus: 1, limit: hour}}, want: "3@2 1?0,1,2+2h0m0s"},
		{says: "only the first holds cards under backfill", cards: 2, held: busy,
			jobs: []queuedJob{{gpus: 2}, {gpus: 2}}, want: "1?0,1+2h0m0s"},
		{says: "a job that waits for a paused card takes no reservation from the next", cards: 3, held: busy,
			state: func(s *State) { s.Cards[2].Paused = true },
			jobs:  []queuedJob{{gpus: 3}, {gpus: 2}}, want: "2?0,1+2h0m0s"},
		{says: "a share does not take the margin of a job that GPUs are reserved for", cards: 1,
			held: []Allocation{running("9", hour, both(lasting(2*hour), beside(12_000)), 0)},
			state: func(s *State) {
				p, _ := s.Queue.Get("2")
				p.Request = NewRequest(job.Spec{GPUs: 1, Share: 0.185}, 0, s.Rules)
				s.Queue.Add(p)
			},
			jobs: []queuedJob{{gpus: 1, vram: 20_000}, {gpus: 1, run: 3 * hour}}, want: "1?0+1h0m0s"},
		{says: "all hold cards under conservative", cards: 2, held: busy, rules: policy(Conservative),
			jobs: []queuedJob{{gpus: 1, run: 9 * hour}, {gpus: 1, run: 9 * hour}}, want: "1?1+1h0m0s 2?0+2h0m0s"},
		{says: "under conservative the second is not delayed either", cards: 3, held: busy, rules: policy(Conservative),
			jobs: []queuedJob{{gpus: 2, run: hour / 2}, {gpus: 3, run: hour}, {gpus: 1, run: 100 * time.Minute}},
			want: "1?1,2+1h0m0s 2?0,1,2+2h0m0s 3?0+3h8m15.999999999s"},
		{says: "what delays neither passes both", cards: 3, held: busy, rules: policy(Conservative),
			jobs: []queuedJob{{gpus: 2, run: hour / 2}, {gpus: 3, run: hour}, {gpus: 1, run: 50 * time.Minute}},
			want: "3@2 1?1,2+1h0m0s 2?0,1,2+2h0m0s"},
		{says: "nothing is kept under fifo, where nothing passes", cards: 2, held: busy, rules: policy(FIFO),
			jobs: []queuedJob{{gpus: 2}, {gpus: 1, run: 1}}, want: ""},
		{says: "a run that outlasts its span is expected to take as long again", cards: 1,
			held: []Allocation{running("9", 4*hour, lasting(hour), 0)}, jobs: []queuedJob{{gpus: 1}}, want: "1?0+4h0m0s"},
		{says: "a limit ends a run whatever was expected", cards: 1,
			held: []Allocation{running("9", hour, both(lasting(9*hour), func(h *Allocation) { h.Limit = 90 * time.Minute }), 0)},
			jobs: []queuedJob{{gpus: 1}}, want: "1?0+30m0s"},
		{says: "what leaves its VRAM free passes", cards: 1,
			held: []Allocation{running("9", 0, both(lasting(hour), func(h *Allocation) { h.Alone, h.BudgetMiB = false, []int64{10000} }), 0)},
			jobs: []queuedJob{{gpus: 1, vram: 16000}, {gpus: 1, vram: 7000, run: 9 * hour}, {gpus: 1, vram: 5000, run: 9 * hour}},
			want: "2@0 1?0+1h0m0s"},
		{says: "what does not leave its VRAM free waits", cards: 1,
			held: []Allocation{running("9", 0, both(lasting(hour), func(h *Allocation) { h.Alone, h.BudgetMiB = false, []int64{10000} }), 0)},
			jobs: []queuedJob{{gpus: 1, vram: 16000}, {gpus: 1, vram: 9000, run: 9 * hour}}, want: "1?0+1h0m0s"},
		{says: "nothing is kept on a card that is paused", cards: 1, held: []Allocation{running("9", 0, lasting(hour), 0)},
			state: func(s *State) { s.Cards[0].Paused = true }, jobs: []queuedJob{{gpus: 1}}, want: ""},
	})
}

func TestNobodyIsPassedForEver(t *testing.T) {
	busy := []Allocation{running("9", hour, lasting(3*hour), 0)}
	day := DefaultMaxBypass
	checkOrder(t, []orderRow{
		{says: "who was passed for two days goes first, whatever its priority", cards: 1,
			jobs: []queuedJob{{gpus: 1, priority: 5}, {gpus: 1, since: day, user: "ann"}}, want: "2@0 1?0+1m0s"},
		{says: "a moment before it does not", cards: 1,
			jobs: []queuedJob{{gpus: 1, priority: 5}, {gpus: 1, since: day - time.Second, user: "ann"}}, want: "1@0 2?0+1m0s", again: time.Second},
		{says: "it holds its cards, and what nothing is known of does not pass", cards: 2, held: busy,
			jobs: []queuedJob{{gpus: 2, since: day}, {gpus: 1}, {gpus: 1, run: 3 * hour}}, want: "1?0,1+2h0m0s"},
		{says: "what is expected to end in time does", cards: 2, held: busy,
			jobs: []queuedJob{{gpus: 2, since: day}, {gpus: 1}, {gpus: 1, run: time.Minute}}, want: "3@1 1?0,1+2h0m0s"},
		{says: "it is looked again when twice the bound has passed", cards: 1, held: []Allocation{running("9", hour, lasting(900*hour), 0)},
			jobs: []queuedJob{{gpus: 1, since: day}}, want: "1?0+899h0m0s", again: day},
		{says: "after twice the bound guesses do not count", cards: 2, held: busy,
			jobs: []queuedJob{{gpus: 2, since: 2 * day}, {gpus: 1}, {gpus: 1, run: time.Minute}}, want: "1!0,1+2h0m0s"},
		{says: "what a limit ends in time passes it", cards: 2, held: busy,
			jobs: []queuedJob{{gpus: 2, since: 2 * day}, {gpus: 1, limit: 2 * hour}}, want: "2@1 1!0,1+2h0m0s"},
		{says: "one job of each user at a time", cards: 2, held: busy,
			jobs: []queuedJob{{gpus: 2, since: day, user: "ann"}, {gpus: 2, since: day, user: "ann"}, {gpus: 2, since: day, user: "eve"}},
			want: "1?0,1+2h0m0s"},
		{says: "under fifo who is not the oldest of all has no claim", cards: 1, rules: policy(FIFO),
			jobs: []queuedJob{{gpus: 1, since: 9 * day}, {gpus: 1, since: hour, priority: 5, user: "eve"}, {gpus: 1, since: 8 * day, user: "ann"}}, want: "1@0"},
		{says: "those who are the oldest one after the other do", cards: 2, rules: policy(FIFO),
			jobs: []queuedJob{{gpus: 1, since: 2 * day, user: "ann"}, {gpus: 1, since: day, user: "bob"}, {gpus: 1, priority: 5, user: "eve"}}, want: "1@0 2@1"},
		{says: "not behind one who has not waited for so long", cards: 3, rules: policy(FIFO),
			jobs: []queuedJob{{gpus: 1, since: 2 * day, user: "ann"}, {gpus: 1, since: hour, user: "ann"}, {gpus: 3, since: day, user: "bob"}, {gpus: 1, priority: 5, user: "eve"}}, want: "1@0 4@1 2@2"},
		{says: "but no priority passes the oldest for ever", cards: 1, rules: policy(FIFO), held: busy,
			jobs: []queuedJob{{gpus: 1, since: day}, {gpus: 1, priority: 5, user: "eve"}}, want: "1?0+2h0m0s"},
		{says: "without a bound nothing is overdue", cards: 1, rules: func(r *Rules) { r.MaxBypass = 0 },
			jobs: []queuedJob{{gpus: 1, priority: 5}, {gpus: 1, since: 99 * day, user: "ann"}}, want: "1@0 2?0+1m0s"},
		{says: "of several, who waited longest is first", cards: 1,
			jobs: []queuedJob{{gpus: 1, since: day, user: "ann"}, {gpus: 1, since: 2 * day, user: "eve"}}, want: "2@0 1?0+1m0s"},
		{says: "who cannot run for a limit of its user is in nobody's way", cards: 1,
			state: func(s *State) {
				s.Limits, s.InUse = map[string]Limit{"ann": {Jobs: 1}}, map[string]Use{"ann": {Jobs: 1}}
			},
			jobs: []queuedJob{{gpus: 1, since: day, user: "ann"}, {gpus: 1, user: "eve"}}, want: "2@0"},
		{says: "what can never run is refused and not kept for", cards: 1, held: busy,
			jobs: []queuedJob{{gpus: 2, since: day, user: "ann"}, {gpus: 1, user: "eve"}}, want: "!1 2?0+2h0m0s"},
	})
}

func TestRunningJobsGiveWay(t *testing.T) {
	minute, day := time.Minute, 24*time.Hour
	checkOrder(t, []orderRow{
		{says: "a job that does not give way does not", cards: 1, held: []Allocation{running("9", hour, lasting(2*hour), 0)},
			jobs: []queuedJob{{gpus: 1, priority: 1}}, want: "1?0+1h0m0s"},
		{says: "one that does is set aside for a higher priority", cards: 1, held: []Allocation{running("9", hour, startsAnew, 0)},
			jobs: []queuedJob{{gpus: 1, priority: 1}}, want: "9>1 1?0+10s"},
		{says: "not for its own priority", cards: 1, held: []Allocation{running("9", hour, both(startsAnew, lasting(2*hour)), 0)},
			jobs: []queuedJob{{gpus: 1}}, want: "1?0+1h0m0s"},
		{says: "not before it ran for as long as the rules say", cards: 1, rules: func(r *Rules) { r.MinRun = hour + minute },
			held: []Allocation{running("9", hour, startsAnew, 0)}, jobs: []queuedJob{{gpus: 1, priority: 1}}, want: "1?0+1m10s", again: minute},
		{says: "not before it ran for a minute", cards: 1, held: []Allocation{running("9", minute/2, startsAnew, 0)},
			jobs: []queuedJob{{gpus: 1, priority: 1}}, want: "1?0+40s", again: minute / 2},
		{says: "nor before twice of what that costs", cards: 1, held: []Allocation{running("9", 79*time.Second, parkable, 0)},
			jobs: []queuedJob{{gpus: 1, priority: 1}}, want: "1?0+21s", again: time.Second},
		{says: "the one is chosen that loses least", cards: 2,
			held: []Allocation{running("8", 2*hour, startsAnew, 0), running("9", hour, startsAnew, 1)},
			jobs: []queuedJob{{gpus: 1, priority: 1}}, want: "9>1 1?1+10s"},
		{says: "the lowest priority first", cards: 2,
			held: []Allocation{running("8", 2*hour, both(startsAnew, func(h *Allocation) { h.Priority = -1 }), 0), running("9", hour, startsAnew, 1)},
			jobs: []queuedJob{{gpus: 1, priority: 1}}, want: "8>1 1?0+10s"},
		{says: "all that is needed", cards: 2,
			held: []Allocation{running("8", 2*hour, startsAnew, 0), running("9", hour, startsAnew, 1)},
			jobs: []queuedJob{{gpus: 2, priority: 1}}, want: "9>1 8>1 1?0,1+10s"},
		{says: "or none", cards: 2,
			held: []Allocation{running("8", 2*hour, lasting(4*hour), 0), running("9", hour, startsAnew, 1)},
			jobs: []queuedJob{{gpus: 2, priority: 1}}, want: "1?0,1+2h0m0s"},
		{says: "a gang gives way as a whole", cards: 3, held: []Allocation{running("9", hour, startsAnew, 0, 1, 2)},
			jobs: []queuedJob{{gpus: 1, priority: 1}, {gpus: 2, priority: 1}}, want: "9>1 1?0+10s 2?1,2+10s"},
		{says: "a free card is used first", cards: 2, held: []Allocation{running("9", hour, startsAnew, 1)},
			jobs: []queuedJob{{gpus: 1, priority: 1}}, want: "1@0"},
		{says: "what is left already is used before anything else is set aside", cards: 2,
			held: []Allocation{running("8", hour, startsAnew, 0), running("9", hour, both(startsAnew, leaving("1", 5*time.Second)), 1)},
			jobs: []queuedJob{{gpus: 1, priority: 1}}, want: "1?1+5s"},
		{says: "cards that are being left are spoken for", cards: 1,
			held: []Allocation{running("9", hour, both(startsAnew, leaving("1", 5*time.Second)), 0)},
			jobs: []queuedJob{{gpus: 1, priority: 1}, {gpus: 1, priority: 1}}, want: "1?0+5s 2?0+1m5s"},
		{says: "another berth's job does not give way", cards: 1,
			held: []Allocation{running("9", hour, both(startsAnew, lasting(2*hour), func(h *Allocation) { h.Other = true }), 0)},
			jobs: []queuedJob{{gpus: 1, priority: 1}}, want: "1?0+1h0m0s"},
		{says: "who was passed for too long comes before what can be parked", cards: 1, held: []Allocation{running("9", hour, parkable, 0)},
			jobs: []queuedJob{{gpus: 1, priority: -1, since: DefaultMaxBypass}}, want: "9>1 1?0+20s"},
		{says: "what loses its work goes on even then, as two such would end each other for ever", cards: 1, held: []Allocation{running("9", hour, startsAnew, 0)},
			jobs: []queuedJob{{gpus: 1, since: 9 * DefaultMaxBypass}}, want: "1!0+1h0m0s"},
		{says: "and then has a while", cards: 1,
			held: []Allocation{running("9", 25*minute, both(startsAnew, func(h *Allocation) { h.Waited = DefaultMaxBypass }), 0)},
			jobs: []queuedJob{{gpus: 1, priority: 9}}, want: "1?0+25m0s", again: 5 * minute},
		{says: "which is over after half an hour, however long it waited", cards: 1,
			held: []Allocation{running("9", 30*minute, both(startsAnew, func(h *Allocation) { h.Waited, h.Submitted = 90*day, midday.Add(-90*day) }), 0)},
			jobs: []queuedJob{{gpus: 1, priority: 9}}, want: "9>1 1?0+10s"},
	})
}

func leaving(for_ string, by time.Duration) func(*Allocation) {
	return func(h *Allocation) { h.BeingPreempted, h.PreemptedFor, h.FreeBy = true, for_, midday.Add(by) }
}

// beside is one that declared so much of its cards, and lets others on them.
func beside(mib int64) func(*Allocation) {
	return func(h *Allocation) {
		h.Alone, h.BudgetMiB = false, slices.Repeat([]int64{mib}, len(h.Cards))
	}
}

func TestClassesOfService(t *testing.T) {
	minute := time.Minute
	checkOrder(t, []orderRow{
		{says: "what had little sets aside what had more", cards: 1, held: []Allocation{running("9", 6*minute, parkable, 0)},
			jobs: []queuedJob{{gpus: 1}}, want: "9>1 1?0+20s"},
		{says: "not what had as little", cards: 1, held: []Allocation{running("9", 2*minute, parkable, 0)},
			jobs: []queuedJob{{gpus: 1}}, want: "1?0+2m0s", again: minute},
		{says: "what it had before counts", cards: 1,
			held: []Allocation{running("9", 2*minute, both(parkable, func(h *Allocation) { h.RanBefore = 5 * minute }), 0)},
			jobs: []queuedJob{{gpus: 1}}, want: "9>1 1?0+20s"},
		{says: "bringing it back is no service", cards: 1,
			held: []Allocation{running("9", 80*time.Second, both(parkable, func(h *Allocation) { h.RanBefore = 119 * time.Second }), 0)},
			jobs: []queuedJob{{gpus: 1}}, want: "1?0+2m59s", again: time.Second},
		{says: "jobs that lose their work do not take turns", cards: 1, held: []Allocation{running("9", 60*minute, startsAnew, 0)},
			jobs: []queuedJob{{gpus: 1}}, want: "1?0+1h0m0s"},
		{says: "of two that had much the older goes first", cards: 1,
			held: []Allocation{running("9", 60*minute, both(parkable, func(h *Allocation) { h.Rank, h.Seq = 5, 5 }), 0)},
			jobs: []queuedJob{{gpus: 1, served: hour}}, want: "9>1 1?0+20s"},
		{says: "the younger does not", cards: 1, held: []Allocation{running("9", 60*minute, parkable, 0)},
			jobs: []queuedJob{{gpus: 1, served: hour}}, want: ""},
		{says: "who waited for four times what it had gets a while of its own", cards: 1, held: []Allocation{running("9", 60*minute, parkable, 0)},
			jobs: []queuedJob{{gpus: 1, served: hour, since: 4 * hour}}, want: "9>1 1?0+20s"},
		{says: "not a minute sooner", cards: 1, held: []Allocation{running("9", 60*minute, parkable, 0)},
			jobs: []queuedJob{{gpus: 1, served: hour, since: 4*hour - minute}}, want: "", again: minute},
		{says: "after a day in any case", cards: 1, held: []Allocation{running("9", 60*minute, parkable, 0)},
			jobs: []queuedJob{{gpus: 1, served: 1000 * hour, since: 24 * hour}}, want: "9>1 1?0+20s"},
		{says: "and not before", cards: 1, held: []Allocation{running("9", 60*minute, parkable, 0)},
			jobs: []queuedJob{{gpus: 1, served: 1000 * hour, since: 24*hour - minute}}, want: "", again: minute},
		{says: "and keeps it from what had less", cards: 1,
			held: []Allocation{running("9", 25*minute, both(parkable, func(h *Allocation) { h.RanBefore, h.Waited = hour, 4*hour }), 0)},
			jobs: []queuedJob{{gpus: 1, served: 10 * minute}}, want: "", again: 5 * minute},
		{says: "but not from what had hardly anything", cards: 1,
			held: []Allocation{running("9", 10*minute, both(parkable, func(h *Allocation) { h.RanBefore, h.Waited = hour, 4*hour }), 0)},
			jobs: []queuedJob{{gpus: 1}}, want: "9>1 1?0+20s"},
		{says: "who came back sooner has none", cards: 1,
			held: []Allocation{running("9", 10*minute, both(parkable, func(h *Allocation) { h.Rank, h.RanBefore, h.Waited = 9, hour, 4*hour-minute }), 0)},
			jobs: []queuedJob{{gpus: 1, served: 10 * minute}}, want: "9>1 1?0+20s"},
		{says: "one that had nothing before has it from its start", cards: 1, held: []Allocation{running("9", 30*minute-time.Second, both(parkable, func(h *Allocation) { h.Rank = 9 }), 0)},
			jobs: []queuedJob{{gpus: 1, served: 10 * minute}}, want: "", again: time.Second},
		{says: "and for half an hour", cards: 1, held: []Allocation{running("9", 30*minute, both(parkable, func(h *Allocation) { h.Rank = 9 }), 0)},
			jobs: []queuedJob{{gpus: 1, served: 10 * minute}}, want: "9>1 1?0+20s"},
		{says: "what had three minutes goes by age like what had more", cards: 1, held: []Allocation{running("9", hour, both(parkable, func(h *Allocation) { h.Rank = 9 }), 0)},
			jobs: []queuedJob{{gpus: 1, served: hour}, {gpus: 1, served: 3 * minute}}, want: "9>1 1?0+20s"},
		{says: "and what had less goes first", cards: 1, held: []Allocation{running("9", hour, both(parkable, func(h *Allocation) { h.Rank = 9 }), 0)},
			jobs: []queuedJob{{gpus: 1, served: hour}, {gpus: 1, served: 3*minute - 1}}, want: "9>2 2?0+20s"},
		{says: "who had a little waits as little for a while", cards: 1, held: []Allocation{running("9", hour, parkable, 0)},
			jobs: []queuedJob{{gpus: 1, served: 4 * minute, since: 16 * minute}}, want: "9>1 1?0+20s"},
		{says: "and not less", cards: 1, held: []Allocation{running("9", hour, parkable, 0)},
			jobs: []queuedJob{{gpus: 1, served: 4 * minute, since: 15 * minute}}, want: "", again: minute},
		{says: "of one moment the number decides who is older", cards: 1, held: []Allocation{running("9", hour, both(parkable, func(h *Allocation) { h.Rank, h.Seq = 0, 5 }), 0)},
			jobs: []queuedJob{{gpus: 1, served: hour}}, want: "9>1 1?0+20s"},
		{says: "who had most gives way first", cards: 2, held: []Allocation{running("8", 6*minute, parkable, 0), running("9", hour, parkable, 1)},
			jobs: []queuedJob{{gpus: 1}}, want: "9>1 1?1+20s"},
		{says: "and of these the youngest", cards: 2,
			held: []Allocation{running("8", hour, both(parkable, func(h *Allocation) { h.Rank = 1 }), 0), running("9", hour, both(parkable, func(h *Allocation) { h.Rank = 5 }), 1)},
			jobs: []queuedJob{{gpus: 1}}, want: "9>1 1?1+20s"},
		{says: "where jobs are parked several hold cards that they get soon", cards: 2, held: []Allocation{running("8", 2*minute, both(parkable, lasting(3*minute)), 0)},
			jobs: []queuedJob{{gpus: 2, run: 64 * time.Second}, {gpus: 2}}, want: "1?0,1+1m0s 2?0,1+2m4s"},
		{says: "what may take longer than until then does not pass who gets cards soon", cards: 2,
			held: []Allocation{running("8", 2*minute, both(parkable, lasting(4*minute)), 0)},
			jobs: []queuedJob{{gpus: 2}, {gpus: 1, run: minute, most: 9 * minute}, {gpus: 1, run: minute}}, want: "3@1 1?0,1+2m0s"},
		{says: "the while is a tenth of what it waited for in all", cards: 1,
			held: []Allocation{running("9", 2*hour, both(parkable, func(h *Allocation) { h.RanBefore, h.Waited, h.Submitted = hour, 4*hour, midday.Add(-27*hour) }), 0)},
			jobs: []queuedJob{{gpus: 1, served: 10 * minute}}, want: "", again: 24 * minute},
		{says: "who waited for longest of those who waited for long comes first", cards: 1,
			jobs: []queuedJob{{gpus: 1, served: hour, since: 5 * hour}, {gpus: 1, served: hour, since: 6 * hour}}, want: "2@0 1?0+1h0m0s"},
		{says: "or rather who had waited for long first", cards: 1,
			jobs: []queuedJob{{gpus: 1, served: 2 * hour, since: 9 * hour}, {gpus: 1, served: hour, since: 6 * hour}}, want: "2@0 1?0+1h0m0s"},
		{says: "who has not had a while comes before who was due for long", cards: 1,
			jobs: []queuedJob{{gpus: 1, served: 48 * minute, since: 9 * hour}, {gpus: 1, served: 48*minute - 1, since: 4 * 48 * minute}}, want: "2@0 1?0+47m59.999999999s"},
		{says: "however long that one waited before", cards: 1,
			jobs: []queuedJob{{gpus: 1, served: 48 * minute, since: 9 * hour, before: 900 * hour}, {gpus: 1, served: 10 * minute, since: hour}}, want: "2@0 1?0+10m0s"},
		{says: "of those who have not it is who was due first", cards: 1,
			jobs: []queuedJob{{gpus: 1, served: 10 * minute, since: hour, before: 900 * hour}, {gpus: 1, served: 10 * minute, since: hour + 1*minute, before: 1}}, want: "2@0 1?0+10m0s"},
		{says: "what the others waited before counts too", cards: 1,
			jobs: []queuedJob{{gpus: 1, served: hour, since: 6 * hour, before: hour}, {gpus: 1, served: hour, since: 5 * hour, before: 2*hour + minute}}, want: "2@0 1?0+1h0m0s"},
		{says: "and as much as what they wait now", cards: 1,
			jobs: []queuedJob{{gpus: 1, served: hour, since: 6 * hour, before: hour}, {gpus: 1, served: hour, since: 5 * hour, before: 2*hour - minute}}, want: "1@0 2?0+1h0m0s"},
		{says: "less what they have to wait for what they had", cards: 1,
			jobs: []queuedJob{{gpus: 1, served: 2 * hour, since: 9 * hour, before: 3 * hour}, {gpus: 1, served: hour, since: 6 * hour, before: 2*hour + minute}}, want: "2@0 1?0+1h0m0s"},
		{says: "under las four times as much is the next class", cards: 1, rules: policy(LAS), held: []Allocation{running("9", 12*minute, parkable, 0)},
			jobs: []queuedJob{{gpus: 1, served: 11 * minute}}, want: "9>1 1?0+20s"},
		{says: "a gang runs for longer before it gives way to one card", cards: 4, held: []Allocation{running("9", 4*80*time.Second-time.Second, both(parkable, func(h *Allocation) { h.RanBefore = hour }), 0, 1, 2, 3)},
			jobs: []queuedJob{{gpus: 1}}, want: "1?0+21s", again: time.Second},
		{says: "and not for one as large", cards: 4, held: []Allocation{running("9", 80*time.Second, both(parkable, func(h *Allocation) { h.RanBefore = hour }), 0, 1, 2, 3)},
			jobs: []queuedJob{{gpus: 4}}, want: "9>1 1?0,1,2,3+20s"},
		{says: "cards are not kept idle for one who gets them late", cards: 2,
			held: []Allocation{running("8", minute, both(parkable, lasting(9*hour)), 0)},
			jobs: []queuedJob{{gpus: 2, served: hour}, {gpus: 1, served: hour}}, want: "2@1"},
		{says: "what the host has no memory for is not parked", cards: 1, state: func(s *State) { s.ParkMiB = 1000 },
			held: []Allocation{running("9", hour, both(parkable, func(h *Allocation) { h.Preempt.MemMiB = 1001 }), 0)},
			jobs: []queuedJob{{gpus: 1}}, want: ""},
		{says: "what it has memory for is", cards: 1, state: func(s *State) { s.ParkMiB = 1001 },
			held: []Allocation{running("9", hour, both(parkable, func(h *Allocation) { h.Preempt.MemMiB = 1001 }), 0)},
			jobs: []queuedJob{{gpus: 1}}, want: "9>1 1?0+20s"},
		{says: "a queue without turns takes none", cards: 1, rules: func(r *Rules) { r.Slice = false },
			held: []Allocation{running("9", hour, both(parkable, lasting(2*hour)), 0)}, jobs: []queuedJob{{gpus: 1}}, want: "1?0+1h0m0s"},
		{says: "las goes by GPU time", cards: 4, rules: policy(LAS), held: []Allocation{running("9", 2*minute, parkable, 0, 1, 2, 3)},
			jobs: []queuedJob{{gpus: 4}}, want: "9>1 1?0,1,2,3+20s"},
		{says: "and takes no time of one's own into account", cards: 1, rules: policy(LAS), held: []Allocation{running("9", 60*minute, parkable, 0)},
			jobs: []queuedJob{{gpus: 1, served: hour, since: 9 * hour}}, want: ""},
		{says: "who had hardly anything comes first, and the others by age", cards: 1, jobs: []queuedJob{{gpus: 1, served: hour}, {gpus: 1, served: 10 * minute}, {gpus: 1}}, want: "3@0 1?0+1m0s"},
		{says: "priority comes before that", cards: 1, jobs: []queuedJob{{gpus: 1, served: hour, priority: 1}, {gpus: 1}}, want: "1@0 2?0+1h0m0s"},
	})
}

func TestJobsThatSaveTheirOwnWorkTakeTurns(t *testing.T) {
	gang := func(ran time.Duration, every time.Duration) []Allocation {
		return []Allocation{running("9", ran, saving(every), 0, 1)}
	}
	checkOrder(t, []orderRow{
		{says: "one that saves when it is told gives way", cards: 2, held: gang(hour, 0), jobs: []queuedJob{{gpus: 2}}, want: "9>1 1?0,1+10s"},
		{says: "after its minimum run", cards: 2, held: gang(4*time.Minute, 0), jobs: []queuedJob{{gpus: 2}}, want: "1?0,1+30s", again: 20 * time.Second},
		{says: "one that saves every half hour does, too", cards: 2, held: gang(31*time.Minute, 30*time.Minute), jobs: []queuedJob{{gpus: 2}}, want: "9>1 1?0,1+10s"},
		{says: "not before it has saved once", cards: 2, held: gang(29*time.Minute, 30*time.Minute), jobs: []queuedJob{{gpus: 2}}, want: "1?0,1+1m10s", again: time.Minute},
		{says: "which it does after it has come back", cards: 2, jobs: []queuedJob{{gpus: 2}}, want: "1?0,1+1m10s", again: time.Minute,
			held: []Allocation{running("9", 31*time.Minute, both(saving(30*time.Minute), func(h *Allocation) { h.RanBefore = hour }), 0, 1)}},
		{says: "it needs no host memory", cards: 2, state: func(s *State) { s.ParkMiB = -1 }, held: gang(hour, 0), jobs: []queuedJob{{gpus: 2}}, want: "9>1 1?0,1+10s"},
		{says: "one that loses all its work gives way to nobody", cards: 2, held: []Allocation{running("9", hour, both(startsAnew, lasting(9*hour)), 0, 1)},
			jobs: []queuedJob{{gpus: 2}}, want: "1?0,1+8h0m0s"},
		{says: "the one that loses less goes first", cards: 2, jobs: []queuedJob{{gpus: 1}}, want: "8>1 1?0+10s",
			held: []Allocation{running("8", 61*time.Minute, saving(30*time.Minute), 0), running("9", 59*time.Minute, saving(30*time.Minute), 1)}},
		{says: "and one that loses nothing before it", cards: 2, jobs: []queuedJob{{gpus: 1}}, want: "9>1 1?1+10s",
			held: []Allocation{running("8", 61*time.Minute, saving(30*time.Minute), 0), running("9", 59*time.Minute, saving(0), 1)}},
	})
}

func TestGangsThatCannotGiveWay(t *testing.T) {
	later := func(h *Allocation) { h.Rank, h.Seq = 100, 100 }
	long := func(change func(*Allocation)) []Allocation {
		return []Allocation{running("8", hour, both(parkable, lasting(9*hour), change), 0), running("9", hour, both(parkable, lasting(9*hour), change), 1)}
	}
	none := func(*Allocation) {}
	checkOrder(t, []orderRow{
		{says: "older jobs are not parked for one", cards: 2, held: long(none), jobs: []queuedJob{{gpus: 2, stays: true}}, want: ""},
		{says: "they are for one that gives them back", cards: 2, held: long(none), jobs: []queuedJob{{gpus: 2}}, want: "8>1 9>1 1?0,1+20s"},
		{says: "later ones are", cards: 2, held: long(later), jobs: []queuedJob{{gpus: 2, stays: true}}, want: "8>1 9>1 1?0,1+20s"},
		{says: "unless they have a boost", cards: 2, held: long(both(later, func(h *Allocation) { h.Started, h.Waited = midday.Add(-20*time.Minute), 9*hour })),
			jobs: []queuedJob{{gpus: 2, stays: true}}, want: ""},
		{says: "a job with one GPU keeps its rank", cards: 2, held: long(none), jobs: []queuedJob{{gpus: 1, stays: true}}, want: "8>1 1?0+20s"},
		{says: "so does a gang of a higher priority", cards: 2, held: long(none), jobs: []queuedJob{{gpus: 2, priority: 1, stays: true}}, want: "8>1 9>1 1?0,1+20s"},
		{says: "one that stays does not hide the one behind it", cards: 2, held: long(none), jobs: []queuedJob{{gpus: 2, stays: true}, {gpus: 2}}, want: "8>2 9>2 2?0,1+20s"},
	})
}

func TestShortestFirst(t *testing.T) {
	checkOrder(t, []orderRow{
		{says: "the least GPU time comes first", cards: 2, rules: policy(Shortest),
			jobs: []queuedJob{{gpus: 2, run: 6 * time.Minute}, {gpus: 1, run: 10 * time.Minute}, {gpus: 1, run: 11 * time.Minute}}, want: "2@0 3@1"},
		{says: "what nothing is known of is taken for a while", cards: 1, rules: policy(Shortest),
			jobs: []queuedJob{{gpus: 1, run: 31 * time.Minute}, {gpus: 1}, {gpus: 1, run: 31 * time.Minute}}, want: "2@0"},
		{says: "a limit says how long at most", cards: 1, rules: policy(Shortest),
			jobs: []queuedJob{{gpus: 1}, {gpus: 1, limit: time.Minute}}, want: "2@0"},
		{says: "priority comes before that", cards: 1, rules: policy(Shortest),
			jobs: []queuedJob{{gpus: 1, run: time.Minute}, {gpus: 1, run: hour, priority: 1}}, want: "2@0"},
	})
}
