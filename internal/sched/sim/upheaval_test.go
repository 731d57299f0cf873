package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"berth/internal/sched"

	"pgregory.net/rapid"
)

// anUpheaval is a workload in which jobs can be parked, begin in the middle,
// need more memory than they say, and lose their cards.
func anUpheaval(t *rapid.T) input {
	in := aWorkload(t)
	if rapid.IntRange(0, 5).Draw(t, "parking") < 5 {
		in.Park = &Parking{EachWay: rapid.SampledFrom([]Millis{0, 1, 700, 20_000}).Draw(t, "cost")}
		if rapid.Bool().Draw(t, "copying") {
			in.Park.BytesPerSecond = 3e9
		}
		in.Park.Who = rapid.SampledFrom([]Parkable{EveryJob, SingleGPU, ThatAskFor}).Draw(t, "who parks")
		in.Park.Restart = rapid.SampledFrom([]Millis{0, 3000, 120_000}).Draw(t, "restart")
		in.Park.MemoryMiB = rapid.SampledFrom([]int64{0, 5000, 10_000, 25_000}).Draw(t, "host memory")
	}
	if rapid.IntRange(0, 5).Draw(t, "parks") < 5 {
		in.Policy = rapid.SampledFrom([]Policy{Policies()[0], Policies()[6]}).Draw(t, "parking policy")
	}
	in.Estimates = rapid.SampledFrom([]Estimates{"", History, Perfect, Limits, None, "24h0m0s", "1s"}).Draw(t, "estimates")
	if rapid.IntRange(0, 2).Draw(t, "lent") == 0 {
		in.DefaultLimit.Share = rapid.SampledFrom([]float64{0.5, 1, 2, 3}).Draw(t, "share of each user")
		in.Policy.Rules.BorrowTime = time.Duration(rapid.IntRange(-1, 3).Draw(t, "borrow time")) * time.Second
	}
	if rapid.IntRange(0, 2).Draw(t, "long") < 2 {
		// Long enough for classes of service to come and go.
		for i := range in.Jobs {
			in.Jobs[i].Submit *= 60
			in.Jobs[i].Duration *= 100
		}
	}
	for i := range in.Jobs {
		in.Jobs[i].Saves = rapid.SampledFrom([]Saves{0, 0, WhenTold, 1, 2000, 60_000}).Draw(t, "saves")
		in.Jobs[i].Silent = rapid.Bool().Draw(t, "silent")
		in.Jobs[i].Ends = rapid.SampledFrom([]Ends{{}, {}, {0, 1}, {5000, 700}, {30_000, 30_000}}).Draw(t, "ends")
		in.Jobs[i].Parks = rapid.SampledFrom([]Parks{Unsaid, Unsaid, CanPark, CannotPark}).Draw(t, "says")
		if j := &in.Jobs[i]; j.VRAMMiB > 0 && rapid.IntRange(0, 2).Draw(t, "misjudged") == 0 {
			j.UsedMiB = j.VRAMMiB * rapid.SampledFrom([]int64{1, 2, 4}).Draw(t, "times") / 2
		}
	}
	for range rapid.IntRange(0, 2).Draw(t, "losses") {
		from := rapid.SampledFrom([]Millis{0, 1000, 2500, 300_000}).Draw(t, "from")
		in.Lost = append(in.Lost, loss{Card: rapid.IntRange(0, in.Machine.GPUs-1).Draw(t, "lost"), From: from, Until: from + rapid.SampledFrom([]Millis{1, 3000, 600_000}).Draw(t, "for")})
	}
	for range rapid.IntRange(0, 2).Draw(t, "external processes") {
		from := rapid.SampledFrom([]Millis{0, 1500, 100_000}).Draw(t, "from")
		in.Foreign = append(in.Foreign, Foreign{Card: rapid.IntRange(0, in.Machine.GPUs-1).Draw(t, "card"), From: from, Until: from + 60_000, MiB: rapid.SampledFrom([]int64{100, 3000, 9000, 20_000}).Draw(t, "mib")})
	}
	card := 0
	for i := range in.Jobs {
		j := &in.Jobs[i]
		if j.Share > 0 || j.VRAMMiB > 0 || card+j.GPUs > in.Machine.GPUs || rapid.IntRange(0, 3).Draw(t, "runs") > 0 {
			continue
		}
		cards := make([]int, j.GPUs)
		for k := range cards {
			cards[k] = card
			card++
		}
		j.Submit = -rapid.SampledFrom([]Millis{5000, 100_000}).Draw(t, "submitted")
		in.Running = append(in.Running, Running{Job: i, Cards: cards, Ran: rapid.SampledFrom([]Millis{0, 1000, 5000}).Draw(t, "ran")})
	}
	return in
}

