package report

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"berth/internal/job/reason"
	"berth/internal/sched/sim"
	"berth/internal/tests/testkit"
	"berth/internal/text"
)

// someWork is a small lab on a bad day: a sweep, gangs, shares, one job that
// is too large and one that its limit ends.
func someWork() *sim.Workload {
	w := &sim.Workload{Source: "trace.csv", Machine: sim.Machine{GPUs: 2, VRAMMiB: 81920}}
	for i := range 30 {
		j := sim.Job{ID: fmt.Sprint(i), User: []string{"ann", "ann", "bob", "<cid>"}[i%4], GPUs: 1 + i%2, Submit: sim.Millis(i * 60_000), Duration: sim.Millis(200_000 + 40_000*(i%7))}
		if i%5 == 0 {
			j.GPUs, j.Share = 1, 0.5
		}
		w.Jobs = append(w.Jobs, j)
	}
	w.Jobs[3].GPUs = 12
	w.Jobs[4].Limit = 100_000
	for i := range w.Jobs {
		w.Places = append(w.Places, fmt.Sprintf("line %d", i+2))
	}
	return w
}

func replaysOf(t *testing.T, w *sim.Workload, seeds int, names ...string) []sim.Replayed {
	t.Helper()
	var policies []sim.Policy
	for _, name := range names {
		policy, err := sim.ParsePolicy(name)
		if err != nil {
			t.Fatal(err)
		}
		policies = append(policies, policy)
	}
	return compared(t, w, policies, sim.Choices{}, seeds)
}

func compared(t *testing.T, w *sim.Workload, policies []sim.Policy, c sim.Choices, seeds int) []sim.Replayed {
	t.Helper()
	replays, done := sim.Compare(w, policies, c, seeds, sim.Watch{})
	if !done {
		t.Fatal("it stopped by itself")
	}
	return replays
}

// someFigures are of four policies, one of which sets jobs aside: made up, as
// how they are shown does not depend on how well berth decides.
func someFigures(seeds int) []sim.Replayed {
	var replays []sim.Replayed
	for i, name := range []string{"fifo", "backfill", "conservative", "default"} {
		part := 1 / float64(1+i)
		r := sim.Replayed{Seeds: seeds, Metrics: sim.Metrics{
			Policy: name, Jobs: 29, Users: 3, WaitMeanS: 205149 * part, WaitP50S: 3600 * part, WaitP95S: 86400 * part, WaitP99S: 90000 * part, WaitMaxS: 369629 * part,
			BoundedSlowdownMean: 4389 * part, FlowMeanS: 210000 * part, MakespanS: 700000 * part, GPUAllocated: 0.9 - part/4, GPUUseful: 0.85 - part/4,
			Fragmentation: 0.004 * part, JainUsers: 1 - part, WorstOverMedianUser: 12 * part, Decisions: 1000 + float64(i), DecisionP50Ms: 0.01, DecisionP99Ms: 0.123,
			Bounds: sim.Bounds{FlowMeanS: 1178, MakespanS: 160000},
		}}
		if name == "default" {
			r.Preemptions, r.GPULost = 1234, 0.0123
		}
		if seeds > 1 {
			r.Interval95 = map[string]float64{"wait_mean_s": r.WaitMeanS / 20, "makespan_s": r.MakespanS / 50}
		}
		replays = append(replays, r)
	}
	return replays
}

func TestReplaysSideBySide(t *testing.T) {
	w := someWork()
	for name, seeds := range map[string]int{"simulate": 0, "simulate-seeds": 5} {
		replays := someFigures(seeds)
		for _, width := range []int{0, 80, 50} {
			drawn := (&Report{Work: w, Replays: replays}).Table(width, false)
			for line := range strings.Lines(drawn) {
				if n := text.Width(strings.TrimSuffix(line, "\n")); width > 0 && n > width {
					t.Errorf("%s: a line of %d columns on a screen of %d: %s", name, n, width, line)
				}
			}
			golden(t, fmt.Sprintf("%s-%d", name, width), drawn)
		}
	}
}

func TestAFigureIsRoundedToWhatIsWrittenOfIt(t *testing.T) {
	for seconds, want := range map[float64]string{
		0: "0s", 0.04: "0s", 9: "9s", 5.922: "5.9s", 9.96: "10s", 59.6: "1m00s", 3599.7: "1h00m", 7199: "2h00m", 7169: "1h59m", 86399: "1d0h", 100_000: "1d4h",
	} {
		if got := figureText(sim.Seconds, seconds); got != want {
			t.Errorf("%g s: %s, not %s", seconds, got, want)
		}
	}
}

