package sim

import (
	"math"
	"reflect"
	"testing"
)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a), math.Abs(b)) }

func measured(t *testing.T, policyName string, gpus int, jobs ...Job) Metrics {
	t.Helper()
	in := input{Jobs: jobs, Machine: Machine{GPUs: gpus, VRAMMiB: 10_000}, Policy: policy(t, policyName)}
	return measure(in, run(in))
}

func TestFigures(t *testing.T) {
	// One card: ann runs from 0 to 20, bob waits 19 s and runs 1 s, ann waits
	// 10 s and runs 10.
	m := measured(t, "fifo", 1, seconds("1", "ann", 0, 20, 1), seconds("2", "bob", 1, 1, 1), seconds("3", "ann", 11, 9, 1), seconds("4", "bob", 0, 1, 2))
	want := map[string]float64{
		"wait_mean_s": (0 + 19 + 10) / 3.0, "wait_p50_s": 10, "wait_p95_s": 19, "wait_p99_s": 19, "wait_max_s": 19,
		// 1, 20/10, 19/10: a job of a second counts as one of ten.
		"bounded_slowdown_mean": (1 + 2 + 1.9) / 3,
		"flow_mean_s":           (20 + 20 + 19) / 3.0, "makespan_s": 30,
		"gpu_allocated": 1, "gpu_useful": 1, "gpu_lost": 0, "fragmentation": 0,
		// ann 1.45, bob 2.
		"jain_users": 3.45 * 3.45 / (2 * (1.45*1.45 + 4)), "worst_over_median_user": 2 / 1.725,
		"preemptions": 0, "gpu_wasted": 0, "gpu_fixed": 0, "host_full": 0, "own_gpus_busy": 0, "parked_max_mib": 0, "ooms": 0, "decisions": 6, "decision_p50_ms": 0, "decision_p99_ms": 0,
	}
	figures := Figures()
	if len(figures) != len(want) {
		t.Errorf("%d figures, %d wanted", len(figures), len(want))
	}
	for _, f := range figures {
		if got := *f.Of(&m); !near(got, want[f.Name]) {
			t.Errorf("%s is %g, want %g", f.Name, got, want[f.Name])
		}
	}
	if m.Jobs != 3 || m.Infeasible != 1 || m.Users != 2 || m.TimedOut != 0 {
		t.Errorf("%+v", m)
	}
}

func TestAWorkloadThatBeginsLateIsNoLongerForIt(t *testing.T) {
	m := measured(t, "fifo", 1, seconds("1", "", 1000, 10, 1), seconds("2", "", 1000, 10, 1))
	if !near(m.MakespanS, 20) || !near(m.GPUAllocated, 1) || !near(m.Bounds.MakespanS, 20) {
		t.Errorf("%+v", m)
	}
}

func TestAJobThatItsLimitEndsIsOfNoUse(t *testing.T) {
	m := measured(t, "fifo", 2, limited(seconds("1", "", 0, 100, 1), 10), seconds("2", "", 0, 20, 1))
	if m.TimedOut != 1 || !near(m.GPUAllocated, 0.75) || !near(m.GPUUseful, 0.5) {
		t.Errorf("%+v", m)
	}
}

func TestFragmentation(t *testing.T) {
	half := func(id string) Job { return share(seconds(id, "", 0, 10, 1), 0.6) }
	rows := []struct {
		name   string
		policy string
		jobs   []Job
		want   float64
	}{
		{"two cards with 0.4 left each keep a job that needs 0.7: it has no card", "backfill",
			[]Job{half("1"), half("2"), share(seconds("3", "", 0, 10, 1), 0.7)}, 0.8 * 10 / (2 * 20)},
		{"as much is free, and nobody waits", "backfill", []Job{half("1"), half("2")}, 0},
		{"more is needed than is free in all", "backfill", []Job{half("1"), half("2"), seconds("3", "", 0, 10, 1)}, 0},
		{"a job that would fit waits for one that would not, which needs more than there is", "fifo",
			[]Job{seconds("1", "", 0, 10, 1), seconds("2", "", 0, 10, 2), seconds("3", "", 0, 10, 1)}, 0},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			if m := measured(t, row.policy, 2, row.jobs...); !near(m.Fragmentation, row.want) {
				t.Errorf("%g, want %g", m.Fragmentation, row.want)
			}
		})
	}
}

func TestLowerBounds(t *testing.T) {
	rows := []struct {
		name           string
		gpus           int
		jobs           []Job
		flow, makespan float64
	}{
		{"one job takes its time", 2, []Job{seconds("1", "", 5, 10, 1)}, 10, 10},
		{"work that fills the machine takes its area", 2, []Job{seconds("1", "", 0, 10, 2), seconds("2", "", 0, 10, 2)}, 15, 20},
		{"what comes late leaves less time", 1, []Job{seconds("1", "", 0, 1, 1), seconds("2", "", 100, 10, 1), seconds("3", "", 100, 10, 1)}, (1 + 10 + 20) / 3.0, 120},
		// At the speed of both cards each is worked on for 5 s, around 2.5, 7.5
		// and 12.5; half its own 10 s comes on top.
		{"the mean moments of work bound what neither work nor lengths do", 2, []Job{seconds("1", "", 0, 10, 1), seconds("2", "", 0, 10, 1), seconds("3", "", 0, 10, 1)}, 12.5, 15},
		{"shares count as what they are", 1, []Job{share(seconds("1", "", 0, 10, 1), 0.5), share(seconds("2", "", 0, 10, 1), 0.5)}, 10, 10},
		{"memory counts as its part of the card", 1, []Job{vram(seconds("1", "", 0, 10, 1), 8000), vram(seconds("2", "", 0, 10, 1), 8000)}, 13, 16},
		{"what can never run does not count", 1, []Job{seconds("1", "", 0, 10, 1), seconds("2", "", 0, 1000, 2)}, 10, 10},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			b := measured(t, "backfill", row.gpus, row.jobs...).Bounds
			if !near(b.FlowMeanS, row.flow) || !near(b.MakespanS, row.makespan) {
				t.Errorf("flow %g, makespan %g; want %g and %g", b.FlowMeanS, b.MakespanS, row.flow, row.makespan)
			}
		})
	}
}

