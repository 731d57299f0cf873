package sim

import (
	"slices"
	"testing"
	"time"

	"berth/internal/sched"
)

// seconds is a job that declares nothing: id, user, submission, duration, GPUs.
func seconds(id, user string, submit, duration float64, gpus int) Job {
	return Job{ID: id, User: user, Submit: MillisOf(submit), Duration: MillisOf(duration), GPUs: gpus}
}

func share(j Job, share float64) Job { j.Share = share; return j }

func vram(j Job, mib int64) Job { j.VRAMMiB = mib; return j }

func urgent(j Job, priority int) Job { j.Priority = priority; return j }

func limited(j Job, limit float64) Job { j.Limit = MillisOf(limit); return j }

func policy(t *testing.T, name string) Policy {
	t.Helper()
	p, err := ParsePolicy(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestReplays(t *testing.T) {
	two := Machine{GPUs: 2, VRAMMiB: 10_000}
	rows := []struct {
		name   string
		policy string
		jobs   []Job
		starts []float64 // of each job, in seconds; -1: refused
	}{
		{"a job that needs all waits for all", "backfill",
			[]Job{seconds("1", "", 0, 10, 1), seconds("2", "", 1, 10, 2)}, []float64{0, 10}},
		{"under backfill a small job passes a large one that waits", "backfill",
			[]Job{seconds("1", "", 0, 10, 1), seconds("2", "", 1, 10, 2), seconds("3", "", 2, 5, 1)}, []float64{0, 10, 2}},
		{"under fifo it does not", "fifo",
			[]Job{seconds("1", "", 0, 10, 1), seconds("2", "", 1, 10, 2), seconds("3", "", 2, 5, 1)}, []float64{0, 10, 20}},
		{"of jobs submitted at once the smaller number comes first", "fifo",
			[]Job{seconds("10", "", 0, 10, 2), seconds("9", "", 0, 10, 2)}, []float64{10, 0}},
		{"a higher priority goes first", "fifo",
			[]Job{seconds("1", "", 0, 10, 2), seconds("2", "", 1, 10, 2), urgent(seconds("3", "", 2, 10, 2), 1)}, []float64{0, 20, 10}},
		{"backfill serves in the order of submission", "backfill",
			[]Job{seconds("1", "ann", 0, 10, 2), seconds("2", "ann", 1, 10, 2), seconds("3", "bob", 2, 10, 2)}, []float64{0, 10, 20}},
		{"fair share serves the user with the least usage", "fair",
			[]Job{seconds("1", "ann", 0, 10, 2), seconds("2", "ann", 1, 10, 2), seconds("3", "bob", 2, 10, 2)}, []float64{0, 20, 10}},
		{"what a shared daemon does is fair share", Default,
			[]Job{seconds("1", "ann", 0, 10, 2), seconds("2", "ann", 1, 10, 2), seconds("3", "bob", 2, 10, 2)}, []float64{0, 20, 10}},
		{"what a user had long ago counts less", "fair",
			[]Job{
				seconds("1", "ann", 0, 400, 2), seconds("2", "bob", 30*86400, 300, 2),
				seconds("3", "ann", 30*86400+1, 10, 2), seconds("4", "bob", 30*86400+2, 10, 2),
			}, []float64{0, 30 * 86400, 30*86400 + 300, 30*86400 + 310}},
		{"a card that a user holds now weighs more than minutes of the past", "fair",
			[]Job{
				seconds("1", "ann", 0, 500, 2), seconds("2", "bob", 1, 5000, 1), seconds("3", "cid", 1, 10, 1),
				seconds("4", "bob", 504, 10, 1), seconds("5", "ann", 505, 10, 1),
			}, []float64{0, 500, 500, 520, 510}},
		{"two halves share a card, and a third half takes the other", "fifo",
			[]Job{share(seconds("1", "", 0, 10, 1), 0.5), share(seconds("2", "", 0, 10, 1), 0.5), share(seconds("3", "", 0, 10, 1), 0.5), seconds("4", "", 0, 1, 1)},
			[]float64{0, 0, 0, 10}},
		{"declared memory is packed", "fifo",
			[]Job{vram(seconds("1", "", 0, 10, 1), 5000), vram(seconds("2", "", 0, 10, 1), 4000), seconds("3", "", 0, 1, 1)}, []float64{0, 0, 0}},
		{"what is larger than the machine is refused and holds nobody up", "fifo",
			[]Job{seconds("1", "", 0, 10, 3), vram(seconds("2", "", 0, 10, 1), 9600), seconds("3", "", 0, 1, 1)}, []float64{-1, -1, 0}},
		{"a limit ends a job before its time", "fifo",
			[]Job{limited(seconds("1", "", 0, 10, 2), 4), seconds("2", "", 0, 1, 2)}, []float64{0, 4}},
		{"a job of no length makes room at once", "fifo",
			[]Job{seconds("1", "", 0, 0, 2), seconds("2", "", 0, 1, 2)}, []float64{0, 0}},
		{"the first job may be submitted at any time", "fifo", []Job{seconds("1", "", 1.7e9, 1, 1)}, []float64{1.7e9}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			res := run(input{Jobs: row.jobs, Machine: two, Policy: policy(t, row.policy)})
			for i, want := range row.starts {
				fate := res.Fates[i]
				if want < 0 != (fate.Refused != nil) || want >= 0 && fate.Start != MillisOf(want) {
					t.Errorf("job %s: %+v, want a start at %g s", row.jobs[i].ID, fate, want)
				}
			}
		})
	}
}

// Limits of users and arrays and named cards keep jobs as they do in a daemon.
func TestLimitsAndNamedCards(t *testing.T) {
	task := func(array string, atOnce int, j Job) Job { j.Array, j.AtOnce = array, atOnce; return j }
	of := func(j Job, ids ...int) Job { j.IDs = ids; return j }
	among := func(j Job, cards ...int) Job { j.Allow = cards; return j }
	rows := []struct {
		name   string
		limits map[string]sched.Limit
		others sched.Limit
		jobs   []Job
		starts []float64
		cards  [][]int
	}{
		{name: "a user runs as many jobs as a user may", others: sched.Limit{Jobs: 1},
			jobs:   []Job{seconds("1", "ann", 0, 10, 1), seconds("2", "ann", 1, 10, 1), seconds("3", "bob", 2, 10, 1)},
			starts: []float64{0, 10, 2}},
		{name: "and holds as many GPUs, a share counting as that", others: sched.Limit{GPUs: 1.5},
			jobs:   []Job{seconds("1", "ann", 0, 10, 1), share(seconds("2", "ann", 1, 20, 1), 0.5), share(seconds("3", "ann", 2, 10, 1), 0.1)},
			starts: []float64{0, 1, 10}},
		{name: "a user's own limit goes before everybody's", others: sched.Limit{Jobs: 1}, limits: map[string]sched.Limit{"ann": {}},
			jobs:   []Job{seconds("1", "ann", 0, 10, 1), seconds("2", "ann", 0, 10, 1)},
			starts: []float64{0, 0}},
		{name: "more than a user may ever hold is refused", others: sched.Limit{GPUs: 1},
			jobs:   []Job{seconds("1", "ann", 0, 10, 2), seconds("2", "ann", 0, 10, 1)},
			starts: []float64{-1, 0}},
		{name: "as many tasks of an array run as it says, and others beside them",
			jobs:   []Job{task("a", 1, seconds("a_1", "", 0, 10, 1)), task("a", 1, seconds("a_2", "", 0, 10, 1)), task("b", 1, seconds("b_1", "", 1, 20, 1))},
			starts: []float64{0, 10, 1}},
		{name: "and all of one that says nothing",
			jobs:   []Job{task("a", 0, seconds("a_1", "", 0, 10, 1)), task("a", 0, seconds("a_2", "", 0, 10, 1))},
			starts: []float64{0, 0}},
		{name: "a job waits for the card it names", jobs: []Job{of(seconds("1", "", 0, 10, 1), 1), of(seconds("2", "", 1, 10, 1), 1), seconds("3", "", 2, 10, 1)},
			starts: []float64{0, 10, 2}, cards: [][]int{{1}, {1}, {0}}},
		{name: "and gets them in its order", jobs: []Job{of(seconds("1", "", 0, 10, 2), 1, 0)},
			starts: []float64{0}, cards: [][]int{{1, 0}}},
		{name: "one that allows a card runs on no other", jobs: []Job{seconds("1", "", 0, 10, 1), among(seconds("2", "", 1, 10, 1), 0)},
			starts: []float64{0, 10}, cards: [][]int{{0}, {0}}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			result := run(input{
				Jobs: row.jobs, Machine: Machine{GPUs: 2, VRAMMiB: 10_000}, Policy: policy(t, "backfill"), Limits: row.limits, DefaultLimit: row.others,
			})
			for i, fate := range result.Fates {
				start := fate.Start.Seconds()
				if fate.Refused != nil {
					start = -1
				}
				if start != row.starts[i] || row.cards != nil && !slices.Equal(fate.Cards, row.cards[i]) {
					t.Errorf("job %s starts at %g on %v", row.jobs[i].ID, start, fate.Cards)
				}
			}
		})
	}
}

