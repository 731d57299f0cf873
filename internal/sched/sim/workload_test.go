package sim

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"berth/internal/job"
)

func TestHistoryBecomesAWorkload(t *testing.T) {
	ago := func(d time.Duration) *time.Time { at := noon.Add(-d); return &at }
	views := []job.View{
		{ID: "1", User: "ann", GPUs: 2, Priority: 3, VRAMMiB: new(int64(2048)), SubmittedAt: ago(time.Hour), StartedAt: ago(50 * time.Minute), EndedAt: ago(20 * time.Minute)},
		{ID: "2", User: "bob", GPUs: 1, Share: new(0.5), SubmittedAt: ago(2 * time.Hour), StartedAt: ago(2 * time.Hour), EndedAt: ago(time.Hour), ParkedS: 600},
		{ID: "5", User: "cid", GPUs: 1, SubmittedAt: ago(time.Hour), StartedAt: ago(time.Hour), EndedAt: ago(0), Parkings: 1},
		{ID: "6", User: "cid", GPUs: 1, SubmittedAt: ago(time.Hour), StartedAt: ago(time.Hour), EndedAt: ago(0), Parkings: 1, ParkRefused: new("it uses managed memory")},
		{ID: "7", User: "cid", GPUs: 2, SubmittedAt: ago(time.Hour), StartedAt: ago(time.Hour), EndedAt: ago(0), Checkpoints: &job.CheckpointsView{EveryS: new(1800.0), RanS: 4000, LostS: 400, GraceS: 30, StoppingS: 5}, Preemptions: 2},
		{ID: "8", User: "cid", GPUs: 2, SubmittedAt: ago(time.Hour), StartedAt: ago(time.Hour), EndedAt: ago(0), Checkpoints: &job.CheckpointsView{GraceS: 20}},
		{ID: "9", User: "cid", GPUs: 2, SubmittedAt: ago(time.Hour), StartedAt: ago(time.Hour), EndedAt: ago(0), Checkpoints: &job.CheckpointsView{EveryS: new(60.0), GraceS: 20, SavedAt: ago(0)}},
		{ID: "3", User: "bob", GPUs: 1, SubmittedAt: ago(3 * time.Hour), EndedAt: ago(2 * time.Hour)},
		{ID: "4", User: "bob", GPUs: 0, SubmittedAt: ago(3 * time.Hour), StartedAt: ago(2 * time.Hour), EndedAt: ago(time.Hour)},
	}
	w := FromHistory(views, Machine{GPUs: 1}, 120_000)
	want := []Job{
		{ID: "1", User: "ann", GPUs: 2, Priority: 3, VRAMMiB: 2048, Submit: 3_600_000, Duration: 1_800_000},
		{ID: "2", User: "bob", GPUs: 1, Share: 0.5, Duration: 3_000_000},
		{ID: "5", User: "cid", GPUs: 1, Submit: 3_600_000, Duration: 3_600_000, Parks: CanPark},
		{ID: "6", User: "cid", GPUs: 1, Submit: 3_600_000, Duration: 3_600_000, Parks: CannotPark},
		{ID: "7", User: "cid", GPUs: 2, Submit: 3_600_000, Duration: 7_080_000, Saves: 1_800_000, Silent: true, Ends: Ends{30_000, 2500}},
		{ID: "8", User: "cid", GPUs: 2, Submit: 3_600_000, Duration: 3_600_000, Saves: WhenTold, Ends: Ends{20_000, 20_000}},
		{ID: "9", User: "cid", GPUs: 2, Submit: 3_600_000, Duration: 3_600_000, Saves: 60_000, Ends: Ends{20_000, 2500}},
	}
	if !reflect.DeepEqual(w.Jobs, want) || w.LeftOut != 2 || w.Places[1] != "job 2" {
		t.Errorf("%+v", w)
	}
}

func TestTheGeneratorIsSplitMix64(t *testing.T) {
	draw := uniform(0)
	// The first numbers of the reference for the seed 0.
	for _, want := range []uint64{0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f} {
		if got := draw(); got != float64(want>>11)/(1<<53) {
			t.Errorf("drew %v, want %x", got, want)
		}
	}
}

// TestSeedsGiveTheSameFiguresAgain: and others than the workload as it is.
func TestSeedsGiveTheSameFiguresAgain(t *testing.T) {
	w := &Workload{Machine: Machine{GPUs: 2, VRAMMiB: 81920}}
	for i := range 30 {
		w.Jobs = append(w.Jobs, Job{ID: fmt.Sprint(i), User: fmt.Sprint(i % 3), GPUs: 1 + i%2, Submit: Millis(i * 60_000), Duration: Millis(200_000 + 40_000*(i%7))})
	}
	fair, err := ParsePolicy("fair")
	if err != nil {
		t.Fatal(err)
	}
	run := func(seeds int) Replayed { return compared(t, w, []Policy{fair}, Choices{}, seeds)[0] }
	one, other, plainly := run(4), run(4), run(0)
	if one.WaitMeanS != other.WaitMeanS || one.Interval95["wait_mean_s"] != other.Interval95["wait_mean_s"] {
		t.Errorf("%+v\n%+v", one.Metrics, other.Metrics)
	}
	if one.WaitMeanS == plainly.WaitMeanS || one.Interval95["wait_mean_s"] <= 0 || len(plainly.Interval95) > 0 {
		t.Errorf("%+v\n%+v", one, plainly)
	}
}
