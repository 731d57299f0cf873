package engine

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
	"berth/internal/queue/engine/launch"
)

// strangers is a world of one process that berth did not start.
type strangers struct{ gone map[int]bool }

func (s *strangers) config(c *Config) {
	c.Alive = func(p job.Process) bool { return !s.gone[p.PID] }
}

// adopted is a rig on whose first card process 4242 has 5000 MiB, and job 1
// that is asked to stand for it.
func adopted(t *testing.T) (*rig, *strangers) {
	t.Helper()
	s := &strangers{gone: map[int]bool{}}
	r := newRig(t, 2, s.config)
	r.devices[0].UsedMiB = 5000
	r.devices[0].Processes = []gpu.Process{{PID: 4242, UsedMiB: 5000}}
	r.look()
	return r, s
}

func (r *rig) adopt(cards ...int) (answer *error) {
	r.t.Helper()
	return r.adoptUsing(nil, 5000, cards...)
}

// adoptUsing is adopt with what the process was seen to use.
func (r *rig) adoptUsing(mib map[int]int64, budgetMiB int64, cards ...int) (answer *error) {
	r.t.Helper()
	sp := job.Defaults()
	sp.Argv, sp.IDs, sp.GPUs, sp.Adopt = []string{"python", "train.py"}, cards, len(cards), &job.Process{PID: 4242, Start: 77}
	j := &job.Job{Spec: sp, User: "ann", Attempt: job.Attempt{PeakMiB: mib}}
	r.at().queue.Number([]*job.Job{j})
	answer = new(error)
	*answer = errOther
	r.at().requests.Adopt(j, r.at().cards.Book.Occupied(cards, budgetMiB), func(err error) { *answer = err })
	return answer
}

func TestAnAdoptedProcessIsOnDiskBeforeItIsAcknowledgedAndStartsWhereItIs(t *testing.T) {
	r, _ := adopted(t)
	answer := r.adopt(0)
	if id, found := r.at().requests.Adopted(job.Process{PID: 4242, Start: 77}); !found || id != "1" {
		t.Errorf("a second one to ask finds %q", id)
	}
	r.step()
	if *answer != nil {
		t.Fatalf("the answer is %v", *answer)
	}
	r.wantDid("commit 1:queued")
	if r.e.turn.line.Queue.Len() != 0 {
		t.Error("it stands in the line")
	}
	r.step()
	r.wantDid("book 1", "commit 1:running", "go 1 t1")
	row := r.row("1")
	if g := row.Grant; !slices.Equal(g.GPUs, []int{0}) || !slices.Equal(g.UUIDs, []string{"GPU-0"}) || g.BudgetMiB != 5000 || g.Alone || g.Exclusive {
		t.Errorf("its grant is %+v", g)
	}
	if r.kinds(); !strings.Contains(startText(row), "4242") {
		t.Error("its start does not say what it stands for")
	}
}

func TestAnAdoptedProcessNeedsNoRoomAndNoReading(t *testing.T) {
	r, _ := adopted(t)
	r.submit(spec(vram(20000))) // job 1 fills what the stranger left of the second card, say
	r.devices[0].UsedMiB = 24576
	r.at().observer.observe(gpu.Sample{}, errOther)
	r.adopt(0, 1)
	r.step()
	r.step()
	r.wantRow("2", job.Running, "")
}

func TestAnAdoptionThatCannotBeWrittenIsRefused(t *testing.T) {
	r, _ := adopted(t)
	answer := r.adopt(0)
	r.commitErr = errDisk
	r.step() // without it there is nothing to write
	if *answer == nil || errors.Is(*answer, errOther) {
		t.Errorf("the answer is %v", *answer)
	}
	r.commitErr = nil
	r.step()
	if r.at().line.Roster.Has("1") || r.rows["1"] != nil {
		t.Error("what was refused exists")
	}
}

func TestOthersArePlacedBesideAnAdoptedProcess(t *testing.T) {
	r, _ := adopted(t)
	r.adopt(0)
	r.step()
	r.step()
	r.owners[4242] = "1"
	r.look()
	if cards := r.at().cards.Book.List(); cards[0].ForeignMiB != 0 {
		t.Errorf("%d MiB are still a stranger's", cards[0].ForeignMiB)
	}
	r.submit(spec(vram(18000), func(s *job.Spec) { s.IDs = []int{0} }), spec(vram(2000), func(s *job.Spec) { s.IDs = []int{0} }))
	r.wantRow("2", job.Running, "")
	r.wantRow("3", job.Queued, "")
	// What it comes to use counts from then on.
	r.end("2", keep.Record{}, false)
	r.devices[0].UsedMiB, r.devices[0].Processes[0].UsedMiB = 22000, 22000
	r.pass(time.Second)
	r.submit(spec(vram(3000), func(s *job.Spec) { s.IDs = []int{0} }))
	r.wantRow("4", job.Queued, "")
}