func TestManySmallSharesStartInOneMoment(t *testing.T) {
	// More than one plan may start, so that a second has to follow.
	var jobs []Job
	for range maxStarts + 50 {
		jobs = append(jobs, share(seconds("", "", 5, 1, 1), 0.001))
	}
	res := run(input{Jobs: jobs, Machine: Machine{GPUs: 1, VRAMMiB: 80_000}, Policy: policy(t, "backfill")})
	for i, fate := range res.Fates {
		if fate.Start != MillisOf(5) {
			t.Fatalf("job %d starts at %d", i, fate.Start)
		}
	}
	if res.Decisions != 2 {
		t.Errorf("%d decisions, want 2", res.Decisions)
	}
}

func TestProgressStopsAReplay(t *testing.T) {
	var jobs []Job
	for i := range 2000 {
		jobs = append(jobs, seconds("", "", float64(i), 1, 1))
	}
	asked := 0
	in := input{Jobs: jobs, Machine: Machine{GPUs: 1, VRAMMiB: 1000}, Policy: policy(t, "fifo")}
	in.Progress = func(over int) bool {
		if over < 0 || over > len(jobs) {
			t.Errorf("%d jobs are over", over)
		}
		if asked++; asked == 2 && over < progressSteps/4 {
			t.Errorf("asked again when only %d are over", over)
		}
		return asked < 3
	}
	if res := run(in); !res.Stopped || asked != 3 {
		t.Errorf("stopped %v after %d questions", res.Stopped, asked)
	}
}

func TestDecisionsAreTimedByTheCallersStopwatch(t *testing.T) {
	reading := time.Duration(0)
	in := input{
		Jobs:    []Job{seconds("1", "", 0, 1, 1), seconds("2", "", 5, 1, 1)},
		Machine: Machine{GPUs: 1, VRAMMiB: 1000}, Policy: policy(t, "fifo"),
		Elapsed: func() time.Duration { reading += 3 * time.Millisecond; return reading },
	}
	res := run(in)
	if want := []time.Duration{3 * time.Millisecond, 3 * time.Millisecond}; !slices.Equal(res.DecisionTimes, want) || res.Decisions != 2 {
		t.Errorf("%d decisions took %v", res.Decisions, res.DecisionTimes)
	}
	if m := measure(in, res); m.DecisionP99Ms != 3 || m.DecisionP50Ms != 3 || m.Decisions != 2 {
		t.Errorf("%+v", m)
	}
}

func TestUnknownPoliciesAreNamedWithTheKnownOnes(t *testing.T) {
	_, err := ParsePolicy("fiffo")
	if want := `unknown policy "fiffo"; the policies are default, fifo, backfill, conservative, fair, shortest, las`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