// restless sets jobs aside for no reason, each a few times.
func restless(seed uint64) func(sched.State) sched.Plan {
	times := map[string]int{}
	return func(s sched.State) sched.Plan {
		plan := parkingOff(s)
		for _, h := range s.Allocations {
			place, _ := strconv.Atoi(h.Job)
			chance := rand.New(rand.NewPCG(seed, uint64(s.Now.UnixMilli())*1000+uint64(place)))
			full := h.Preempt.Mode == sched.Park && (s.ParkMiB < 0 || s.ParkMiB > 0 && h.Preempt.MemMiB > s.ParkMiB)
			if h.Preempt.Mode == "" || h.BeingPreempted || full || !h.Started.Before(s.Now) || times[h.Job] == 3 || chance.IntN(3) > 0 {
				continue
			}
			times[h.Job]++
			if s.ParkMiB > 0 {
				if s.ParkMiB -= h.Preempt.MemMiB; s.ParkMiB == 0 {
					s.ParkMiB = -1
				}
			}
			plan.Victims = append(plan.Victims, sched.Victim{Job: h.Job, Mode: h.Preempt.Mode})
		}
		return plan
	}
}

// upheave replays an upheaval, one time in two under a restless plan.
func upheave(t *rapid.T) (input, Result) {
	in := anUpheaval(t)
	if rapid.Bool().Draw(t, "restless") {
		in.Decide = restless(rapid.Uint64().Draw(t, "unrest"))
	}
	return in, run(in)
}

func TestTimesAddUpWhateverHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in, res := upheave(t)
		preemptions, ooms := 0, 0
		for i := range res.Fates {
			preemptions += res.Fates[i].Preemptions
			ooms += res.Fates[i].OOMs
			checkTimes(t, &in, i, &res.Fates[i])
		}
		if preemptions != res.Preemptions || ooms != res.OOMs || in.Park == nil && preemptions > 0 {
			t.Fatalf("%d and %d, in all %d and %d", preemptions, ooms, res.Preemptions, res.OOMs)
		}
		checkFloors(t, &in, &res)
	})
}

// checkTimes goes through the runs of one job.
func checkTimes(t *rapid.T, in *input, i int, f *Fate) {
	j := &in.Jobs[i]
	var onCards, last Millis
	for k, s := range f.Segments {
		// It comes back to the cards that it left, unless its work was lost, or it lost
		// them before it had done any.
		if k > 0 && f.Wasted == 0 && f.Segments[k-1].Start < f.Segments[k-1].End && f.Preemptions > 0 && j.Saves == 0 && !slices.Equal(s.Cards, f.Segments[k-1].Cards) {
			t.Fatalf("job %d comes back to other cards: %+v", i, f)
		}
		if s.End < s.Start || k > 0 && s.Start < last || len(s.Cards) != j.GPUs || k == 0 && s.Start != f.Start {
			t.Fatalf("job %d: %+v", i, f)
		}
		onCards, last = onCards+s.End-s.Start, s.End
	}
	if len(f.Segments) > 0 && (last != f.End || !slices.Equal(f.Segments[len(f.Segments)-1].Cards, f.Cards)) {
		t.Fatalf("job %d: %+v", i, f)
	}
	needs := f.Overhead + f.Wasted
	switch {
	case f.Refused != nil:
	case f.Unfinished:
		t.Fatalf("job %d never ends, and every card comes back: %+v", i, f)
	default:
		needs += j.runs()
	}
	if onCards != needs {
		t.Fatalf("job %d is on its cards for %d and needs %d: %+v", i, onCards, needs, f)
	}
	if f.Refused == nil && f.End-j.Submit < j.runs() {
		t.Fatalf("job %d ends before it can: %+v", i, f)
	}
}

// checkFloors adds up afresh what is on each card whenever something starts.
func checkFloors(t *rapid.T, in *input, res *Result) {
	for i := range res.Fates {
		for _, s := range res.Fates[i].Segments {
			for card := range in.Machine.GPUs {
				checkFloor(t, in, res, card, s.Start)
			}
		}
	}
}