func TestAFigureThatRoundsToNothingHasNoMargin(t *testing.T) {
	r := &sim.Replayed{Interval95: map[string]float64{"fragmentation": 0.0014, "gpu_allocated": 0.05}}
	r.Fragmentation, r.GPUAllocated = 0.0003, 0.5
	for _, f := range sim.Figures() {
		want := map[string]string{"fragmentation": "0.0 %", "gpu_allocated": "50.0 % ±10%"}[f.Name]
		if got := figureCell(&f, r); want != "" && got != want {
			t.Errorf("%s: %s, not %s", f.Name, got, want)
		}
	}
}

func TestCSVHasALineForEachPolicy(t *testing.T) {
	replays := replaysOf(t, someWork(), 3, "default", "fifo")
	replays[0].Unfinished, replays[0].LeftOut = 7, 3
	rows, err := csv.NewReader(bytes.NewReader((&Report{Replays: replays}).CSV())).ReadAll()
	if err != nil || len(rows) != 3 {
		t.Fatalf("%v %v", rows, err)
	}
	value := func(row int, title string) string {
		for i, name := range rows[0] {
			if name == title {
				return rows[row][i]
			}
		}
		t.Fatalf("no column %s in %v", title, rows[0])
		return ""
	}
	if value(1, "policy") != "default" || value(2, "policy") != "fifo" || value(2, "wait_mean_s") != plain(replays[1].WaitMeanS) ||
		value(1, "unfinished") != "7" || value(1, "left_out") != "3" || value(2, "bound_makespan_s") != plain(replays[1].Bounds.MakespanS) || value(1, "interval95_wait_max_s") != plain(replays[0].Interval95["wait_max_s"]) {
		t.Errorf("%v", rows)
	}
}

var update = testkit.Update

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s changed (-update rewrites it):\n%s", name, diff)
	}
}

func TestWhatIsNotReplayedIsSaid(t *testing.T) {
	for _, row := range []struct {
		work sim.Workload
		want string
	}{
		{sim.Workload{}, ""},
		{sim.Workload{LeftOut: 1}, "1 job left out: without a GPU"},
		{sim.Workload{LeftOut: 1200, Origin: sim.OfHistory}, "1,200 jobs left out: never started, or had no GPU"},
		{sim.Workload{LeftOut: 2, KeptOff: 1, Origin: sim.OfSnapshot, CardsLeftOut: 1, Unknown: 2, Typical: 3 * time.Hour},
			"1 GPU left out: paused or unhealthy, and without a job\n2 queued jobs without an estimate, assumed to run for 3h00m\n2 jobs left out: without a GPU, or for GPUs that are paused or unhealthy"},
	} {
		if got := strings.Join(Before(&row.work), "\n"); got != row.want {
			t.Errorf("%+v: %s, want %s", row.work, got, row.want)
		}
	}
}

func TestJobsThatAreInNoFigureAreNamed(t *testing.T) {
	w := &sim.Workload{Machine: sim.Machine{GPUs: 2, VRAMMiB: 24576}, Places: []string{"job 7", "job 8", "job 9"}}
	r := &Report{Work: w, Replays: []sim.Replayed{{}, {}}}
	r.Replays[0].Policy, r.Replays[0].Result.Fates = "fifo", []sim.Fate{{}, {Refused: &reason.Reason{}}, {}}
	r.Replays[1].Policy, r.Replays[1].Result.Fates = "default", []sim.Fate{{}, {}, {Unfinished: true}}
	said := strings.Join(r.After(), "\n")
	for _, want := range []string{
		"1 job can never run on 2 GPUs of 24 GiB and is not counted; job 8: ",
		"under default, 1 job still waits for memory of external processes and is not counted, such as job 9",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("it says %q, without %q", said, want)
		}
	}
}

// TestAPageOfASnapshotSaysWhatItAssumes: it begins when the snapshot was taken.
func TestAPageOfASnapshotSaysWhatItAssumes(t *testing.T) {
	w := someWork()
	w.Origin, w.TakenAt, w.Begin, w.Unknown, w.Typical = sim.OfSnapshot, time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), 60_000, 1, time.Hour
	replays := replaysOf(t, w, 0, "default")
	replays[0].Preemptions, replays[0].GPUFixed, replays[0].HostFull = 3, 0.5, 0.005
	page, err := (&Report{Work: w, Replays: replays, Park: &sim.Parking{Who: sim.SingleGPU, MemoryMiB: 1536}, Asked: "--park-cost 20"}).Page()
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"from the snapshot of 2026-03-01 12:00:00", "1 queued job without an estimate, assumed to run for 1h00m.", "Flags: --park-cost 20.", "Jobs with one GPU can be parked, in 1.5 GiB of host memory. default is bound: jobs that cannot give way had 50 % of the GPU time while others waited.", "Time begins with the snapshot"} {
		if !strings.Contains(string(page), word) {
			t.Errorf("the page lacks %s", word)
		}
	}
}
