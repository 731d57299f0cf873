package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/sched"
)

// parkingOff is sched.Decide as if nothing could be parked: what a script does
// not say happens in the usual way.
func parkingOff(s sched.State) sched.Plan {
	s.Allocations = slices.Clone(s.Allocations)
	for i := range s.Allocations {
		s.Allocations[i].Preempt = sched.Preempt{}
	}
	return sched.Decide(s)
}

// scripted adds to the usual plans what a script says at some moments.
func scripted(script map[Millis]sched.Plan, seen func(now Millis, s sched.State)) func(sched.State) sched.Plan {
	return func(s sched.State) sched.Plan {
		now := Millis(s.Now.UnixMilli())
		if seen != nil {
			seen(now, s)
		}
		plan := parkingOff(s)
		said := script[now]
		plan.Victims, plan.Again = said.Victims, said.Again
		said.Victims = nil // once
		script[now] = said
		return plan
	}
}

func aside(job, forJob string) sched.Plan {
	return sched.Plan{Victims: []sched.Victim{{Job: job, For: forJob, Mode: sched.Park}}}
}

// oneCard is a long job on a machine of one card that is set aside for a short
// one after half a minute, at 20 s and a bit each way.
func oneCard(t *testing.T, seen func(Millis, sched.State)) input {
	return input{
		Jobs:    []Job{limited(seconds("long", "ann", 0, 100, 1), 1000), seconds("short", "bob", 30, 10, 1)},
		Machine: Machine{GPUs: 1, VRAMMiB: 10_000}, Policy: policy(t, Default), Park: &Parking{EachWay: 20_001},
		Estimates: Perfect, Decide: scripted(map[Millis]sched.Plan{30_000: aside("0", "1")}, seen),
	}
}

func TestAJobThatIsSetAsideGoesOnWhereItWas(t *testing.T) {
	in := oneCard(t, nil)
	res := run(in)
	// It leaves from 30 to 50.001, the other runs until 60.001, and from 80.002
	// on, brought back, it does the 70 s that it lacks.
	long := Fate{
		Start: 0, End: 150_002, Cards: []int{0}, Preemptions: 1, Overhead: 40_002,
		Segments: []Segment{{0, 50_001, []int{0}}, {60_001, 150_002, []int{0}}},
	}
	short := Fate{Start: 50_001, End: 60_001, Cards: []int{0}, Segments: []Segment{{50_001, 60_001, []int{0}}}}
	for i, want := range []Fate{long, short} {
		if got := res.Fates[i]; fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Errorf("%s:\n%+v, want\n%+v", in.Jobs[i].ID, got, want)
		}
	}
	m := measure(in, res)
	for name, pair := range map[string][2]float64{
		"wait_mean_s": {m.WaitMeanS, (50.002 + 20.001) / 2}, "wait_max_s": {m.WaitMaxS, 50.002},
		"flow_mean_s": {m.FlowMeanS, (150.002 + 30.001) / 2}, "makespan_s": {m.MakespanS, 150.002},
		"gpu_allocated": {m.GPUAllocated, 1}, "gpu_useful": {m.GPUUseful, 110 / 150.002}, "gpu_lost": {m.GPULost, 40.002 / 150.002},
		"preemptions": {m.Preemptions, 1}, "slowdown": {m.BoundedSlowdownMean, (150.002/100 + 30.001/10) / 2},
	} {
		if !near(pair[0], pair[1]) {
			t.Errorf("%s is %g, want %g", name, pair[0], pair[1])
		}
	}
}

