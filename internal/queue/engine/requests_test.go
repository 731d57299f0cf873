package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
)

func TestANewJobIsToldOfBeforeItStartsAndOnceItIsOnDisk(t *testing.T) {
	r := newRig(t, 1)
	r.commitErr = errDisk
	jobs := []*job.Job{{Spec: spec()}, {Spec: spec()}}
	r.at().queue.Number(jobs)
	r.at().queue.Submit(jobs)
	if err := r.e.Step(r.now); err == nil {
		t.Fatal("the disk is full, and the round succeeded")
	}
	r.wantTold("warning")
	if r.at().Written() {
		t.Error("all is said to be written")
	}
	r.commitErr = nil
	r.step()
	r.wantTold("queued 1", "queued 2", "started 1", "notice")
	if !r.at().Written() {
		t.Error("something is said to be unwritten")
	}
}

func TestEdit(t *testing.T) {
	tests := []struct {
		name  string
		edit  func(*rig)
		check func(*testing.T, *job.Job)
	}{
		{
			name:  "a changed spec applies and is on disk",
			edit:  func(r *rig) { r.at().queue.Edit("2", spec(vram(4000), gpus(1)), 1) },
			check: func(t *testing.T, j *job.Job) { wantMiB(t, j, 4000) },
		},
		{
			name: "a raised declaration outlives an edit that does not touch it",
			edit: func(r *rig) {
				r.e.turn.line.Roster.Get("2").VRAMMiB = 5000
				r.at().queue.Edit("2", spec(vram(2000), func(s *job.Spec) { s.Name = "x" }), 1)
			},
			check: func(t *testing.T, j *job.Job) { wantMiB(t, j, 5000) },
		},
		{
			name: "and gives way to one that does",
			edit: func(r *rig) {
				r.e.turn.line.Roster.Get("2").VRAMMiB = 5000
				r.at().queue.Edit("2", spec(vram(3000)), 1)
			},
			check: func(t *testing.T, j *job.Job) { wantMiB(t, j, 3000) },
		},
		{
			name: "an edit that makes it impossible ends it so",
			edit: func(r *rig) { r.at().queue.Edit("2", spec(gpus(9)), 1) },
			check: func(t *testing.T, j *job.Job) {
				if j.Outcome != job.Infeasible {
					t.Errorf("it is %s %q", j.State, j.Outcome)
				}
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, 1)
			r.submit(spec(), spec(vram(2000)))
			test.edit(r)
			r.step()
			test.check(t, r.row("2"))
		})
	}
}

func wantMiB(t *testing.T, j *job.Job, want int64) {
	t.Helper()
	if j.VRAMMiB != want {
		t.Errorf("it declares %d MiB, want %d", j.VRAMMiB, want)
	}
}

func TestEditOfARunningJobDoesNothing(t *testing.T) {
	r := runOne(t, vram(2000))
	r.at().queue.Edit("1", spec(vram(9000), command("other")), 7)
	r.step()
	r.wantDid()
	if j := r.at().line.Roster.Get("1"); j.Spec.VRAMMiB != 2000 || j.Spec.Shell == "other" {
		t.Errorf("it was changed: %+v", j.Spec)
	}
}

func TestReorderChangesWhoIsNext(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec(), spec(), spec())
	r.at().queue.Edit("2", spec(), 9)
	r.did = nil
	r.end("1", keep.Record{}, false)
	r.wantRow("3", job.Running, "")
	r.wantRow("2", job.Queued, "")
}

func TestARequeuedJobStaysBehindTheLinesThatWereThere(t *testing.T) {
	r := newRig(t, 1)
	again := spec(limited(job.TimeoutRequeue, 10))
	r.submit(again, spec(), spec())
	r.end("1", keep.Record{Stop: "timeout"}, false)
	r.wantRow("2", job.Running, "")
	r.at().queue.Edit("1", again, 0) // the file is saved again; its line is first
	r.end("2", keep.Record{}, false)
	r.wantRow("3", job.Running, "")
	r.end("3", keep.Record{}, false)
	r.wantRow("1", job.Running, "")
	if row := r.row("1"); row.Requeues != 1 || row.Attempt.Number != 2 {
		t.Errorf("requeues %d, attempt %d", row.Requeues, row.Attempt.Number)
	}
}