func TestShortestRemainingWorkBoundsTheFlow(t *testing.T) {
	// Alone at first, then set aside for the shorter, then finished: flows 10
	// and 2 for the machine as one.
	tasks := []task{{release: 0, work: 8, length: 1}, {release: 3, work: 2, length: 1}}
	completions, _ := serve(tasks, func(w *work) float64 { return w.left })
	_, busy := serve(tasks, func(w *work) float64 { return w.task.work })
	// The first is worked on from 0 to 3 and from 5 to 10, the second from 3 to 5.
	if !near(completions, 15) || !near(busy, (1.5*3+7.5*5)/8+4) {
		t.Errorf("completions %g, busy dates %g", completions, busy)
	}
	// With 3 left of 8 the first stays ahead of one of 4.
	tasks = []task{{release: 0, work: 8, length: 1}, {release: 5, work: 4, length: 1}}
	if completions, _ := serve(tasks, func(w *work) float64 { return w.left }); !near(completions, 8+12) {
		t.Errorf("completions %g", completions)
	}
}

func TestQuantile(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(i + 1)
	}
	for q, want := range map[float64]float64{0: 1, 0.5: 50, 0.95: 95, 0.99: 99, 1: 100} {
		if got := Quantile(hundred, q); got != want {
			t.Errorf("quantile %g is %g, want %g", q, got, want)
		}
	}
	if Quantile([]float64(nil), 0.5) != 0 || Quantile([]float64{7}, 0.5) != 7 {
		t.Error("of none or of one")
	}
}

func TestAverageHasIntervals(t *testing.T) {
	replays := []Metrics{{Policy: "fifo", WaitMeanS: 10}, {Policy: "fifo", WaitMeanS: 14}, {Policy: "fifo", WaitMeanS: 18}}
	mean, intervals := average(replays)
	// The deviation is 4, that of the mean 4/√3, and with two degrees of
	// freedom the interval reaches 4.303 of them.
	if mean.Policy != "fifo" || mean.WaitMeanS != 14 || !near(intervals["wait_mean_s"], 4.303*4/math.Sqrt(3)) || len(intervals) != len(Figures()) {
		t.Errorf("%+v %v", mean, intervals)
	}
	if _, intervals := average(replays[:1]); len(intervals) != 0 {
		t.Errorf("one replay has intervals: %v", intervals)
	}
}

func TestStudentsQuantilesShrinkTowardsTheNormalOne(t *testing.T) {
	last := math.Inf(1)
	for degrees := 1; degrees < 200; degrees++ {
		q := studentT(degrees)
		if q > last || q < 1.96 {
			t.Fatalf("%d degrees: %g after %g", degrees, q, last)
		}
		last = q
	}
}

func TestPerturbedCopiesDifferALittleAndAreTheSameForEqualDraws(t *testing.T) {
	var jobs []Job
	for i := range 1000 {
		jobs = append(jobs, limited(seconds("", "", float64(100*i), 1000, 1), 2000))
	}
	jobs[0].Duration, jobs[0].Limit = 0, 0
	one, same := perturb(jobs, draws(1)), perturb(jobs, draws(1))
	if !reflect.DeepEqual(one, same) {
		t.Error("equal draws give different copies")
	}
	if other := perturb(jobs, draws(2)); reflect.DeepEqual(one, other) {
		t.Error("other draws give the same copy")
	}
	within, sum := 0, 0.0
	for i := 1; i < len(jobs); i++ {
		if moved := (one[i].Submit - jobs[i].Submit).Seconds(); moved < -100 || moved > 100 || one[i].Submit < 0 {
			t.Fatalf("an arrival moved by %g s", moved)
		}
		length := one[i].Duration.Seconds()
		sum += length
		if length > 900 && length < 1105 {
			within++
		}
		if one[i].timesOut() {
			t.Fatal("a job became one that its limit ends")
		}
	}
	if within < 600 || within > 760 || sum < 990_000 || sum > 1_020_000 {
		t.Errorf("%d of 999 durations are near, their mean is %g", within, sum/999)
	}
	if one[0].Duration != 0 || one[0].Limit != 0 {
		t.Errorf("nothing became something: %+v", one[0])
	}
}

// draws is a generator good enough to spread numbers in a test.
func draws(seed uint64) func() float64 {
	return func() float64 {
		seed = seed*6364136223846793005 + 1442695040888963407
		return float64(seed>>11) / (1 << 53)
	}
}
