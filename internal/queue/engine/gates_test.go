package engine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
)

func cpu(s *job.Spec) { s.GPUs = 0 }

func TestDependencies(t *testing.T) {
	ends := []struct {
		outcome job.Outcome
		record  keep.Record
	}{
		{job.OK, keep.Record{}},
		{"exit:2", keep.Record{ExitCode: 2}},
	}
	tests := []struct {
		on      job.Condition
		outcome job.Outcome
		runs    bool
	}{
		{job.AfterOK, job.OK, true},
		{job.AfterOK, "exit:2", false},
		{job.AfterAny, job.OK, true},
		{job.AfterAny, "exit:2", true},
		{job.AfterFail, job.OK, false},
		{job.AfterFail, "exit:2", true},
	}
	for _, test := range tests {
		t.Run(string(test.on)+" after "+string(test.outcome), func(t *testing.T) {
			r := newRig(t, 2)
			r.submit(spec(), spec(after("1", test.on)))
			r.wantRow("2", job.Queued, "")
			if why := r.at().explain.Why("2"); !strings.Contains(why, "waits for job 1 (running)") {
				t.Errorf("why: %q", why)
			}
			for _, end := range ends {
				if end.outcome == test.outcome {
					r.end("1", end.record, false)
				}
			}
			if test.runs {
				r.wantRow("2", job.Running, "")
				return
			}
			r.wantRow("2", job.Cancelled, job.Depends)
			if detail := r.row("2").Detail; !strings.Contains(detail, "but that job "+test.outcome.Words()) {
				t.Errorf("detail: %q", detail)
			}
		})
	}
}

func TestAJobThatGoesBackToTheQueueKeepsOthersWaiting(t *testing.T) {
	r := newRig(t, 2)
	r.submit(spec(vram(1000), retries(1)), spec(after("1", job.AfterFail)))
	r.end("1", keep.Record{ExitCode: 1}, true)
	r.wantRow("1", job.Running, "")
	r.wantRow("2", job.Queued, "")
	r.end("1", keep.Record{ExitCode: 1}, true)
	r.wantRow("1", job.Failed, job.OOM)
	r.wantRow("2", job.Running, "")
}

func TestABrokenConditionCancelsTheWholeChain(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec(), spec(after("1", job.AfterOK)), spec(after("2", job.AfterOK)), spec(after("3", job.AfterFail)))
	r.end("1", keep.Record{ExitCode: 1}, false)
	r.wantRow("2", job.Cancelled, job.Depends)
	r.wantRow("3", job.Cancelled, job.Depends)
	r.wantRow("4", job.Running, "")
}

func TestDependenciesMayPointForwardAndToSeveral(t *testing.T) {
	r := newRig(t, 3)
	r.submit(spec(after("2", job.AfterOK), after("3", job.AfterAny)), spec(), spec())
	r.end("2", keep.Record{}, false)
	r.wantRow("1", job.Queued, "")
	r.end("3", keep.Record{ExitCode: 1}, false)
	r.wantRow("1", job.Running, "")
}

func TestADependencyThatEndedLongAgoIsLookedUp(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec())
	r.end("1", keep.Record{}, false)
	r.submit(spec(after("1", job.AfterOK)), spec(after("1", job.AfterFail)), spec(after("99", job.AfterAny)))
	r.wantRow("2", job.Running, "")
	r.wantRow("3", job.Cancelled, job.Depends)
	r.wantRow("4", job.Cancelled, job.Depends)
	if detail := r.row("4").Detail; !strings.Contains(detail, "job 99") || !strings.Contains(detail, "unknown") {
		t.Errorf("detail: %q", detail)
	}
}

func TestConditionsAreSettledAtTheStart(t *testing.T) {
	for code, want := range []job.State{job.Running, job.Cancelled} {
		r := newRig(t, 1)
		r.submit(spec(), spec(after("1", job.AfterOK)))
		r.again(foundOne(run.FoundEnded, keep.Record{ExitCode: code})) // it ended while no berth was there
		r.pass(time.Millisecond)
		if got := r.row("2").State; got != want {
			t.Errorf("job 1 exited %d: job 2 is %s, want %s", code, got, want)
		}
	}
}

func TestAJobMayWaitForAStart(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec(), spec(), spec(cpu, after("2", job.AfterStart)), spec(cpu, after("2", job.AfterAny)))
	r.wantRow("3", job.Queued, "")
	if why := r.at().explain.Why("3"); why != "waits for job 2 (queued) to start" {
		t.Errorf("why: %q", why)
	}
	r.end("1", keep.Record{}, false)
	r.pass(time.Millisecond)
	r.wantRow("2", job.Running, "")
	r.wantRow("3", job.Running, "")
	r.wantRow("4", job.Queued, "")
	r.submit(spec(), spec(cpu, after("5", job.AfterStart)), spec(cpu, after("2", job.AfterStart)))
	r.wantRow("7", job.Running, "") // it had started before
	r.at().requests.Cancel("5", "asked")
	r.pass(time.Millisecond)
	r.wantRow("6", job.Running, "")
}