func TestWhatSchedIsToldOfAJobThatIsSetAside(t *testing.T) {
	at := func(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
	seen := map[Millis]bool{}
	in := oneCard(t, func(now Millis, s sched.State) {
		switch first := !seen[now]; now {
		case 30_000:
			if h := s.Allocations[0]; first && (h.User != "ann" || !h.Started.Equal(at(0)) || !h.Submitted.Equal(at(0)) || h.BeingPreempted || h.RanBefore != 0 || h.Waited != 0 ||
				h.Run.Mid != 100*time.Second || h.Limit != 1000*time.Second || h.Preempt.Mode != sched.Park || h.Preempt.StopTime != 20_001*time.Millisecond || h.Preempt.ResumeTime != h.Preempt.StopTime) {
				t.Errorf("running: %+v", h)
			}
			if p, _ := s.Queue.Get("1"); p.User != "bob" || !p.Submitted.Equal(at(30_000)) || !p.Since.Equal(at(30_000)) || p.Seq != 1 || p.Run.High != 10*time.Second || p.RanBefore != 0 {
				t.Errorf("waiting: %+v", p)
			}
		case 50_001:
			// It had its card until now, moving included.
			if p, queued := s.Queue.Get("0"); !queued || !p.Submitted.Equal(at(0)) || !p.Since.Equal(at(50_001)) || p.RanBefore != 50_001*time.Millisecond || p.Run.Mid != 120_001*time.Millisecond || p.Limit != 949_999*time.Millisecond || p.Seq != 0 {
				t.Errorf("set aside: %+v", p)
			}
		case 70_000:
			if h := s.Allocations[0]; h.Job != "0" || h.RanBefore != 50_001*time.Millisecond || h.Waited != 11*time.Second || !h.Started.Equal(at(61_001)) || h.Limit != 949_999*time.Millisecond || h.Preempt.Mode != "" {
				t.Errorf("brought back: %+v", h)
			}
		case 81_002:
			if h := s.Allocations[0]; h.Job != "0" || h.Preempt.Mode != sched.Park {
				t.Errorf("back: %+v", h)
			}
		}
		seen[now] = true
	})
	in.Jobs = append(in.Jobs, seconds("late", "cid", 40, 1, 1), seconds("later", "cid", 70, 1, 1))
	in.Decide = func(decide func(sched.State) sched.Plan) func(sched.State) sched.Plan {
		return func(s sched.State) sched.Plan {
			if now := s.Now.UnixMilli(); now == 40_000 {
				if h := s.Allocations[0]; !h.BeingPreempted || h.PreemptedFor != "1" || !h.FreeBy.Equal(at(50_001)) || h.Job != "0" {
					t.Errorf("leaving: %+v", h)
				}
			}
			return decide(s)
		}
	}(in.Decide)
	run(in)
	for _, moment := range []Millis{30_000, 40_000, 50_001, 60_001, 61_001, 70_000, 81_002} {
		if !seen[moment] {
			t.Errorf("nothing was decided at %d", moment)
		}
	}
}

func TestAPlanIsAskedAgainWhenItWantsToBe(t *testing.T) {
	var asked []Millis
	in := input{
		Jobs:    []Job{seconds("1", "", 0, 10, 1), seconds("2", "", 0, 1, 1)},
		Machine: Machine{GPUs: 1, VRAMMiB: 10_000}, Policy: policy(t, "fifo"),
		Decide: scripted(map[Millis]sched.Plan{
			0:    {Again: time.UnixMilli(3000).Add(time.Microsecond)}, // not before it
			3001: {Again: time.UnixMilli(2000)},                       // time goes on all the same
		}, func(now Millis, _ sched.State) { asked = append(asked, now) }),
	}
	if run(in); !slices.Equal(asked, []Millis{0, 0, 3001, 3002, 10_000}) {
		t.Errorf("asked at %v", asked)
	}
}

func TestAJobIsNotSetAsideWhileItIsBroughtBack(t *testing.T) {
	in := oneCard(t, nil)
	in.Jobs = append(in.Jobs, seconds("third", "cid", 70, 5, 1))
	in.Decide = scripted(map[Millis]sched.Plan{30_000: aside("0", "1"), 70_000: aside("0", "2")}, nil)
	wantPanic(t, `by "park", expected ""`, func() { run(in) })
}

func TestParkingThatCostsNothing(t *testing.T) {
	in := oneCard(t, nil)
	in.Park = &Parking{}
	res := run(in)
	if a, b := res.Fates[0], res.Fates[1]; a.End != 110_000 || b.Start != 30_000 || b.End != 40_000 || a.Overhead != 0 {
		t.Errorf("%+v\n%+v", a, b)
	}
}

func TestAPlanThatSetsAsideWhatItCannotIsABug(t *testing.T) {
	rows := []struct {
		name, want string
		script     map[Millis]sched.Plan
	}{
		{"a job that leaves already", "preempted twice", map[Millis]sched.Plan{30_000: aside("0", "1"), 31_000: aside("0", "1")}},
		{"a job that waits", "not running", map[Millis]sched.Plan{30_000: aside("1", "0")}},
		{"a job that is over", "not running", map[Millis]sched.Plan{101_000: aside("0", "1")}},
		{"a job of no replay", "has the key", map[Millis]sched.Plan{30_000: aside("7", "1")}},
		{"in a way the job does not allow", `by "requeue"`, map[Millis]sched.Plan{
			30_000: {Victims: []sched.Victim{{Job: "0", For: "1", Mode: sched.Requeue}}},
		}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			in := oneCard(t, nil)
			in.Jobs = append(in.Jobs, seconds("3", "", 31, 10, 1), seconds("4", "", 101, 10, 1))
			in.Decide = scripted(row.script, nil)
			wantPanic(t, row.want, func() { run(in) })
		})
	}
}

