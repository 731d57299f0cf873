package engine

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
	"berth/internal/queue/engine/running"
	"berth/internal/sched"
)

func priority(n int) func(*job.Spec) { return func(s *job.Spec) { s.Priority = n } }
func gives(s *job.Spec)              { s.Preemptible = "requeue" }
func warned(d time.Duration) func(*job.Spec) {
	return func(s *job.Spec) { s.WarnSignal, s.WarnBefore = "USR1", d }
}

// longEnough is for how long a job has to have run before it gives way.
const longEnough = 3 * time.Minute

// crowded is a machine of one card on which job 1 runs, and job 2 wants to.
func crowded(t *testing.T, first job.Spec, change ...func(*Config)) *rig {
	t.Helper()
	r := newRig(t, 1, change...)
	r.submit(first)
	r.pass(longEnough)
	r.did, r.told = nil, nil
	r.submit(spec(priority(5), vram(20000)))
	return r
}

func aside() keep.Record { return keep.Record{Stop: string(job.StopPreempt)} }

func TestAJobIsSetAsideAndComesBackToItsPlace(t *testing.T) {
	r := crowded(t, spec(gives, vram(20000), retries(1)))
	r.wantDid("commit 1:running 2:queued", "stop t1 aside 10s")
	if row := r.row("1"); !row.Leaving() || row.PreemptedFor != "2" || row.Detail != "is being preempted for job 2" {
		t.Errorf("on disk it is %+v", row)
	}
	r.wantTold("queued 2", "stopping 1")
	r.pass(time.Second)
	r.wantDid() // it is told once
	r.hear(run.Ended, "1", aside(), false)
	r.pass(time.Second)
	r.wantTold("set_aside 1", "started 2")
	row := r.row("1")
	if row.State != job.Queued || row.Preemptions != 1 || row.RetriesUsed != 0 || row.Rank != 0 || !row.WaitsSince.Equal(r.now.Add(-time.Second)) || row.Detail != "preempted for job 2" {
		t.Errorf("it came back as %+v", row)
	}
	if why := r.at().explain.Why("1"); !strings.HasPrefix(why, "preempted for job 2; ") {
		t.Errorf("why: %q", why)
	}
	if why := r.at().explain.Reasons([]string{"1"})["1"]; !strings.HasPrefix(why, "preempted for job 2; ") {
		t.Errorf("its reason: %q", why)
	}
	r.end("2", keep.Record{}, false)
	if row := r.row("1"); row.State != job.Running || row.Attempt.Number != 2 || row.Log != "1/2.log" || row.PreemptedFor != "" || row.Preemptions != 1 || row.Detail != "" {
		t.Errorf("it runs again as %+v", row)
	}
}

func TestWhoStaysOnTheCards(t *testing.T) {
	park := func(s *job.Spec) { s.Preemptible = "park" }
	for _, test := range []struct {
		name   string
		spec   job.Spec
		change func(*Config)
	}{
		{"one that does not say that it gives way", spec(vram(20000)), func(*Config) {}},
		{"one that may only be parked, which no machine can", spec(park, vram(20000)), func(*Config) {}},
		{"one that gives way where nobody is set aside", spec(gives, vram(20000)), func(c *Config) { c.KeepAll = true }},
		{"one of the same priority", spec(gives, priority(5), vram(20000)), func(*Config) {}},
	} {
		r := crowded(t, test.spec, test.change)
		if r.wantRow("1", job.Running, ""); r.row("1").Stop != job.NoStop {
			t.Errorf("%s was told to leave", test.name)
		}
		r.at().set.KeepAll(false)
		r.pass(time.Second)
		if left := r.row("1").Leaving(); left != strings.Contains(test.name, "nobody") {
			t.Errorf("%s: after that was allowed, leaving is %v", test.name, left)
		}
	}
}

func TestAHigherPriorityTakesEffectAtOnce(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec(gives, vram(20000)))
	r.pass(longEnough)
	r.submit(spec(vram(20000)))
	r.wantRow("1", job.Running, "")
	r.at().queue.Edit("2", spec(vram(20000), priority(1)), 2)
	r.step()
	if !r.row("1").Leaving() {
		t.Error("an edited priority moves nobody")
	}
}

