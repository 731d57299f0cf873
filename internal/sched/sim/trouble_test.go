package sim

import (
	"fmt"
	"testing"
	"time"

	"berth/internal/sched"
)

func using(j Job, mib int64) Job { j.UsedMiB = mib; return j }

func TestAGangLosesEverythingWithOneOfItsCards(t *testing.T) {
	in := input{
		Jobs:    []Job{seconds("gang", "", 0, 100, 2), seconds("single", "", 0, 100, 1)},
		Machine: Machine{GPUs: 3, VRAMMiB: 10_000}, Policy: policy(t, "backfill"),
		Lost: []loss{{Card: 1, From: 40_000, Until: 70_000}},
	}
	in.Decide = func(s sched.State) sched.Plan {
		if p, queued := s.Queue.Get("0"); queued && s.Now.UnixMilli() > 0 && p.Since.UnixMilli() != 40_000 {
			t.Errorf("the gang waits since %v", p.Since)
		}
		return sched.Decide(s)
	}
	res := run(in)
	// Two cards are left, the single job is on one of them. At 70 its card is
	// back and the gang begins anew.
	gang, single := res.Fates[0], res.Fates[1]
	if len(gang.Segments) != 2 || gang.Segments[0].End != 40_000 || gang.Segments[1].Start != 70_000 || gang.End != 170_000 || gang.Wasted != 40_000 {
		t.Errorf("%+v", gang)
	}
	if single.Start != 0 || single.End != 100_000 || len(single.Segments) != 1 || single.Wasted != 0 {
		t.Errorf("%+v", single)
	}
	m := measure(in, res)
	if !near(res.WastedGPUSeconds, 80) || !near(res.UsefulGPUSeconds, 300) || !near(m.GPUUseful, 300/(3*170.0)) || !near(m.WaitMaxS, 70) {
		t.Errorf("%+v", m)
	}
}

func TestWhatWaitsForACardThatNeverComesBackIsUnfinished(t *testing.T) {
	in := input{
		Jobs:    []Job{seconds("both", "", 0, 100, 2), seconds("one", "", 50, 10, 1)},
		Machine: Machine{GPUs: 2, VRAMMiB: 10_000}, Policy: policy(t, "backfill"), Lost: []loss{{Card: 0, From: 40_000}},
	}
	res := run(in)
	if !res.Fates[0].Unfinished || res.Fates[0].Wasted != 40_000 || res.Fates[1].Unfinished || res.Fates[1].End == 0 {
		t.Errorf("%+v", res.Fates)
	}
	if m := measure(in, res); m.Unfinished != 1 || m.Jobs != 1 {
		t.Errorf("%+v", m)
	}
}

func TestAJobThatWasParkedIsLostOnlyWithTheCardsItIsOn(t *testing.T) {
	in := oneCard(t, nil)
	in.Lost = []loss{{Card: 0, From: 55_000, Until: 57_000}}
	res := run(in)
	// The short job is on the card and begins anew at 57; the long one is
	// parked and keeps what it did. It goes first, as it came first.
	if res.Fates[0].Wasted != 0 || res.Fates[1].Wasted != 4_999 || len(res.Fates[1].Segments) != 2 {
		t.Errorf("%+v", res.Fates)
	}
	in = oneCard(t, nil)
	in.Lost = []loss{{Card: 0, From: 45_000, Until: 57_000}}
	// While it leaves, it is on its card still.
	if res = run(in); res.Fates[0].Wasted != 30_000 || res.Fates[0].Overhead != 15_000 {
		t.Errorf("%+v", res.Fates)
	}
}

func TestForeignProcesses(t *testing.T) {
	rows := []struct {
		name    string
		foreign Foreign
		jobs    []Job
		starts  []float64
	}{
		{"take a card from who wants it idle", Foreign{Card: 0, From: 0, Until: 30_000, MiB: 300},
			[]Job{seconds("1", "", 0, 10, 1)}, []float64{30}},
		{"leave the rest to who declares", Foreign{Card: 0, From: 0, Until: 30_000, MiB: 6000},
			[]Job{vram(seconds("1", "", 0, 10, 1), 3000), vram(seconds("2", "", 0, 10, 1), 3000)}, []float64{0, 10}},
		{"get what a job leaves them, and all once it is gone", Foreign{Card: 0, From: 5000, Until: 30_000, MiB: 9000},
			[]Job{seconds("1", "", 0, 10, 1), vram(seconds("2", "", 6, 10, 1), 3000)}, []float64{0, 30}},
		{"come on top of one another", Foreign{Card: 0, From: 0, Until: 20_000, MiB: 2500},
			[]Job{vram(seconds("1", "", 0, 10, 1), 5000)}, []float64{20}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			res := run(input{
				Jobs: row.jobs, Machine: Machine{GPUs: 1, VRAMMiB: 10_000}, Policy: policy(t, "fifo"),
				Foreign: []Foreign{row.foreign, {Card: 0, From: 0, Until: 40_000, MiB: 100}, {Card: 0, From: 0, Until: 25_000, MiB: row.foreign.MiB % 3000}},
			})
			for i, want := range row.starts {
				if got := res.Fates[i].Start; got != MillisOf(want) {
					t.Errorf("job %d starts at %d, want %g s", i, got, want)
				}
			}
		})
	}
}