func wantPanic(t *testing.T, want string, do func()) {
	t.Helper()
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
			t.Errorf("panics with %q, not with %q", got, want)
		}
	}()
	do()
}

func TestAPlanThatGivesACardAwayTwiceIsABug(t *testing.T) {
	two := func(a, b Job) input {
		return input{Jobs: []Job{a, b}, Machine: Machine{GPUs: 1, VRAMMiB: 10_000}, Policy: policy(t, "fifo")}
	}
	haunted := two(vram(seconds("1", "", 0, 10, 1), 5000), seconds("2", "", 9, 1, 1))
	haunted.Foreign = []Foreign{{Card: 0, MiB: 6000}}
	broken := two(seconds("1", "", 0, 10, 1), seconds("2", "", 9, 1, 1))
	broken.Lost = []loss{{Card: 0}}
	rows := []struct {
		name, want string
		in         input
	}{
		{"to a job beside an external process", "overbooked by 1000 MiB", haunted},
		{"that is lost", "which is lost", broken},
		{"to two that take no neighbour", "with an exclusive job", two(seconds("1", "", 0, 10, 1), seconds("2", "", 1, 10, 1))},
		{"to more than a whole in shares", "more than once", two(share(seconds("1", "", 0, 10, 1), 0.6), share(seconds("2", "", 1, 10, 1), 0.5))},
		{"to more memory than it has", "overbooked by 1 MiB", two(vram(seconds("1", "", 0, 10, 1), 5001), vram(seconds("2", "", 1, 10, 1), 5000))},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			in := row.in
			in.Decide = func(s sched.State) sched.Plan {
				s.Allocations, s.Cards = nil, in.Machine.cards() // a plan that knows of nothing that runs
				return sched.Decide(s)
			}
			wantPanic(t, row.want, func() { run(in) })
		})
	}
}

func TestWhatParkingCosts(t *testing.T) {
	m := Machine{GPUs: 8, VRAMMiB: 10_000}
	copying := &Parking{BytesPerSecond: 1 << 30}
	rows := []struct {
		name string
		park *Parking
		job  Job
		want Millis
	}{
		{"the same for every job", &Parking{EachWay: 20_000}, seconds("", "", 0, 1, 8), 20_000},
		{"a declaration is copied from each card", copying, vram(seconds("", "", 0, 1, 4), 1024), 4000},
		{"a share is copied as such", copying, share(seconds("", "", 0, 1, 1), 0.5), 4883},
		{"who declares nothing may have filled its cards", copying, seconds("", "", 0, 1, 2), 19_532},
		{"what is really used is what is copied", copying, Job{GPUs: 1, UsedMiB: 2048}, 2000},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			if p := row.park.cost(m, &row.job); millisFor(p.StopTime) != row.want || millisFor(p.ResumeTime) != row.want {
				t.Errorf("%v and %v, want %d", p.StopTime, p.ResumeTime, row.want)
			}
		})
	}
}

func TestPoliciesThatParkNothingAreTheSameWithParking(t *testing.T) {
	jobs := tenThousand(49)[:600]
	for i := range jobs {
		jobs[i].Priority = i % 7 / 6
	}
	for _, p := range Policies() {
		in := input{Jobs: jobs, Machine: Machine{GPUs: 8, VRAMMiB: 81_920}, Policy: p}
		without := measure(in, run(in))
		in.Park = &Parking{EachWay: 20_000}
		with := measure(in, run(in))
		parks := p.Name == Default || p.Name == "las"
		if without.Preemptions != 0 || parks != (with.Preemptions > 0) || !parks && with != without {
			t.Errorf("%s:\n%+v\nwith parking\n%+v", p.Name, without, with)
		}
	}
}

// parkedBy replays two long jobs and a short one that comes later, on two cards.
func parkedBy(t *testing.T, park Parking, change func(jobs []Job)) Result {
	t.Helper()
	hour := 3600.0
	jobs := []Job{seconds("long", "", 0, 10*hour, 1), seconds("longer", "", 0, 20*hour, 1), seconds("short", "", 2*hour, 60, 1)}
	if change != nil {
		change(jobs)
	}
	return run(input{Jobs: jobs, Machine: Machine{GPUs: 2, VRAMMiB: 10_000}, Policy: policy(t, Default), Park: &park})
}