func TestWhatEndedByItselfEndedSo(t *testing.T) {
	for _, test := range []struct {
		name   string
		record keep.Record
		state  job.State
		want   job.Outcome
	}{
		{"well, before it heard anything", keep.Record{}, job.Finished, job.OK},
		{"badly, before it heard anything", keep.Record{ExitCode: 3}, job.Failed, job.Exited(3)},
		{"at its limit, before it was told", keep.Record{Stop: "timeout"}, job.Failed, job.Timeout},
		{"with 0, after it was told", aside(), job.Queued, ""},
		{"with an error, after it was told", keep.Record{Stop: "aside", ExitCode: 1}, job.Queued, ""},
		{"by a signal, after it was told", keep.Record{Stop: "aside", Signal: 9}, job.Queued, ""},
	} {
		r := crowded(t, spec(gives, vram(20000)))
		r.hear(run.Ended, "1", test.record, false)
		r.pass(time.Second)
		if row := r.row("1"); row.State != test.state || row.Outcome != test.want || row.Preemptions > 0 && row.State != job.Queued {
			t.Errorf("%s: %s %q, set aside %d times", test.name, row.State, row.Outcome, row.Preemptions)
		}
	}
}

// TestWhatSendsALeaverBackIsCountedOnce: what came before TERM, a limit or a
// failure, has its own count and its own place.
func TestWhatSendsALeaverBackIsCountedOnce(t *testing.T) {
	atLimit := func(s *job.Spec) { s.TimeLimit, s.OnTimeout = time.Hour, job.TimeoutRequeue }
	for _, test := range []struct {
		name                         string
		spec                         job.Spec
		record                       keep.Record
		preempted, requeued, retried int
	}{
		{"its limit", spec(gives, vram(20000), atLimit), keep.Record{Stop: "timeout"}, 0, 1, 0},
		{"a failure", spec(gives, vram(20000), retries(1), onFail), keep.Record{ExitCode: 1}, 0, 0, 1},
		{"TERM, with a limit", spec(gives, vram(20000), atLimit), aside(), 1, 0, 0},
		{"TERM, which made it fail", spec(gives, vram(20000), retries(1), onFail), keep.Record{Stop: "aside", ExitCode: 1}, 1, 0, 0},
	} {
		r := crowded(t, test.spec)
		r.hear(run.Ended, "1", test.record, false)
		r.pass(time.Second)
		row := r.row("1")
		if row.State != job.Queued || row.Preemptions != test.preempted || row.Requeues != test.requeued || row.RetriesUsed != test.retried {
			t.Errorf("%s: %s, set aside %d times, requeued %d, retried %d", test.name, row.State, row.Preemptions, row.Requeues, row.RetriesUsed)
		}
		if (row.Rank != 0) != (test.requeued > 0) || (row.PreemptedFor != "") != (test.preempted > 0) {
			t.Errorf("%s: it waits at %d for job %q", test.name, row.Rank, row.PreemptedFor)
		}
	}
}

// TestAProcessThatBerthDidNotStartStays: nothing of it could be run again.
func TestAProcessThatBerthDidNotStartStays(t *testing.T) {
	r := newRig(t, 1)
	adopted := spec(gives)
	adopted.Adopt = &job.Process{}
	if mode := r.at().attempts.Parking.PreemptMode(&running.Attempt{Job: &job.Job{Spec: adopted}}).Mode; mode != "" {
		t.Errorf("it is set aside: %s", mode)
	}
	if mode := r.at().attempts.Parking.PreemptMode(&running.Attempt{Job: &job.Job{Spec: job.Spec{Preemptible: "requeue"}}}).Mode; mode != sched.Requeue {
		t.Errorf("another is not: %q", mode)
	}
}

func TestAWarningComesFirst(t *testing.T) {
	r := crowded(t, spec(gives, vram(20000), warned(30*time.Second)))
	r.wantDid("commit 1:running 2:queued", "warn t1")
	if at := r.row("1").PreemptAt; !at.Equal(r.now.Add(30 * time.Second)) {
		t.Errorf("it is told to end at %v, now is %v", at, r.now)
	}
	r.e.turn.again, r.e.turn.moved = time.Time{}, false
	if wait := r.at().observer.wait(true); wait != 30*time.Second {
		t.Errorf("the loop sleeps for %v", wait)
	}
	r.pass(29 * time.Second)
	r.wantDid()
	r.pass(time.Second)
	r.wantDid("stop t1 aside 10s")
	if at := r.at().attempts.Preemption.UrgeAt(); !at.IsZero() {
		t.Errorf("told, the loop wakes at %v", at)
	}
	r.end("1", aside(), false)
	r.wantRow("1", job.Queued, "")
	r.wantRow("2", job.Running, "")
}