// TestAnAdoptedProcessHoldsWhatItUses on each card, from the start, and no card
// that it has left.
func TestAnAdoptedProcessHoldsWhatItUses(t *testing.T) {
	r, _ := adopted(t)
	r.devices[1].UsedMiB, r.devices[1].Processes = 300, []gpu.Process{{PID: 4242, UsedMiB: 300}}
	r.look()
	held := func() map[int]int64 {
		budgets := map[int]int64{}
		for _, h := range r.at().explain.State().Allocations {
			for i, card := range h.Cards {
				budgets[card] = h.BudgetMiB[i]
			}
		}
		return budgets
	}
	want := func(what string, want map[int]int64) {
		t.Helper()
		if got := held(); !maps.Equal(got, want) {
			t.Errorf("%s it holds %v MiB, want %v", what, got, want)
		}
		var uuids []string
		for _, card := range slices.Sorted(maps.Keys(want)) {
			uuids = append(uuids, r.devices[card].UUID)
		}
		if got := r.booked[0].UUIDs; !slices.Equal(got, uuids) {
			t.Errorf("%s other berths see %v, want %v", what, got, uuids)
		}
	}
	r.adoptUsing(map[int]int64{0: 5000, 1: 300}, 300, 0, 1)
	r.step()
	r.step()
	want("before it is measured", map[int]int64{0: 5500, 1: 300})
	// It freed one card before the first measurement.
	r.owners[4242] = "1"
	r.clear(1)
	r.pass(time.Second)
	want("after it left a card", map[int]int64{0: 5500})
	r.submit(spec(func(s *job.Spec) { s.IDs = []int{1} }))
	r.wantRow("2", job.Running, "")
	wantGPUs(t, "it is charged", r.at().explain.State().InUse["ann"].GPUs, 3) // as long as it is tracked
	// A card that it never used is kept for it: an administrator said so.
	r, _ = adopted(t)
	r.adoptUsing(map[int]int64{0: 5000}, 5000, 0, 1)
	r.step()
	r.step()
	r.owners[4242] = "1"
	r.pass(time.Second)
	want("for an administrator", map[int]int64{0: 5000, 1: 5000})
}

func TestHowAnAdoptedProcessEnds(t *testing.T) {
	tests := []struct {
		name    string
		cancel  bool
		record  keep.Record
		state   job.State
		outcome job.Outcome
		detail  string
	}{
		{name: "its end is lost, and never a success", state: job.Failed, outcome: job.Lost,
			detail: "adopted: process 4242 ended; berth cannot know its exit status"},
		{name: "cancelling it ends the accounting only", cancel: true, record: keep.Record{Stop: string(job.StopCancel), Signal: 15}, state: job.Cancelled, outcome: job.WasCancelled,
			detail: "cancelled by bob: no longer accounted for; process 4242 keeps running"},
		{name: "a process that ended before the cancelling was heard of has ended", cancel: true, state: job.Failed, outcome: job.Lost,
			detail: "adopted: process 4242 ended; berth cannot know its exit status"},
		{name: "a watcher that was killed says so", record: keep.Record{Signal: 9}, state: job.Failed, outcome: job.Lost,
			detail: "adopted: the supervisor watching process 4242 was stopped (signal:KILL); berth no longer accounts for the process"},
		{name: "a watcher that cannot be started is a failed launch", record: keep.Record{Launch: "no berth"}, state: job.Failed, outcome: job.Launch, detail: "no berth"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r, _ := adopted(t)
			r.adopt(0)
			r.step()
			r.step()
			if test.cancel {
				r.at().requests.CancelBy("1", "bob", time.Second)
				r.step()
			}
			r.end("1", test.record, true)
			r.wantRow("1", test.state, test.outcome)
			row := r.row("1")
			if row.Detail != test.detail || row.ExitCode != nil || row.Signal != "" {
				t.Errorf("it ended %q, exit code %v, signal %q", row.Detail, row.ExitCode, row.Signal)
			}
		})
	}
}

func TestAnAdoptedProcessIsTriedNeitherAgainNorRequeued(t *testing.T) {
	r, _ := adopted(t)
	r.adopt(0)
	r.step()
	r.step()
	r.e.turn.line.Roster.Get("1").Spec.Retries, r.e.turn.line.Roster.Get("1").Spec.RetryOn = 3, job.RetryFail
	r.end("1", keep.Record{ExitCode: 1}, true)
	r.wantRow("1", job.Failed, job.Lost)
}