func TestAfterItsLimitAJobGoesBehindEveryPriority(t *testing.T) {
	prior := func(n int) func(*job.Spec) { return func(s *job.Spec) { s.Priority = n } }
	for _, last := range []bool{false, true} {
		r := newRig(t, 1)
		r.e.turn.cfg.LimitedLast = last
		r.submit(spec(limited(job.TimeoutRequeue, 10), prior(5)))
		r.submit(spec(prior(2)), spec(prior(-1)), spec(prior(3)))
		r.end("1", keep.Record{Stop: "timeout"}, false)
		var order []string
		for range 4 {
			for _, id := range []string{"1", "2", "3", "4"} {
				if r.row(id).State == job.Running {
					order = append(order, id)
					r.end(id, keep.Record{}, false)
					break
				}
			}
		}
		want, priority := "1 4 2 3", 5
		if last {
			want, priority = "4 2 3 1", -1
		}
		if got := strings.Join(order, " "); got != want || r.row("1").Spec.Priority != priority {
			t.Errorf("behind every priority %v: started %s with priority %d, want %s", last, got, r.row("1").Spec.Priority, want)
		}
	}
}

func TestWithdrawForgetsAQueuedJobOnly(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec(), spec())
	if r.at().queue.Withdraw("1") {
		t.Error("a running job was withdrawn")
	}
	if r.at().queue.Withdraw("42") {
		t.Error("a job that never was was withdrawn")
	}
	r.told = nil
	if !r.at().queue.Withdraw("2") {
		t.Error("a queued job was not")
	}
	r.step()
	r.wantTold("dequeued 2")
	if _, ok := r.rows["2"]; ok {
		t.Error("its row is still on disk")
	}
	r.end("1", keep.Record{}, false)
	if queued, running := r.at().explain.Live(); queued+running != 0 {
		t.Errorf("%d queued, %d running", queued, running)
	}
}

func TestWithdrawnBeforeItWasOnDisk(t *testing.T) {
	r := newRig(t, 1)
	jobs := []*job.Job{{Spec: spec()}}
	r.at().queue.Number(jobs)
	r.at().queue.Submit(jobs)
	r.at().queue.Withdraw("1")
	r.step()
	r.wantDid("commit 1:deleted")
}

func TestCancel(t *testing.T) {
	t.Run("a queued job ends at once", func(t *testing.T) {
		r := newRig(t, 1)
		r.submit(spec(), spec())
		if !r.at().requests.Cancel("2", "its line is marked cancel") {
			t.Error("refused")
		}
		r.step()
		r.wantRow("2", job.Cancelled, job.WasCancelled)
		if row := r.row("2"); row.Detail != "its line is marked cancel" || !row.StartedAt.IsZero() {
			t.Errorf("%+v", row)
		}
	})
	t.Run("a running job is stopped after the intent is on disk", func(t *testing.T) {
		r := runOne(t, func(s *job.Spec) { s.Grace = 3 * time.Second })
		r.at().requests.Cancel("1", "")
		r.wantDid()
		r.step()
		r.wantDid("commit 1:running", "stop t1 cancel 3s")
		r.hear(run.Ended, "1", keep.Record{ExitCode: 0, Stop: "cancel"}, false)
		r.step()
		r.wantRow("1", job.Cancelled, job.WasCancelled)
	})
	t.Run("asked twice, it is told of once and stopped again", func(t *testing.T) {
		r := runOne(t)
		r.at().requests.Cancel("1", "")
		r.step()
		r.at().requests.Cancel("1", "")
		r.step()
		r.wantTold("stopping 1")
	})
	t.Run("a job whose supervisor never ran it is cancelled, not queued again", func(t *testing.T) {
		r := runOne(t)
		r.at().requests.Cancel("1", "")
		r.hear(run.NeverRan, "1", keep.Record{}, false)
		r.step()
		r.wantRow("1", job.Cancelled, job.WasCancelled)
	})
	t.Run("what is over cannot be cancelled", func(t *testing.T) {
		r := runOne(t)
		r.end("1", keep.Record{}, false)
		if r.at().requests.Cancel("1", "") {
			t.Error("it was")
		}
		r.wantRow("1", job.Finished, job.OK)
	})
}