func TestNobodyNeedsTheCardsAnyMore(t *testing.T) {
	warm := crowded(t, spec(gives, vram(20000), warned(30*time.Second)))
	warm.e.at(warm.now).requests.Cancel("2", "asked")
	warm.told = nil
	warm.step()
	if row := warm.row("1"); row.State != job.Running || row.Stop != job.NoStop || row.PreemptedFor != "" || row.Detail != "" || !row.PreemptAt.IsZero() {
		t.Errorf("only warned, it is %+v", row)
	}
	if !slices.Contains(warm.kinds(), "notice 1") {
		t.Error("nobody is told that it stays")
	}
	warm.pass(time.Minute)
	warm.wantRow("1", job.Running, "")
	for _, did := range warm.did {
		if strings.HasPrefix(did, "stop") {
			t.Errorf("it was warned only, and: %s", did)
		}
	}
	cold := crowded(t, spec(gives, vram(20000)))
	cold.e.at(cold.now).requests.Cancel("2", "asked")
	cold.pass(time.Second)
	if !cold.row("1").Leaving() {
		t.Error("what had its TERM goes on as if nothing was")
	}
	cold.hear(run.Ended, "1", aside(), false)
	cold.pass(time.Second)
	if row := cold.row("1"); row.State != job.Running || row.Attempt.Number != 2 || row.Preemptions != 1 {
		t.Errorf("it does not start again at once: %+v", row)
	}
}

func TestADecisionThatCannotBeWrittenIsNone(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec(gives, vram(20000), warned(time.Second)))
	jobs := []*job.Job{{Spec: spec(vram(20000), priority(5))}}
	r.at().queue.Number(jobs)
	r.at().queue.Submit(jobs)
	r.step()
	r.now = r.now.Add(longEnough)
	r.look()
	r.commitErr = errDisk
	r.did = nil
	if err := r.e.Step(r.now); err == nil {
		t.Fatal("the round succeeded")
	}
	r.wantDid("no room for 1:running")
	if j := r.at().line.Roster.Get("1"); j.Stop != job.NoStop || j.PreemptedFor != "" {
		t.Errorf("it is %+v though nothing is on disk", j)
	}
	r.commitErr = nil
	r.pass(time.Second)
	r.wantDid("commit 1:running", "warn t1")
}

func TestWhatPeopleAskOfAJobThatLeaves(t *testing.T) {
	for _, test := range []struct {
		name  string
		spec  job.Spec
		ask   func(r *rig)
		state job.State
		want  string // what it says then
		held  bool
	}{
		{"it is cancelled", spec(gives, vram(20000)), func(r *rig) { r.at().requests.CancelBy("1", "ann", 0) }, job.Cancelled, "cancelled by ann while running", false},
		{"it is cancelled before it was told", spec(gives, vram(20000), warned(time.Minute)), func(r *rig) { r.at().requests.CancelBy("1", "ann", 0) }, job.Cancelled, "cancelled by ann while running", false},
		{"it is requeued", spec(gives, vram(20000)), func(r *rig) { r.at().requests.Requeue("1", "ann", 0) }, job.Queued, "requeued by ann", false},
		{"it is requeued, and who it made room for cancelled", spec(gives, vram(20000), warned(time.Minute)), func(r *rig) {
			r.at().requests.Requeue("1", "ann", 0)
			r.at().queue.Hold("2", "ann")
		}, job.Running, "", false},
		{"it is held", spec(gives, vram(20000)), func(r *rig) { r.at().queue.Hold("1", "ann") }, job.Queued, "preempted for job 2", true},
		{"berth is stopped", spec(gives, vram(20000)), func(r *rig) { r.at().requests.Interrupt(false) }, job.Queued, "preempted for job 2", false},
	} {
		r := crowded(t, test.spec)
		test.ask(r)
		r.step()
		stopped := slices.ContainsFunc(r.did, func(did string) bool { return strings.HasPrefix(did, "stop t1") })
		r.hear(run.Ended, "1", aside(), false)
		r.pass(time.Second)
		if row := r.row("1"); !stopped || row.State != test.state || row.Detail != test.want || row.Held != test.held {
			t.Errorf("%s: told to end: %v, and then %s %q held %v", test.name, stopped, row.State, row.Detail, row.Held)
		}
	}
}