func TestOutOfMemory(t *testing.T) {
	rows := []struct {
		name   string
		jobs   []Job
		ooms   []int
		starts []float64 // -1: refused
	}{
		{"who passes a declaration with room left stays", []Job{using(vram(seconds("1", "", 0, 10, 1), 2000), 6000)}, []int{0}, []float64{0}},
		{"of two that pass theirs at once, the second fails and waits for what it needs",
			[]Job{using(vram(seconds("1", "", 0, 10, 1), 2000), 6000), using(vram(seconds("2", "", 0, 10, 1), 2000), 6000)},
			[]int{0, 1}, []float64{0, 10}},
		{"what runs is measured, so that a later one waits from the beginning",
			[]Job{using(vram(seconds("1", "", 0, 10, 1), 2000), 8000), vram(seconds("2", "", 1, 10, 1), 2000)},
			[]int{0, 0}, []float64{0, 10}},
		{"a share is a declaration too",
			[]Job{share(seconds("1", "", 0, 10, 1), 0.5), using(share(seconds("2", "", 0, 10, 1), 0.5), 6000)},
			[]int{0, 1}, []float64{0, 10}},
		{"who needs more than a card has is refused when that is known",
			[]Job{using(vram(seconds("1", "", 0, 10, 1), 2000), 20_000)}, []int{1}, []float64{-1}},
		{"who keeps to a declaration does not fail for one who does not",
			[]Job{using(vram(seconds("1", "", 0, 10, 1), 2000), 8000), vram(seconds("2", "", 0, 10, 1), 4000)}, []int{0, 0}, []float64{0, 0}},
		{"who uses less than declared fails nobody",
			[]Job{using(vram(seconds("1", "", 0, 10, 1), 4000), 1000), vram(seconds("2", "", 0, 10, 1), 4000)}, []int{0, 0}, []float64{0, 0}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			in := input{Jobs: row.jobs, Machine: Machine{GPUs: 1, VRAMMiB: 10_000}, Policy: policy(t, "fifo")}
			res := run(in)
			sum := 0
			for i, f := range res.Fates {
				sum += row.ooms[i]
				if f.OOMs != row.ooms[i] || (f.Refused != nil) != (row.starts[i] < 0) || f.Refused == nil && f.Start != MillisOf(row.starts[i]) {
					t.Errorf("job %d: %+v, want %d failures and a start at %g", i, f, row.ooms[i], row.starts[i])
				}
			}
			if m := measure(in, res); m.OOMs != float64(sum) {
				t.Errorf("%g failures in all, want %d", m.OOMs, sum)
			}
		})
	}
}

func TestMemoryThatStrangersHoldIsNotThere(t *testing.T) {
	in := input{
		Jobs:    []Job{using(vram(seconds("1", "", 0, 10, 1), 2000), 6000)},
		Machine: Machine{GPUs: 1, VRAMMiB: 10_000}, Policy: policy(t, "fifo"), Foreign: []Foreign{{Card: 0, Until: 30_000, MiB: 5000}},
	}
	if f := run(in).Fates[0]; f.OOMs != 1 || f.Start != 30_000 {
		t.Errorf("%+v", f)
	}
}

func TestAJobThatNearlyFillsItsCardCanBeParked(t *testing.T) {
	in := oneCard(t, nil)
	in.Jobs[0] = using(vram(in.Jobs[0], 2000), 9900)
	if f := run(in).Fates[0]; f.Refused != nil || f.Preemptions != 1 || f.OOMs != 0 || f.End != 150_002 {
		t.Errorf("%+v", f)
	}
}

func TestAJobThatWasBroughtBackAndThenLostBeginsAtOnce(t *testing.T) {
	in := oneCard(t, nil)
	in.Lost = []loss{{Card: 0, From: 90_000, Until: 95_000}}
	// All is lost, and nothing has to be brought back: 100 s from 95 on.
	if f := run(in).Fates[0]; f.End != 195_000 || f.Wasted != 30_000+9_998 || f.Overhead != 40_002 {
		t.Errorf("%+v", f)
	}
}

func TestAPlanThatHopesForEverIsNotAskedForEver(t *testing.T) {
	in := input{
		Jobs:    []Job{seconds("1", "", 0, 100, 1)},
		Machine: Machine{GPUs: 1, VRAMMiB: 10_000}, Policy: policy(t, "fifo"), Lost: []loss{{Card: 0}},
	}
	in.Decide = func(s sched.State) sched.Plan {
		plan := sched.Decide(s)
		plan.Again = s.Now.Add(time.Hour)
		return plan
	}
	if res := run(in); !res.Fates[0].Unfinished || res.Decisions > 2*maxIdle {
		t.Errorf("%+v after %d decisions", res.Fates[0], res.Decisions)
	}
}