func TestTheLimitsOfARealMachine(t *testing.T) {
	rows := []struct {
		name   string
		park   Parking
		change func(jobs []Job)
		parked bool
	}{
		{"a job with one GPU is parked", Parking{Who: SingleGPU}, nil, true},
		{"one with two is not", Parking{Who: SingleGPU}, func(jobs []Job) { jobs[0].GPUs, jobs[1].GPUs = 2, 2 }, false},
		{"unless every job can be", Parking{}, func(jobs []Job) { jobs[0].GPUs, jobs[1].GPUs = 2, 2 }, true},
		{"or it says so", Parking{Who: SingleGPU}, func(jobs []Job) { jobs[0].GPUs, jobs[0].Parks = 2, CanPark }, true},
		{"jobs that say nothing stay", Parking{Who: ThatAskFor}, nil, false},
		{"one that asks for it does not", Parking{Who: ThatAskFor}, func(jobs []Job) { jobs[1].Parks = CanPark }, true},
		{"one that refuses stays", Parking{}, func(jobs []Job) { jobs[0].Parks, jobs[1].Parks = CannotPark, CannotPark }, false},
		{"there is host memory for it", Parking{MemoryMiB: 10_000}, nil, true},
		{"there is too little", Parking{MemoryMiB: 9_999}, nil, false},
		{"it uses less than its card", Parking{MemoryMiB: 9_999}, func(jobs []Job) { jobs[0].UsedMiB, jobs[1].UsedMiB = 9_000, 9_000 }, true},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			res := parkedBy(t, row.park, row.change)
			if (res.Preemptions > 0) != row.parked || (res.HostPeakMiB > 0) != row.parked {
				t.Errorf("parked %d times, %d MiB at most", res.Preemptions, res.HostPeakMiB)
			}
		})
	}
}

func TestWhichLimitsWereMet(t *testing.T) {
	for _, row := range []struct {
		name                 string
		park                 Parking
		change               func(jobs []Job)
		host, fixed, ownBusy bool
	}{
		{name: "none", park: Parking{}},
		{name: "host memory", park: Parking{MemoryMiB: 9_999}, host: true},
		{name: "jobs that cannot give way", park: Parking{}, change: func(jobs []Job) { jobs[0].Parks, jobs[1].Parks = CannotPark, CannotPark }, fixed: true},
		// The short one takes the card of one job, and then its neighbour's is free.
		{name: "the job's own cards", park: Parking{}, change: func(jobs []Job) {
			jobs[0].Duration, jobs[1].Duration, jobs[2].Duration = 7_300_000, 90_000_000, 36_000_000
			jobs[0].Parks = CannotPark
		}, ownBusy: true, fixed: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			res := parkedBy(t, row.park, row.change)
			if res.HostFullSeconds > 0 != row.host || res.FixedGPUSeconds > 0 != row.fixed || res.OwnCardsSeconds > 0 != row.ownBusy {
				t.Errorf("%+v, want %+v", res.binding, row)
			}
		})
	}
}

func TestADaemonsDefaultHostMemoryIsHalfOfASimulatedHost(t *testing.T) {
	w := &Workload{Machine: Machine{GPUs: 8, VRAMMiB: 81_920}}
	for given, want := range map[int64]int64{HostMemory: 8 * 81_920, 0: 0, 7: 7} {
		if got := w.Parking(Choices{Park: &Parking{MemoryMiB: given}}); got.MemoryMiB != want {
			t.Errorf("%d becomes %d, want %d", given, got.MemoryMiB, want)
		}
	}
	if w.Parking(Choices{}) != nil {
		t.Error("jobs are parked without being asked for")
	}
}

// A job that is parked counts its memory on the cards that it comes back to, so
// that others are placed elsewhere.
func TestWhatAParkedJobNeedsIsNotedOnItsCards(t *testing.T) {
	seen := false
	in := oneCard(t, func(now Millis, s sched.State) {
		if p, queued := s.Queue.Get("0"); queued && now > 0 {
			seen = true
			if s.Cards[0].ParkedMiB != 10_000 || !p.Parked || p.Request.IDs != "0" || s.ParkMiB != 2_000 {
				t.Errorf("%+v %+v, %d MiB left", s.Cards[0], p, s.ParkMiB)
			}
		} else if s.Cards[0].ParkedMiB != 0 || now < 30_000 && s.ParkMiB != 12_000 {
			t.Errorf("at %d: %+v, %d MiB left", now, s.Cards[0], s.ParkMiB)
		}
	})
	in.Park.MemoryMiB = 12_000
	if run(in); !seen {
		t.Error("nothing was parked")
	}
}