func TestALeaverIsFoundAgain(t *testing.T) {
	for _, test := range []struct {
		name   string
		warned time.Duration
		after  time.Duration // until the next berth comes
		found  run.Found
		did    []string // what it does at once
		state  job.State
		detail string
	}{
		{"told, and still there: it is told again", 0, time.Second, run.Found{Kind: run.FoundRunning}, []string{"stop t1 aside 10s"}, job.Running, "is being preempted for job 2"},
		{"warned, and its time not over: it is warned again", time.Minute, time.Second, run.Found{Kind: run.FoundRunning}, []string{"warn t1"}, job.Running, "is being preempted for job 2"},
		{"warned, and its time over meanwhile: it is told", time.Minute, 2 * time.Minute, run.Found{Kind: run.FoundRunning}, []string{"stop t1 aside 10s"}, job.Running, "is being preempted for job 2"},
		{"told, and gone", 0, time.Second, run.Found{Kind: run.FoundEnded, Record: aside()}, []string{"ack t1"}, job.Queued, "preempted for job 2"},
		{"told, but it had ended by itself", 0, time.Second, run.Found{Kind: run.FoundEnded}, []string{"ack t1"}, job.Finished, ""},
		{"told, and its supervisor's place is gone", 0, time.Second, run.Found{Kind: run.FoundEnded, Token: "another"}, []string{"ack another"}, job.Queued, "preempted for job 2"},
	} {
		r := crowded(t, spec(gives, vram(20000), warned(test.warned)))
		r.did = nil
		r.now = r.now.Add(test.after)
		f := test.found
		f.Token, f.Job, f.Attempt = orElse(f.Token, "t1"), "1", 1
		r.again(f)
		r.step()
		for _, want := range test.did {
			if !slices.Contains(r.did, want) {
				t.Errorf("%s: it did %q", test.name, r.did)
			}
		}
		if row := r.row("1"); row.State != test.state || row.Detail != test.detail {
			t.Errorf("%s: %s %q", test.name, row.State, row.Detail)
		}
		if row := r.row("1"); test.state == job.Queued && (row.Preemptions != 1 || row.Rank != 0) {
			t.Errorf("%s: it came back as %+v", test.name, row)
		}
	}
}

func TestALeaverThatIsLostRunsAgain(t *testing.T) {
	r := crowded(t, spec(gives, vram(20000)))
	r.hear(run.Lost, "1", keep.Record{}, false)
	r.pass(time.Second)
	if row := r.row("1"); row.State != job.Queued || row.Preemptions != 1 {
		t.Errorf("told to leave and lost: %+v", row)
	}
	r = crowded(t, spec(gives, vram(20000), warned(time.Minute)))
	r.hear(run.Lost, "1", keep.Record{}, false)
	r.pass(time.Second)
	r.wantRow("1", job.Failed, job.Lost)
}

func TestALeaverWhoseTimeIsOverWasToldWhoeverWaits(t *testing.T) {
	r := crowded(t, spec(gives, vram(20000)))
	r.at().requests.Cancel("2", "asked")
	r.step()
	r.did = nil
	r.again(run.Found{Kind: run.FoundRunning, Token: "t1", Job: "1", Attempt: 1})
	r.step()
	if !slices.Contains(r.did, "stop t1 aside 10s") || !r.row("1").Leaving() {
		t.Errorf("it did %q, and the job is %+v", r.did, r.row("1"))
	}
}

func TestWhoIsOverOrEndingIsNotSetAside(t *testing.T) {
	r := newRig(t, 2)
	r.submit(spec(gives), spec(gives))
	r.at().requests.Cancel("2", "asked")
	for _, planned := range []sched.Victim{{Job: "2", Mode: sched.Park}, {Job: "2", Mode: sched.Requeue}, {Job: "3", Mode: sched.Requeue}} {
		planned.For = "9"
		if list := r.e.turn.attempts.Preemption.Victims(r.now, []sched.Victim{planned}); len(list) > 0 {
			t.Errorf("%+v makes %+v leave", planned, list[0])
		}
	}
	if list := r.e.turn.attempts.Preemption.Victims(r.now, []sched.Victim{{Job: "1", For: "9", Mode: sched.Requeue}}); len(list) != 1 {
		t.Error("nobody leaves")
	}
}

// TestTheCardsOfALeaverAreSpokenFor: somebody who would fit there too does not
// get them while who they were left for waits.
func TestTheCardsOfALeaverAreSpokenFor(t *testing.T) {
	r := crowded(t, spec(gives, vram(20000)))
	held := r.at().explain.State().Allocations
	if len(held) != 1 || !held[0].BeingPreempted || held[0].PreemptedFor != "2" || !held[0].FreeBy.Equal(r.now.Add(10*time.Second)) || held[0].Preempt != (sched.Preempt{}) {
		t.Errorf("the plan sees %+v", held)
	}
	r.submit(spec(vram(20000), priority(1)))
	r.hear(run.Ended, "1", aside(), false)
	r.pass(time.Second)
	r.wantRow("2", job.Running, "")
	r.wantRow("3", job.Queued, "")
}