func TestWhatWaitsAlreadyStartsWhenTheReplayBegins(t *testing.T) {
	in := input{
		Jobs:    []Job{seconds("1", "", -40, 10, 1), seconds("2", "", 3, 10, 1)},
		Machine: Machine{GPUs: 1, VRAMMiB: 10_000}, Policy: policy(t, "fifo"),
	}
	res := run(in)
	if res.Began != 0 || res.Fates[0].Start != 0 || res.Fates[1].Start != 10_000 {
		t.Errorf("%+v", res)
	}
	in.Begin = 5000
	if res = run(in); res.Began != 5000 || res.Fates[0].Start != 5000 || res.Fates[1].Start != 15_000 {
		t.Errorf("%+v", res)
	}
}

func TestAParkedJobAsksForWhatItWasSeenToTake(t *testing.T) {
	in := oneCard(t, nil)
	in.Jobs = []Job{using(vram(seconds("1", "ann", 0, 100, 1), 2000), 6000), vram(seconds("2", "bob", 30, 10, 1), 9000)}
	in.Decide = scripted(map[Millis]sched.Plan{30_000: aside("0", "1")}, func(now Millis, s sched.State) {
		if p, queued := s.Queue.Get("0"); now > 0 && queued && p.Request.VRAMMiB != 6000 {
			t.Errorf("at %d it asks for %d MiB", now, p.Request.VRAMMiB)
		}
	})
	if res := run(in); res.OOMs != 0 || res.Fates[0].Preemptions != 1 {
		t.Errorf("%+v", res)
	}
}

func TestAReplayBeginsInTheMiddle(t *testing.T) {
	in := input{
		Jobs: []Job{
			seconds("waits", "ann", -50, 10, 2), seconds("runs", "bob", -100, 100, 1),
			seconds("overdue", "bob", -500, 60, 1), seconds("comes", "cid", 5, 10, 1),
		},
		Machine: Machine{GPUs: 3, VRAMMiB: 10_000}, Policy: policy(t, "fifo"),
		Running: []Running{{Job: 2, Cards: []int{1}, Ran: 400_000}, {Job: 1, Cards: []int{2}, Ran: 80_000}},
	}
	in.Decide = func(s sched.State) sched.Plan {
		for _, h := range s.Allocations {
			if h.Job == "1" && (h.Started.UnixMilli() != -80_000 || h.Waited != 20*time.Second) {
				t.Errorf("%+v", h)
			}
		}
		return sched.Decide(s)
	}
	res := run(in)
	want := []string{"{0 10000 [0 1]}", "{-80000 20000 [2]}", "{-60000 0 [1]}", "{10000 20000 [0]}"}
	for i, segment := range want {
		if f := res.Fates[i]; len(f.Segments) != 1 || fmt.Sprint(f.Segments[0]) != segment || f.Start != f.Segments[0].Start || f.End != f.Segments[0].End {
			t.Errorf("%s: %+v, want %s", in.Jobs[i].ID, f, segment)
		}
	}
	m := measure(in, res)
	// Given out since the beginning: 20 + 20 + 10 of 3 × 20 s.
	if !near(m.MakespanS, 20) || !near(m.GPUAllocated, 50.0/60) || !near(res.UsefulGPUSeconds, 50) {
		t.Errorf("%+v", m)
	}
	if !near(m.WaitMeanS, (50+20+440+5)/4.0) || !near(m.FlowMeanS, (60+120+500+15)/4.0) {
		t.Errorf("%+v", m)
	}
	if m.Bounds.FlowMeanS > m.FlowMeanS || m.Bounds.MakespanS > m.MakespanS || m.Bounds.MakespanS < 20 {
		t.Errorf("%+v", m.Bounds)
	}
}

func TestNothingStartsBeforeItIsSubmitted(t *testing.T) {
	in := input{
		Jobs:    []Job{seconds("1", "", -10, 100, 1), seconds("2", "", 0, 10, 1)},
		Machine: Machine{GPUs: 1, VRAMMiB: 10_000}, Policy: policy(t, "fifo"), Running: []Running{{Job: 0, Cards: []int{0}, Ran: 60_000}},
	}
	in.Decide = func(s sched.State) sched.Plan {
		if len(s.Allocations) > 0 && s.Allocations[0].Waited < 0 {
			t.Errorf("%+v", s.Allocations[0])
		}
		return sched.Decide(s)
	}
	if res := run(in); res.Fates[1].Start != 40_000 {
		t.Errorf("%+v", res.Fates)
	}
}

func TestWhatUsersHadBeforeCounts(t *testing.T) {
	in := input{
		// On a date, so that usage is as old as the replay and not as the era.
		Jobs:    []Job{seconds("1", "ann", 1.7e9, 10, 1), seconds("2", "bob", 1.7e9, 10, 1)},
		Machine: Machine{GPUs: 1, VRAMMiB: 10_000}, Policy: policy(t, "fair"), Usage: map[string]float64{"ann": 50},
	}
	if res := run(in); res.Fates[0].Start != MillisOf(1.7e9+10) || res.Fates[1].Start != MillisOf(1.7e9) {
		t.Errorf("%+v", res.Fates)
	}
}
