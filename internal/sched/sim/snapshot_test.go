package sim

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/sched"
)

// someState is a daemon with three cards, the middle one paused, one job on
// the first, another berth's on the last, and a queue.
func someState() sched.State {
	s := sched.State{
		Now: noon, Rules: sched.DefaultRules(), Queue: sched.NewQueue(), Usage: map[string]float64{"ann": 10_000, "bob": 50}, FairQuantum: 3600,
		Cards: []sched.Card{
			{Index: 0, TotalMiB: 24576, ForeignMiB: 3000, IdleForeignMiB: 3000}, {Index: 1, TotalMiB: 24576, Paused: true},
			{Index: 100, Name: "NVIDIA A100", TotalMiB: 40960, ForeignMiB: 100, IdleForeignMiB: 0},
		},
		Allocations: []sched.Allocation{
			{
				Job: "7", User: "ann", Cards: []int{0}, BudgetMiB: []int64{8000}, Started: noon.Add(-time.Hour), Waited: 30 * time.Minute,
				Run: sched.Estimate{Low: time.Hour, Mid: 3 * time.Hour, High: 5 * time.Hour}, Priority: 2,
			},
			{Job: "/berth/1", Cards: []int{100}, BudgetMiB: []int64{5000}, Other: true},
			{Job: "8", CPUs: 4},
		},
	}
	hour := sched.Estimate{Low: time.Hour, Mid: time.Hour, High: time.Hour}
	threeHours := sched.Estimate{Low: time.Hour, Mid: 3 * time.Hour, High: 5 * time.Hour}
	for i, p := range []sched.Pending{
		{Job: "9", User: "bob", Request: sched.Request{GPUs: 2}, Since: noon.Add(-2 * time.Hour), Run: hour, RanBefore: 20 * time.Minute},
		{Job: "10", User: "cid", Request: sched.Request{GPUs: 1, VRAMMiB: 4000, Type: "a100"}, Since: noon.Add(-time.Minute)},
		{Job: "11", User: "cid", Request: sched.Request{GPUs: 1, Share: 0.5}, Limit: 90 * time.Second},
		{Job: "12", User: "cid", Request: sched.Request{CPUs: 1}},
		{Job: "13", User: "cid", Request: sched.Request{GPUs: 2, IDs: "100,0", VRAMMiB: 1000}, Run: threeHours},
		{Job: "14", User: "cid", Request: sched.Request{GPUs: 1, IDs: "1"}, Run: threeHours}, // which is paused
		{Job: "15", User: "cid", Request: sched.Request{GPUs: 2, Allow: "0,1"}, Run: threeHours},
	} {
		p.Seq = int64(i)
		s.Queue.Add(p)
	}
	return s
}