// TestAJobThatStaysIsNotHeld: only what waits can be held, and nobody could
// release it while it runs.
func TestAJobThatStaysIsNotHeld(t *testing.T) {
	r := crowded(t, spec(gives, vram(20000), warned(time.Minute)))
	if !r.at().queue.Hold("1", "ann") {
		t.Fatal("one that leaves cannot be held")
	}
	r.at().requests.Cancel("2", "asked")
	r.step()
	if row := r.row("1"); row.State != job.Running || row.Stop != job.NoStop || row.Held {
		t.Errorf("it stays as %+v", row)
	}
}

// TestACancelledLeaverDoesNotSayThatItLeaves: nobody gave a name, as where a
// line of a jobs file is marked.
func TestACancelledLeaverDoesNotSayThatItLeaves(t *testing.T) {
	for _, record := range []keep.Record{aside(), {Stop: string(job.StopCancel)}} {
		r := crowded(t, spec(gives, vram(20000)))
		r.at().requests.Cancel("1", "its line is marked cancel")
		r.step()
		r.hear(run.Ended, "1", record, false)
		r.pass(time.Second)
		if row := r.row("1"); row.State != job.Cancelled || row.Detail != "cancelled while running" {
			t.Errorf("after %+v it is %s %q", record, row.State, row.Detail)
		}
	}
}

// TestADecisionThatCouldNotBeMadeIsNotTriedWithoutAPause: the moment that the
// last plan named is over, and the next look at the cards asks again.
func TestADecisionThatCouldNotBeMadeIsNotTriedWithoutAPause(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec(gives, vram(20000)))
	r.submit(spec(vram(20000), priority(5)))
	if r.at().round.decideAt().IsZero() {
		t.Fatal("time alone changes nothing here")
	}
	for what, stand := range map[string]*error{"the ledger is locked": &r.lockErr, "the ledger cannot be read": &r.othersErr} {
		*stand = errOther
		r.pass(longEnough)
		if wait := r.at().observer.wait(true); wait < r.e.turn.cfg.Poll {
			t.Errorf("%s, and the loop asks again after %v", what, wait)
		}
		*stand = nil
		r.e.turn.again = r.now
	}
	r.pass(time.Second)
	if !r.row("1").Leaving() {
		t.Error("nothing is decided once nothing stands in the way")
	}
}

// TestAClockThatIsSetBackDoesNotPutTheEndOff: a leaver is told within the time
// that it wanted, not after as much again as the clock lost.
func TestAClockThatIsSetBackDoesNotPutTheEndOff(t *testing.T) {
	r := crowded(t, spec(gives, vram(20000), warned(30*time.Second)))
	r.pass(-time.Minute)
	if at := r.row("1").PreemptAt; at.After(r.now.Add(30 * time.Second)) {
		t.Errorf("it is told in %v", at.Sub(r.now))
	}
}

// TestAStartThatCameToNothingIsNoNewWait: it was never on its cards.
func TestAStartThatCameToNothingIsNoNewWait(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec(vram(20000)))
	r.now = r.now.Add(time.Minute)
	r.hear(run.NeverRan, "1", keep.Record{}, false)
	r.step()
	if since := r.row("1").WaitsSince; since.After(r.row("1").SubmittedAt) {
		t.Errorf("it waits since %v", since)
	}
}

// TestJobsAtTheirLimitTakeTurns: a job that is sent to the end of the queue is
// behind those that were sent there before it, and before those that come later.
func TestJobsAtTheirLimitTakeTurns(t *testing.T) {
	r := newRig(t, 1, func(c *Config) { c.Submissions = true })
	limited := job.Spec{Argv: []string{"a"}, GPUs: 1, TimeLimit: time.Hour, OnTimeout: job.TimeoutRequeue, MaxRequeues: 10}
	r.submit(limited, limited, limited)
	turns := ""
	for range 7 {
		running := slices.Collect(maps.Keys(r.at().attempts.Active))
		turns += running[0]
		r.end(running[0], keep.Record{Stop: "timeout"}, false)
		r.pass(time.Second)
	}
	if turns != "1231231" {
		t.Errorf("they ran in the order %s", turns)
	}
	r.submit(job.Spec{Argv: []string{"b"}, GPUs: 1})
	r.again()
	r.e.turn.cfg.Submissions = true
	r.submit(job.Spec{Argv: []string{"b"}, GPUs: 1})
	for _, id := range []string{"1", "2", "3"} {
		if r.row("4").Rank <= r.row(id).Rank || r.row("5").Rank <= r.row("4").Rank {
			t.Errorf("job %s is at %d, job 4 at %d, job 5 at %d", id, r.row(id).Rank, r.row("4").Rank, r.row("5").Rank)
		}
	}
}