func checkFloor(t *rapid.T, in *input, res *Result, card int, moment Millis) {
	var shares float64
	jobs, alone := 0, false
	for i := range res.Fates {
		j := &in.Jobs[i]
		for _, s := range res.Fates[i].Segments {
			if moment >= s.Start && moment < s.End && slices.Contains(s.Cards, card) {
				jobs++
				shares += j.Share
				alone = alone || j.Share == 0 && j.VRAMMiB == 0
			}
		}
	}
	if alone && jobs > 1 || shares > 1+1e-6 {
		t.Fatalf("at %d card %d holds %d jobs, shares %g, alone %v", moment, card, jobs, shares, alone)
	}
	for _, l := range in.Lost {
		if jobs > 0 && l.Card == card && moment >= l.From && moment < l.Until && moment > res.Began {
			t.Fatalf("at %d a job is on card %d, which is lost", moment, card)
		}
	}
}

func TestCardsAreGivenOutForUseOrLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := anUpheaval(t)
		for i := range in.Jobs {
			// A share and a declaration may lie on one card and add up to more
			// than all of it.
			in.Jobs[i].VRAMMiB, in.Jobs[i].UsedMiB = 0, 0
			if in.Jobs[i].Share == 0 && in.Jobs[i].GPUs == 1 && i%3 == 0 && !slices.ContainsFunc(in.Running, func(r Running) bool { return r.Job == i }) {
				in.Jobs[i].Share = 0.25
			}
		}
		if rapid.Bool().Draw(t, "restless") {
			in.Decide = restless(1)
		}
		res := run(in)
		spent := res.UsefulGPUSeconds + res.OverheadGPUSeconds + res.WastedGPUSeconds
		if !near(res.AllocatedGPUSeconds, spent) {
			t.Fatalf("%g GPU-seconds allocated; useful %g, overhead %g, wasted %g", res.AllocatedGPUSeconds, res.UsefulGPUSeconds, res.OverheadGPUSeconds, res.WastedGPUSeconds)
		}
	})
}

func TestFlowIsWaitAndUse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in, res := upheave(t)
		m := measure(in, res)
		if m.Jobs == 0 {
			return
		}
		ran := 0.0
		for i := range in.Jobs {
			if res.Fates[i].Refused == nil {
				ran += in.Jobs[i].runs().Seconds()
			}
		}
		const slack = 1 + 1e-9
		switch {
		case !near(m.FlowMeanS, m.WaitMeanS+ran/float64(m.Jobs)):
			t.Fatalf("%+v", m)
		case m.Bounds.MakespanS > m.MakespanS*slack+1e-9 || m.Bounds.FlowMeanS > m.FlowMeanS*slack+1e-9:
			t.Fatalf("better than possible: %+v", m)
		case m.GPUUseful+m.GPULost > m.GPUAllocated*slack+1e-9 && m.GPUUseful > 0:
			t.Fatalf("capacity: %+v", m)
		}
	})
}

func TestTheOrderOfTheInputDecidesNothingWhateverHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := anUpheaval(t)
		shuffled := in
		shuffled.Jobs, shuffled.Running = slices.Clone(in.Jobs), slices.Clone(in.Running)
		shuffled.Lost, shuffled.Foreign = slices.Clone(in.Lost), slices.Clone(in.Foreign)
		chance := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		to := chance.Perm(len(in.Jobs))
		for i, k := range to {
			shuffled.Jobs[k] = in.Jobs[i]
		}
		for i := range shuffled.Running {
			shuffled.Running[i].Job = to[in.Running[i].Job]
		}
		slices.Reverse(shuffled.Running)
		slices.Reverse(shuffled.Lost)
		slices.Reverse(shuffled.Foreign)
		if rapid.Bool().Draw(t, "restless") {
			in.Decide, shuffled.Decide = restless(2), restless(2)
		}
		one, other := run(in), run(shuffled)
		for i, k := range to {
			if a, b := fmt.Sprintf("%+v", told(one.Fates[i])), fmt.Sprintf("%+v", told(other.Fates[k])); a != b {
				t.Fatalf("job %d: %s, and shuffled %s", i, a, b)
			}
		}
		if a, b := measure(in, one), measure(shuffled, other); a != b {
			t.Fatalf("%+v\nand shuffled\n%+v", a, b)
		}
	})
}

// told is a fate without the pointer in it.
func told(f Fate) Fate {
	if f.Refused != nil {
		f.Refused = nil
		f.OOMs -= 1000
	}
	return f
}