// noon is when the daemon of these tests is looked at.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// readState is the workload of a snapshot that was written and read.
func readState(t *testing.T, s sched.State) *Workload {
	t.Helper()
	data, err := sched.MarshalState(s)
	if err != nil {
		t.Fatal(err)
	}
	read, err := sched.UnmarshalState(data)
	if err != nil {
		t.Fatal(err)
	}
	w, err := FromSnapshot("snapshot.json", &read)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func compared(t *testing.T, w *Workload, policies []Policy, c Choices, seeds int) []Replayed {
	t.Helper()
	replays, done := Compare(w, policies, c, seeds, Watch{})
	if !done {
		t.Fatal("it was stopped by nobody")
	}
	return replays
}

func TestASnapshotBecomesAWorkload(t *testing.T) {
	w := readState(t, someState())
	hour := Millis(3600_000)
	// Time begins when the job was submitted that waits for longest.
	if w.Machine != (Machine{GPUs: 2, VRAMMiB: 40960}) || w.Begin != 2*hour || w.LeftOut != 4 || !reflect.DeepEqual(w.CardNames, []int{0, 100}) {
		t.Errorf("%+v", w)
	}
	want := []Job{
		{ID: "7", User: "ann", GPUs: 1, VRAMMiB: 8000, Priority: 2, Submit: hour / 2, Duration: 3 * hour},
		{ID: "9", User: "bob", GPUs: 2, Duration: hour * 2 / 3},
		{ID: "10", User: "cid", GPUs: 1, Allow: []int{1}, VRAMMiB: 4000, Submit: 2*hour - 60_000, Duration: 3 * hour}, // as long as the one in the middle
		{ID: "11", User: "cid", GPUs: 1, Share: 0.5, Submit: 2 * hour, Duration: 90_000},
		{ID: "13", User: "cid", GPUs: 2, IDs: []int{1, 0}, VRAMMiB: 1000, Submit: 2 * hour, Duration: 3 * hour},
	}
	slices.SortFunc(w.Jobs, func(a, b Job) int { return cmp.Or(cmp.Compare(len(a.ID), len(b.ID)), strings.Compare(a.ID, b.ID)) })
	if !reflect.DeepEqual(w.Jobs, want) {
		t.Errorf("jobs\n%+v\nwant\n%+v", w.Jobs, want)
	}
	if !reflect.DeepEqual(w.Running, []Running{{Job: 0, Cards: []int{0}, Ran: hour}}) {
		t.Errorf("running: %+v", w.Running)
	}
	// A desktop does not count; a job of another berth does for some time.
	if !reflect.DeepEqual(w.Foreign, []Foreign{{Card: 0, MiB: 3000}, {Card: 1, MiB: 5000, From: 2 * hour, Until: 5 * hour}}) {
		t.Errorf("foreign: %+v", w.Foreign)
	}
	// What runs is counted by the replay itself.
	if w.Usage["ann"] != 10_000-3600-3600 || w.Usage["bob"] != 50 {
		t.Errorf("usage: %v", w.Usage)
	}
	if w.CardsLeftOut != 1 || w.Unknown != 2 || w.Typical != 3*time.Hour || w.KeptOff != 2 {
		t.Errorf("%d cards are left out, %d jobs without an estimate run for %v, and %d need cards left out", w.CardsLeftOut, w.Unknown, w.Typical, w.KeptOff)
	}
}

// TestASnapshotGoesOn: what runs ends when it is expected to, and all of the
// queue runs, under every policy.
func TestASnapshotGoesOn(t *testing.T) {
	for _, park := range []*Parking{nil, {EachWay: 20_000}} {
		state := someState()
		state.Cards[0].ForeignMiB, state.Cards[0].IdleForeignMiB = 0, 0
		w := readState(t, state)
		replays := compared(t, w, Policies(), Choices{Park: park}, 2)
		for i := range replays {
			r := &replays[i]
			if r.Jobs != 5 || r.Infeasible != 0 || r.Unfinished != 0 {
				t.Errorf("%s: %+v", r.Policy, r.Metrics)
			}
			if fate := r.Result.Fates[0]; park == nil && (fate.Start != w.Begin-3600_000 || fate.End != w.Begin+2*3600_000) {
				t.Errorf("%s: the running job: %+v", r.Policy, fate)
			}
			for k, fate := range r.Result.Fates[1:] {
				if fate.Start < w.Begin {
					t.Errorf("%s: job %s starts before the snapshot", r.Policy, w.Jobs[k+1].ID)
				}
			}
		}
	}
}

// TestASnapshotKeepsTheLimitsOfArrays: a task runs and two wait for it, one
// after the other, with a card free all the time.
func TestASnapshotKeepsTheLimitsOfArrays(t *testing.T) {
	state := sched.State{Now: noon, Rules: sched.DefaultRules(), Queue: sched.NewQueue(), ArrayRuns: map[string]int{"5": 1}}
	for i := range 3 {
		state.Cards = append(state.Cards, sched.Card{Index: i, TotalMiB: 24576})
	}
	hour := sched.Estimate{Low: time.Hour, Mid: time.Hour, High: time.Hour}
	state.Allocations = []sched.Allocation{{Job: "5_1", Cards: []int{0}, Alone: true, Started: noon, Run: hour}}
	for i, id := range []string{"5_2", "5_3", "6"} {
		p := sched.Pending{Job: id, Seq: int64(i), Request: sched.Request{GPUs: 1}, Since: noon, Run: hour}
		if id != "6" {
			p.Array, p.ArrayLimit = "5", 1
		}
		state.Queue.Add(p)
	}
	w := readState(t, state)
	replays := compared(t, w, Policies(), Choices{}, 0)
	want := map[string]Millis{"5_1": 0, "5_2": 1, "5_3": 2, "6": 0} // hours
	for _, r := range replays {
		for i, fate := range r.Result.Fates {
			if id := w.Jobs[i].ID; fate.Start != want[id]*3600_000 {
				t.Errorf("%s: task %s starts after %g s", r.Policy, id, fate.Start.Seconds())
			}
		}
	}
}

// TestASnapshotKeepsTheLimitsOfGroups: one of ann's group runs and two wait for it,
// one after the other; bob's group of that name is another, and a paused one is
// left out.
func TestASnapshotKeepsTheLimitsOfGroups(t *testing.T) {
	state := sched.State{Now: noon, Rules: sched.DefaultRules(), Queue: sched.NewQueue(), Groups: map[sched.GroupName]sched.Group{
		{User: "ann", Name: "io"}: {Limit: 1, Running: []string{"5"}}, {User: "ann", Name: "off"}: {PausedBy: "ann"},
	}}
	for i := range 3 {
		state.Cards = append(state.Cards, sched.Card{Index: i, TotalMiB: 24576})
	}
	hour := sched.Estimate{Low: time.Hour, Mid: time.Hour, High: time.Hour}
	state.Allocations = []sched.Allocation{{Job: "5", User: "ann", Cards: []int{0}, Alone: true, Started: noon, Run: hour}}
	for i, in := range [][2]string{{"ann", "io"}, {"ann", "io"}, {"bob", "io"}, {"ann", "off"}} {
		state.Queue.Add(sched.Pending{Job: fmt.Sprint(6 + i), User: in[0], Group: in[1], Seq: int64(i), Request: sched.Request{GPUs: 1}, Since: noon, Run: hour})
	}
	w := readState(t, state)
	if len(w.Jobs) != 4 || w.LeftOut != 1 || w.Paused != 1 {
		t.Fatalf("%d jobs, %d left out, %d of paused groups", len(w.Jobs), w.LeftOut, w.Paused)
	}
	want := map[string]Millis{"5": 0, "6": 1, "7": 2, "8": 0} // hours
	for _, r := range compared(t, w, Policies(), Choices{}, 0) {
		for i, fate := range r.Result.Fates {
			if id := w.Jobs[i].ID; fate.Start != want[id]*3600_000 {
				t.Errorf("%s: job %s starts after %g s", r.Policy, id, fate.Start.Seconds())
			}
		}
	}
}

func TestASnapshotWithoutACardOrAJob(t *testing.T) {
	s := someState()
	s.Cards, s.Allocations = s.Cards[1:2], nil
	if _, err := FromSnapshot("", &s); err == nil || !strings.Contains(err.Error(), "no GPU in this snapshot takes jobs") {
		t.Errorf("%v", err)
	}
	s = someState()
	s.Allocations, s.Queue = nil, sched.NewQueue()
	if w := readState(t, s); len(w.Jobs) != 0 {
		t.Errorf("%+v", w.Jobs)
	}
}

// TestASnapshotKeepsTheDaemonsRulesButForTheOrder: margins and placement are
// the machine's, and what was said on the command line goes before both.
func TestASnapshotKeepsTheDaemonsRulesButForTheOrder(t *testing.T) {
	state := someState()
	state.Rules.MarginMiB, state.Rules.Placement, state.Rules.MaxBypass = 77, sched.Spread, time.Hour
	state.DefaultLimit, state.Limits = sched.Limit{Jobs: 3}, map[string]sched.Limit{"ann": {GPUs: 2}}
	w := readState(t, state)
	las, err := ParsePolicy("las")
	if err != nil {
		t.Fatal(err)
	}
	las.Rules.MaxBypass, las.Rules.Placement = 5*time.Hour, sched.Pack
	in := w.input(w.Jobs, las, Choices{})
	want := state.Rules
	want.Policy, want.Fair, want.Slice = sched.LAS, false, true
	if in.Policy.Rules != want || in.Estimates != Perfect {
		t.Errorf("%+v with %q, want %+v", in.Policy.Rules, in.Estimates, want)
	}
	if in.DefaultLimit != state.DefaultLimit || !reflect.DeepEqual(in.Limits, state.Limits) {
		t.Errorf("limits %+v, %+v", in.DefaultLimit, in.Limits)
	}
	want.MaxBypass, want.Placement = 5*time.Hour, sched.Pack
	if in = w.input(w.Jobs, las, Choices{Estimates: History, OwnMaxBypass: true, OwnPlacement: true}); in.Policy.Rules != want || in.Estimates != History {
		t.Errorf("with flags: %+v with %q, want %+v", in.Policy.Rules, in.Estimates, want)
	}
	moved := false
	for i, j := range w.perturbed(1) {
		moved = moved || j.Duration != w.Jobs[i].Duration
		if j.Submit != w.Jobs[i].Submit {
			t.Errorf("job %s was submitted at another time", j.ID)
		}
	}
	if !moved {
		t.Error("a perturbed copy equals the original")
	}
}

// TestASnapshotKeepsTheHost: a replay counts CPUs and host memory as the daemon does,
// in fair share and against limits.
func TestASnapshotKeepsTheHost(t *testing.T) {
	s := sched.State{
		Now: noon, Rules: sched.DefaultRules(), Host: sched.Host{CPUs: 8, MemMiB: 1000}, Queue: sched.NewQueue(),
		Usage: map[string]float64{"ann": 20_000}, FairQuantum: 3600, DefaultLimit: sched.Limit{CPUs: 6},
		Cards: []sched.Card{{Index: 0, TotalMiB: 24576}, {Index: 1, TotalMiB: 24576}},
		Allocations: []sched.Allocation{{
			Job: "1", User: "ann", Cards: []int{0}, Alone: true, CPUs: 6, MemMiB: 100, Started: noon.Add(-time.Hour),
			Run: sched.Estimate{Low: 2 * time.Hour, Mid: 2 * time.Hour, High: 2 * time.Hour},
		}},
	}
	for i, p := range []sched.Pending{
		{Job: "2", User: "ann", Request: sched.Request{GPUs: 1, CPUs: 2}, Since: noon},
		{Job: "3", User: "bob", Request: sched.Request{GPUs: 1, CPUs: 2, MemMiB: 50}, Since: noon},
	} {
		p.Seq, p.Run = int64(i), sched.Estimate{Low: 5 * time.Hour, Mid: 5 * time.Hour, High: 5 * time.Hour}
		s.Queue.Add(p)
	}
	w := readState(t, s)
	// Six of eight CPUs are one and a half of the two GPUs.
	if got, want := w.Usage["ann"], 20_000-1.5*(3600+3600); got != want {
		t.Errorf("usage of %v, want %v", got, want)
	}
	r := compared(t, w, Policies()[:1], Choices{}, 1)[0]
	hour := Millis(3600_000)
	for i, want := range map[int]Millis{1: w.Begin + hour, 2: w.Begin} {
		if got := r.Result.Fates[i].Start; got != want {
			t.Errorf("job %s starts at %v, want %v", w.Jobs[i].ID, got, want)
		}
	}
}