func TestAStartMayHaveToBeSomeTimeAgo(t *testing.T) {
	later := func(id string) func(*job.Spec) {
		return func(s *job.Spec) {
			s.After = append(s.After, job.Dependency{Job: id, On: job.AfterStart, DelayS: 60})
		}
	}
	r := newRig(t, 1)
	r.submit(spec(), spec(), spec(cpu, later("2")))
	r.pass(time.Hour)
	r.wantRow("3", job.Queued, "")
	r.end("1", keep.Record{}, false)
	r.pass(time.Millisecond)
	r.wantRow("2", job.Running, "")
	for range 2 { // also if it ends meanwhile, and after a restart
		r.pass(25 * time.Second)
		r.wantRow("3", job.Queued, "")
		if why := r.at().explain.Why("3"); !strings.HasPrefix(why, "waits for job 2 (") || !strings.HasSuffix(why, " to start, and 1m0s to pass") {
			t.Errorf("why: %q", why)
		}
		if r.row("2").State == job.Running {
			r.end("2", keep.Record{ExitCode: 1}, false)
			r.again()
		}
	}
	r.pass(11 * time.Second)
	r.wantRow("3", job.Running, "")
}

func TestOneAlternativeIsEnough(t *testing.T) {
	or := func(alt int, id string, on job.Condition) func(*job.Spec) {
		return func(s *job.Spec) { s.After = append(s.After, job.Dependency{Job: id, On: on, Alt: alt}) }
	}
	r := newRig(t, 3)
	r.submit(spec(), spec(), spec(),
		spec(cpu, or(0, "1", job.AfterOK), or(0, "2", job.AfterOK), or(1, "3", job.AfterOK)),
		spec(cpu, or(0, "1", job.AfterFail), or(1, "2", job.AfterFail)),
		spec(cpu, or(0, "1", job.AfterFail), or(1, "3", job.AfterFail)))
	if why := r.at().explain.Why("4"); why != "waits for job 1 (running) to succeed, and 1 more, or 1 more" {
		t.Errorf("why: %q", why)
	}
	r.end("1", keep.Record{ExitCode: 1}, false) // the first alternative of 4 is gone
	r.wantRow("4", job.Queued, "")
	if why := r.at().explain.Why("4"); why != "waits for job 3 (running) to succeed" {
		t.Errorf("why: %q", why)
	}
	r.wantRow("5", job.Running, "")
	r.end("5", keep.Record{}, false)
	r.end("2", keep.Record{}, false) // nobody waits for it any more
	r.wantRow("4", job.Queued, "")
	r.wantRow("5", job.Finished, job.OK)
	r.end("3", keep.Record{ExitCode: 1}, false)
	r.wantRow("4", job.Cancelled, job.Depends)
	r.wantRow("6", job.Running, "")
}

func TestABackoffIsAGate(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec(retries(2), onFail), spec())
	r.end("1", keep.Record{ExitCode: 1}, false)
	r.wantRow("1", job.Queued, "")
	if row := r.row("1"); len(row.Grant.GPUs) != 0 || !row.StartedAt.IsZero() || row.Attempt.Number != 1 {
		t.Errorf("while it waits it holds %v since %s, attempt %d", row.Grant.GPUs, row.StartedAt, row.Attempt.Number)
	}
	r.wantRow("2", job.Running, "") // another has its turn meanwhile
	r.end("2", keep.Record{}, false)
	r.wantRow("1", job.Queued, "")
	if got, want := r.e.turn.line.Gates.Next(), start0.Add(time.Second); !got.Equal(want) {
		t.Errorf("the gate opens at %s, want %s", got, want)
	}
	if why := r.at().explain.Why("1"); !strings.HasPrefix(why, "not before ") {
		t.Errorf("why: %q", why)
	}
	if wait := r.at().observer.wait(false); wait > time.Second {
		t.Errorf("the loop would sleep %s, past the gate", wait)
	}
	r.pass(time.Second)
	r.wantRow("1", job.Running, "")
}

func TestABackoffSurvivesACrash(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec(retries(2), onFail))
	r.end("1", keep.Record{ExitCode: 1}, false)
	r.again()
	r.pass(500 * time.Millisecond)
	r.wantRow("1", job.Queued, "")
	r.pass(600 * time.Millisecond)
	r.wantRow("1", job.Running, "")
}