func TestInterruptStopsAllAndStartsNothing(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec(vram(4000)), spec(vram(4000)), spec())
	r.did = nil
	r.at().requests.Interrupt(false)
	r.step()
	if len(r.did) != 3 || r.did[0] != "commit 1:running 2:running" {
		t.Errorf("did %q", r.did)
	}
	r.at().requests.Interrupt(true)
	r.did = nil
	r.step()
	for _, act := range r.did {
		if act != "stop t1 interrupt 0s" && act != "stop t2 interrupt 0s" {
			t.Errorf("the second time: %q", act)
		}
	}
	r.hear(run.Ended, "1", keep.Record{Signal: 15, Stop: "interrupt"}, false)
	r.hear(run.Ended, "2", keep.Record{Signal: 15, Stop: "interrupt"}, false)
	r.pass(time.Second)
	for id := 1; id <= 3; id++ {
		r.wantRow(fmt.Sprint(id), job.Queued, "")
	}
	if why := r.at().explain.Why("3"); why != "berth is stopping" {
		t.Errorf("why: %q", why)
	}
	if r.at().observer.needsSample() {
		t.Error("it still wants to look at the cards")
	}
	if r.at().explain.Blocked() != "berth is stopping" {
		t.Errorf("blocked: %q", r.at().explain.Blocked())
	}
}

func TestACancelledJobStaysCancelledWhenBerthIsInterrupted(t *testing.T) {
	r := runOne(t)
	r.at().requests.Cancel("1", "")
	r.at().requests.Interrupt(false)
	r.step()
	r.wantDid("commit 1:running", "stop t1 cancel 10s", "stop t1 cancel 10s")
}

func TestAgainStartsFromTheBeginning(t *testing.T) {
	r := runOne(t, vram(8000), retries(1))
	r.end("1", keep.Record{ExitCode: 1, LogDropped: 7}, true)
	if row := r.row("1"); row.State != job.Running || row.LogDropped != 0 {
		t.Errorf("the next attempt is %s, and %d bytes of its log are gone", row.State, row.LogDropped)
	}
	r.end("1", keep.Record{ExitCode: 1, LogDropped: 9}, true)
	r.wantRow("1", job.Failed, job.OOM)
	if row := r.row("1"); row.LogDropped != 9 {
		t.Errorf("%d bytes of its log are gone", row.LogDropped)
	}
	r.told = nil
	r.at().queue.Again([]*job.Job{r.row("1").Clone()})
	r.step()
	r.wantTold("requeued 1", "started 1")
	row := r.row("1")
	if row.RetriesUsed != 0 || row.Attempt.Number != 3 || row.Outcome != "" || row.ExitCode != nil || !row.EndedAt.IsZero() || row.LogDropped != 0 {
		t.Errorf("%+v", row)
	}
	if row.Log != "1/3.log" {
		t.Errorf("its log is %s, where an old failure's text may be", row.Log)
	}
}

func TestNumbersAreNeverReused(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec(), spec())
	r.again(run.Found{Kind: run.FoundEmpty, Token: "t1"})
	jobs := r.submit(spec())
	if jobs[0].ID != "3" || jobs[0].Seq != 3 {
		t.Errorf("the new job is %s", jobs[0].ID)
	}
}

func TestEndsAreWrittenDownWhole(t *testing.T) {
	r := runOne(t, vram(8000))
	r.uses("1", 0, 6000)
	r.devices[0].UtilPct = 80
	r.pass(time.Second)
	r.clear(0)
	r.end("1", keep.Record{ExitCode: -1, Signal: 9}, false)
	row := r.row("1")
	if row.Outcome != "signal:KILL" || row.Signal != "KILL" || row.ExitCode != nil {
		t.Errorf("outcome %s, signal %q, exit code %v", row.Outcome, row.Signal, row.ExitCode)
	}
	if row.PeakMiB[0] != 6000 || row.AvgUtil == nil || *row.AvgUtil != 80 {
		t.Errorf("peak %v, util %v", row.PeakMiB, row.AvgUtil)
	}
	if row.EndedAt.IsZero() || len(row.Grant.GPUs) != 1 {
		t.Errorf("ended %s on %v", row.EndedAt, row.Grant.GPUs)
	}
}

func TestAJobThatIsNotWantedBackIsDequeuedBeforeItStartsAgain(t *testing.T) {
	wanted := true
	r := newRig(t, 1, func(c *Config) { c.Wanted = func(string) bool { return wanted } })
	r.submit(spec(vram(4000), retries(3)))
	r.end("1", keep.Record{ExitCode: 1}, true)
	r.wantRow("1", job.Running, "")
	wanted, r.told = false, nil
	r.end("1", keep.Record{ExitCode: 1}, true)
	r.wantTold("retry 1", "dequeued 1")
	if r.at().line.Roster.Has("1") || len(r.rows) != 0 {
		t.Errorf("it is still there: %v", r.rows)
	}
}