func TestAnAdoptedProcessIsFoundAgain(t *testing.T) {
	tests := []struct {
		name   string
		before func(*rig) // what happened before the kill
		found  []run.Found
		gone   bool
		want   func(*testing.T, *rig)
	}{
		{
			name:   "under its supervisor",
			before: func(r *rig) { r.step(); r.step() },
			found:  []run.Found{{Kind: run.FoundRunning, Token: "t1", Job: "1", Attempt: 1}},
			want:   func(_ *testing.T, r *rig) { r.wantRow("1", job.Running, "") },
		},
		{
			name:   "on disk and never watched, it is watched on its own cards",
			before: func(r *rig) { r.step() },
			want: func(t *testing.T, r *rig) {
				r.wantRow("1", job.Running, "")
				if row := r.row("1"); !slices.Equal(row.Grant.GPUs, []int{0}) || row.Grant.BudgetMiB != 5000 || row.Attempt.Number != 1 {
					t.Errorf("started as attempt %d on %+v", row.Attempt.Number, row.Grant)
				}
			},
		},
		{
			name:   "placed and never let go, the same",
			before: func(r *rig) { r.step(); r.step() },
			found:  []run.Found{{Kind: run.FoundEmpty, Token: "t1"}},
			want: func(t *testing.T, r *rig) {
				r.wantRow("1", job.Running, "")
				if row := r.row("1"); !slices.Equal(row.Grant.GPUs, []int{0}) || row.Attempt.Number != 1 {
					t.Errorf("started as attempt %d on %+v", row.Attempt.Number, row.Grant)
				}
			},
		},
		{
			name:   "never watched and gone by now, it is lost",
			before: func(r *rig) { r.step() },
			gone:   true,
			want:   func(_ *testing.T, r *rig) { r.wantRow("1", job.Failed, job.Lost) },
		},
		{
			name:   "its supervisor gone without a word, it is lost",
			before: func(r *rig) { r.step(); r.step() },
			want: func(t *testing.T, r *rig) {
				r.wantRow("1", job.Failed, job.Lost)
				if row := r.row("1"); !strings.Contains(row.Detail, "process 4242 keeps running") {
					t.Errorf("lost as %q", row.Detail)
				}
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r, s := adopted(t)
			r.adopt(0)
			test.before(r)
			s.gone[4242] = test.gone
			r.againWith(s.config, test.found...)
			r.step()
			r.step()
			test.want(t, r)
			if r.e.turn.line.Queue.Len() != 0 {
				t.Error("it stands in the line")
			}
		})
	}
}

// againWith is again with a changed config.
func (r *rig) againWith(change func(*Config), found ...run.Found) {
	var live []*job.Job
	for _, row := range r.rows {
		if !row.State.Terminal() {
			live = append(live, row.Clone())
		}
	}
	for _, f := range found {
		if r.heldBy(f.Token) == nil {
			r.strange[f.Token] = true
		}
	}
	r.boot(live, found, change)
}

func TestAWatcherThatCannotStartNowIsTriedAgain(t *testing.T) {
	r, _ := adopted(t)
	r.adopt(0)
	r.step()
	r.leaseErr = errOther
	r.step()
	r.wantRow("1", job.Queued, "")
	r.leaseErr = nil
	r.goErr = ErrNotNow
	r.step()
	r.wantRow("1", job.Running, "")
	r.goErr = nil
	r.pass(notNowDelay + time.Second)
	r.step()
	r.wantRow("1", job.Running, "")
	if row := r.row("1"); row.Attempt.Number != 1 || !slices.Equal(row.Grant.GPUs, []int{0}) {
		t.Errorf("attempt %d on %+v", row.Attempt.Number, row.Grant)
	}
	if len(r.orders) != 1 {
		t.Errorf("%d orders went out", len(r.orders))
	}
}

func TestAWatcherIsGivenNothingOfTheJobs(t *testing.T) {
	l := &launch.Launcher{JobsDir: "/jobs", Dir: "/here", Filter: true}
	sp := job.Defaults()
	sp.Argv, sp.Adopt, sp.Cap = []string{"python"}, &job.Process{PID: 4242, Start: 77}, "soft"
	o, err := l.Order(&job.Job{ID: "1", Attempt: job.Attempt{Number: 1, Grant: job.Grant{GPUs: []int{0}, UUIDs: []string{"GPU-0"}}}, Spec: sp}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{run.WatchWord, "4242", "77"}; !slices.Equal(o.Argv[1:], want) || o.Devices != nil || o.MPS != nil || o.Setup || o.CPUs != 0 || o.MemMiB != 0 || o.Dir != "/" {
		t.Errorf("the order is %+v", o)
	}
}