// A job that saves its work every 20 s is ended after 50 s: it loses 10 s, ends within
// its grace period, and pays for coming back.
func TestAJobThatSavesItsWorkGoesOnFromThere(t *testing.T) {
	for _, row := range []struct {
		name  string
		saves Saves
		ends  Ends
		want  Fate
	}{
		{"every 20 s", 20_000, Ends{}, Fate{
			Start: 0, End: 145_000, Cards: []int{0}, Preemptions: 1, Wasted: 10_000, Overhead: 25_000,
			Segments: []Segment{{0, 60_000, []int{0}}, {70_000, 145_000, []int{0}}},
		}},
		{"when it is told, and it takes 2 s", WhenTold, Ends{Within: 30_000, After: 2000}, Fate{
			Start: 0, End: 127_000, Cards: []int{0}, Preemptions: 1, Overhead: 17_000,
			Segments: []Segment{{0, 52_000, []int{0}}, {62_000, 127_000, []int{0}}},
		}},
		{"when it is told", WhenTold, Ends{}, Fate{
			Start: 0, End: 135_000, Cards: []int{0}, Preemptions: 1, Overhead: 25_000,
			Segments: []Segment{{0, 60_000, []int{0}}, {70_000, 135_000, []int{0}}},
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			in := input{
				Jobs:    []Job{seconds("long", "ann", 0, 100, 1), seconds("short", "bob", 50, 10, 1)},
				Machine: Machine{GPUs: 1, VRAMMiB: 10_000}, Policy: policy(t, Default), Park: &Parking{Who: ThatAskFor, Restart: 15_000},
				Estimates: Perfect, Decide: scripted(map[Millis]sched.Plan{50_000: {Victims: []sched.Victim{{Job: "0", For: "1", Mode: sched.Requeue}}}}, func(now Millis, s sched.State) {
					if p, queued := s.Queue.Get("0"); queued && now == row.want.Segments[0].End {
						again := row.want.Wasted.duration()
						if p.Parked || p.Request.IDs != "" || p.RanBefore != 50*time.Second || p.Run.Mid != 100*time.Second+again || !p.Preempt.Saves {
							t.Errorf("it waits as %+v", p)
						}
					}
				}),
			}
			in.Jobs[0].Saves, in.Jobs[0].Ends = row.saves, row.ends
			res := run(in)
			if got := res.Fates[0]; fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", row.want) {
				t.Errorf("\n%+v, want\n%+v", got, row.want)
			}
			if m := measure(in, res); !near(m.GPUWasted, row.want.Wasted.Seconds()/row.want.End.Seconds()) || res.HostPeakMiB != 0 {
				t.Errorf("%+v", m)
			}
		})
	}
}

// One that never reports a save runs at least as long as before, and loses no more.
func TestAJobThatReportsNoSaveRunsLonger(t *testing.T) {
	in := input{Jobs: []Job{{GPUs: 1, Saves: 20_000, Silent: true, Ends: Ends{30_000, 1000}}}, Machine: Machine{GPUs: 1, VRAMMiB: 1000}, Policy: policy(t, Default), Park: &Parking{}}
	in.Park.Who = ThatAskFor
	for served, want := range map[Millis]time.Duration{0: 20 * time.Second, 15_000: 20 * time.Second, 50_000: 50 * time.Second} {
		if p := in.preemption(&in.Jobs[0], served); p.SavesEvery != want || p.StopTime != 30*time.Second {
			t.Errorf("after %d: %+v", served, p)
		}
	}
	a := &active{job: &in.Jobs[0], held: sched.Allocation{Preempt: in.preemption(&in.Jobs[0], 50_000)}}
	if lost := a.unsaved(45_000, in.saves(a.job)); lost != 5000 {
		t.Errorf("it loses %d", lost)
	}
}

func TestGangsSaveTheirWorkIfTheReplaySaysSo(t *testing.T) {
	for _, row := range []struct {
		name string
		job  Job
		want Saves
	}{
		{"a gang", Job{GPUs: 2}, 1_800_000},
		{"a job with one GPU does not", Job{GPUs: 1}, 0},
		{"what the job says counts", Job{GPUs: 2, Saves: WhenTold}, WhenTold},
		{"for one GPU too", Job{GPUs: 1, Saves: 60_000}, 60_000},
	} {
		in := input{Jobs: []Job{row.job}, Machine: Machine{GPUs: 2, VRAMMiB: 1000}, Policy: policy(t, Default), Park: &Parking{Who: SingleGPU, GangsSave: 1_800_000}}
		if got := in.saves(&row.job); got != row.want {
			t.Errorf("%s: %d, want %d", row.name, got, row.want)
		}
	}
}
