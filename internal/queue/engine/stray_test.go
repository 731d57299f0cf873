package engine

import (
	"strings"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
	"berth/internal/queue/engine/running"
)

// foundCopy is what is found of the job that runs under t1, with the copy its
// berth left.
func (r *rig) foundCopy(kind run.FoundKind, record keep.Record) run.Found {
	r.t.Helper()
	f := foundOne(kind, record)
	f.Copy = r.orders["t1"].Copy
	if j, _ := running.CopyOf(f); j == nil {
		r.t.Fatal("the order has no copy of its job")
	}
	return f
}

func TestAStrayIsLeftAloneAndItsCardStaysTaken(t *testing.T) {
	r := runOne(t) // the whole of the only card
	f := r.foundCopy(run.FoundRunning, keep.Record{PID: 4242})
	clear(r.rows)
	r.again(f)
	r.step()
	for _, did := range r.did {
		if strings.HasPrefix(did, "stop") || strings.HasPrefix(did, "ack") {
			t.Errorf("the engine did %q", did)
		}
	}
	strays := r.at().recovery.Strays()
	if len(strays) != 1 || strays[0].Job.ID != "1" || strays[0].State != running.StrayRunning || strays[0].PID != 4242 {
		t.Fatalf("strays %+v", strays)
	}
	r.submit(spec(vram(8000)))
	if r.rows["1"] != nil {
		t.Error("a new job took the stray's number")
	}
	r.pass(time.Second)
	r.wantRow("2", job.Queued, "")
	// Once it is over, its card is free, and its end is kept.
	r.at().observer.absorb(run.Event{Kind: run.Ended, Token: "t1", Job: "1", Attempt: 1, Record: keep.Record{ExitCode: 3}})
	r.pass(time.Second)
	r.wantRow("2", job.Running, "")
	if strays = r.at().recovery.Strays(); len(strays) != 1 || strays[0].State != running.StrayEnded {
		t.Errorf("strays %+v", strays)
	}
}

func TestAStrayIsAdopted(t *testing.T) {
	ended := run.Event{Kind: run.Ended, Token: "t1", Job: "1", Attempt: 1, Record: keep.Record{ExitCode: 3}}
	lost := run.Event{Kind: run.Lost, Token: "t1", Job: "1", Attempt: 1}
	for _, test := range []struct {
		name    string
		kind    run.FoundKind
		before  *run.Event
		after   *run.Event
		outcome job.Outcome
	}{
		{"while it runs", run.FoundRunning, nil, &ended, "exit:3"},
		{"after it ended", run.FoundRunning, &ended, nil, "exit:3"},
		{"whose end was found", run.FoundEnded, nil, nil, "exit:3"},
		{"whose supervisor is dead", run.FoundLost, nil, &lost, job.Lost},
		{"whose supervisor died", run.FoundRunning, &lost, nil, job.Lost},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := runOne(t)
			f := r.foundCopy(test.kind, keep.Record{ExitCode: 3})
			clear(r.rows)
			r.again(f)
			r.step()
			if test.before != nil {
				r.at().observer.absorb(*test.before)
				r.step()
			}
			r.did = nil
			var told error
			if err := r.at().recovery.AdoptStray("t1", func(err error) { told = err }); err != nil {
				t.Fatal(err)
			}
			if err := r.at().recovery.AdoptStray("t1", func(error) {}); err == nil {
				t.Error("it is adopted twice")
			}
			r.step()
			if told != nil || len(r.at().recovery.Strays()) != 0 {
				t.Errorf("told %v, strays %+v", told, r.at().recovery.Strays())
			}
			for _, did := range r.did {
				if did == "ack t1" {
					t.Error("its end was acknowledged before it was on disk")
				}
			}
			if test.after != nil {
				r.wantRow("1", job.Running, "")
				r.at().observer.absorb(*test.after)
			}
			r.step()
			r.wantRow("1", job.Failed, test.outcome)
		})
	}
}