func TestNextListsTheLineThenTheGates(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec(), spec(after("1", job.AfterAny)), spec(), spec(func(s *job.Spec) { s.Priority = 5 }))
	// Job 4 has priority and runs; 1 and 3 stand in line, 2 behind a gate.
	r.wantRow("4", job.Running, "")
	var ids []string
	for _, j := range r.at().explain.Next(10) {
		ids = append(ids, j.ID)
	}
	if got := strings.Join(ids, " "); got != "1 3 2" {
		t.Errorf("next: %s", got)
	}
	if n := len(r.at().explain.Next(1)); n != 1 {
		t.Errorf("asked for one, got %d", n)
	}
	for most := 1; most <= 4; most++ {
		ids = nil
		r.at().explain.InOrder(func(j *job.Job) bool { ids = append(ids, j.ID); return len(ids) < most })
		if want := []string{"4", "1", "3", "2"}[:most]; !slices.Equal(ids, want) {
			t.Errorf("the first %d: %v, want %v", most, ids, want)
		}
	}
}

func auto(s *job.Spec) { s.VRAMAuto = true }

func TestVRAMAuto(t *testing.T) {
	r := newRig(t, 2)
	r.peaks["known"] = 9000
	r.submit(spec(auto, command("known")), spec(auto, command("new")), spec(auto, command("new")), spec(command("known")))
	if row := r.row("4"); row.VRAMMiB != 0 {
		t.Errorf("a job that did not ask for it was given %d MiB", row.VRAMMiB)
	}
	if row := r.row("1"); row.VRAMMiB != 9900 || row.Grant.Alone {
		t.Errorf("known before: %d MiB, alone %v; want the peak with the spike buffer", row.VRAMMiB, row.Grant.Alone)
	}
	if row := r.row("2"); row.VRAMMiB != 0 || !row.Grant.Alone {
		t.Errorf("not known: %d MiB, alone %v; want a card to itself", row.VRAMMiB, row.Grant.Alone)
	}
	r.wantRow("3", job.Queued, "")
	r.e.turn.cards.Meter.Seed("2", map[int]int64{1: 5000})
	r.end("2", keep.Record{}, false)
	r.pass(time.Millisecond)
	r.wantRow("3", job.Running, "")
	if row := r.row("3"); row.VRAMMiB != 5500 || row.Grant.Alone {
		t.Errorf("measured a moment ago: %d MiB, alone %v; want the peak with the spike buffer", row.VRAMMiB, row.Grant.Alone)
	}
}

func TestVRAMAutoLearnsForThoseThatStillWait(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec(auto, command("new")), spec(auto, command("new")), spec(auto, command("new")))
	r.e.turn.cards.Meter.Seed("1", map[int]int64{0: 5000})
	r.end("1", keep.Record{}, false)
	r.pass(time.Millisecond)
	for _, id := range []string{"2", "3"} {
		if row := r.row(id); row.VRAMMiB != 5500 || row.State != job.Running {
			t.Errorf("job %s declares %d MiB and is %s; both fit one card now", id, row.VRAMMiB, row.State)
		}
	}
}

func TestVRAMAutoLearnsNothingFromAFailure(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec(auto, command("new")), spec(auto, command("new")))
	r.e.turn.cards.Meter.Seed("1", map[int]int64{0: 50})
	r.end("1", keep.Record{ExitCode: 1}, false)
	r.pass(time.Millisecond)
	if row := r.row("2"); row.VRAMMiB != 0 || !row.Grant.Alone {
		t.Errorf("it declares %d MiB from a run that broke off", row.VRAMMiB)
	}
}

func TestVRAMAutoDoesNotForgetWhatARetryRaisedItTo(t *testing.T) {
	r := newRig(t, 2)
	r.submit(spec(auto, command("new"), retries(2)), spec(auto, command("new")))
	r.e.turn.cards.Meter.Seed("1", map[int]int64{0: 9000})
	r.hear(run.Ended, "1", keep.Record{ExitCode: 1}, true) // back with 11250
	r.e.turn.cards.Meter.Seed("2", map[int]int64{1: 4000})
	r.end("2", keep.Record{}, false)
	if row := r.row("1"); row.VRAMMiB != 11250 {
		t.Errorf("it declares %d MiB after running out of memory at 9000", row.VRAMMiB)
	}
}

// TestWhatRanOnceIsNotRefusedForTheMargin: what a vram=auto job is declared at
// after a measurement never passes what its card can hold.
func TestWhatRanOnceIsNotRefusedForTheMargin(t *testing.T) {
	r := newRig(t, 1)
	r.look()
	r.step()
	holds := r.devices[0].TotalMiB - r.e.turn.cfg.Rules.MarginMiB
	for _, row := range []struct{ peak, want int64 }{
		{1000, 1100}, {holds - 1, holds}, {holds, holds}, {holds + 400, holds},
	} {
		if got := r.e.turn.line.AutoMiB(r.now, &job.Job{Spec: spec()}, row.peak); got != row.want {
			t.Errorf("measured at %d MiB it is declared at %d, want %d", row.peak, got, row.want)
		}
	}
}