func TestAStrayWithoutACopyCannotBeAdopted(t *testing.T) {
	r := newRig(t, 1)
	r.again(run.Found{Kind: run.FoundRunning, Token: "y", Job: "6", Attempt: 1}, run.Found{Kind: run.FoundEnded, Token: "x", Job: "5", Attempt: 1})
	r.step()
	r.wantDid("commit ", "ack x", "book 6")
	if err := r.at().recovery.AdoptStray("y", nil); err == nil || !strings.Contains(err.Error(), "no copy") {
		t.Errorf("adopted: %v", err)
	}
	r.at().observer.absorb(run.Event{Kind: run.Started, Token: "y", Job: "6", Attempt: 1})
	r.step()
	r.wantDid()
	r.at().observer.absorb(run.Event{Kind: run.Ended, Token: "y", Job: "6", Attempt: 1})
	r.step()
	r.wantDid("ack y", "book ")
}

// TestAnOlderStoreIsBroughtUpToDate: the store says that the job waits, or runs
// an earlier attempt, or is over, while a later attempt is under a supervisor.
func TestAnOlderStoreIsBroughtUpToDate(t *testing.T) {
	older := func(change func(*job.Job)) func(*job.Job) {
		return func(j *job.Job) { j.Attempt = job.Attempt{}; change(j) }
	}
	for _, test := range []struct {
		name string
		kind run.FoundKind
		make func(*job.Job)
		want int
	}{
		{"queued, and it runs", run.FoundRunning, older(func(j *job.Job) { j.State = job.Queued }), 1},
		{"queued, and it ended", run.FoundEnded, older(func(j *job.Job) { j.State = job.Queued }), 1},
		{"another supervisor has it", run.FoundRunning, func(j *job.Job) { j.Keep = "t0" }, 1},
		{"over", run.FoundRunning, older(func(j *job.Job) { j.State, j.Outcome = job.Cancelled, job.WasCancelled }), 1},
		{"as it is", run.FoundRunning, func(*job.Job) {}, 0},
		{"a later attempt is over", run.FoundEnded, func(j *job.Job) { j.State, j.Keep = job.Queued, "" }, 0},
		{"another job with its number", run.FoundRunning, older(func(j *job.Job) { j.State, j.SubmittedAt = job.Queued, j.SubmittedAt.Add(1) }), 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := runOne(t)
			f := r.foundCopy(test.kind, keep.Record{ExitCode: 3})
			row := r.rows["1"].Clone()
			test.make(row)
			r.rows["1"] = row
			regained, err := Regain(r, []run.Found{f}, false)
			if err != nil || len(regained) != test.want {
				t.Fatalf("regained %+v, %v", regained, err)
			}
			if test.want == 1 {
				r.wantRow("1", job.Running, "")
				r.again(f)
				r.pass(time.Second)
				if len(r.at().recovery.Strays()) != 0 {
					t.Errorf("strays %+v", r.at().recovery.Strays())
				}
			}
		})
	}
}

// TestAJobIsNotStartedBesideItsStray: another job has its number, and waits until
// a user releases it.
func TestAJobIsNotStartedBesideItsStray(t *testing.T) {
	r := runOne(t, vram(1000))
	f := r.foundCopy(run.FoundRunning, keep.Record{})
	r.rows["1"].State, r.rows["1"].Attempt = job.Queued, job.Attempt{Number: 4}
	r.again(f)
	r.pass(time.Second)
	r.wantRow("1", job.Queued, "")
	if !r.row("1").Held {
		t.Error("it is not held")
	}
	if err := r.at().recovery.AdoptStray("t1", nil); err == nil {
		t.Error("the stray took the number of a job in the queue")
	}
}

func TestWhatRunsBesideANewStore(t *testing.T) {
	found := []run.Found{{Kind: run.FoundEnded, Job: "1"}, {Kind: run.FoundRunning, Job: "2"}}
	if ids := Beside(0, found); len(ids) != 1 || ids[0] != "2" {
		t.Errorf("beside a new store: %q", ids)
	}
	if ids := Beside(7, found); len(ids) != 0 {
		t.Errorf("beside a store with jobs: %q", ids)
	}
}
