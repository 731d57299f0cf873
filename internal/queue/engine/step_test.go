package engine

import (
	"errors"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
	"berth/internal/queue/engine/running"
	"berth/internal/queue/store"
)

var runEventNobodyKnows = run.Event{Kind: run.Started, Token: "nobody", Job: "0", Attempt: 1}

func TestARoundBooksThenCommitsThenActs(t *testing.T) {
	r := newRig(t, 2)
	r.submit(spec(), spec())
	r.wantDid("book 1 2", "commit 1:running 2:running", "go 1 t1", "go 2 t2")
	r.wantTold("queued 1", "queued 2", "started 1", "started 2")
}

func TestARoundWithNothingToDoDoesNothing(t *testing.T) {
	r := runOne(t)
	for range 5 {
		r.pass(time.Second)
	}
	r.wantDid()
	r.wantTold()
}

func TestAnEndAndTheStartItMakesRoomForAreOneCommit(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec(), spec())
	r.did = nil
	r.hear(run.Ended, "1", keep.Record{}, false)
	r.look()
	r.e.turn.cards.Book.At = r.now
	r.step()
	// The supervisor of job 1 is busy until its end is on disk, so job 2 has
	// another.
	r.wantDid("book 2", "commit 1:finished 2:running", "ack t1", "go 2 t2")
}

func TestWhatADiskThatIsFullHolds(t *testing.T) {
	r := newRig(t, 2)
	r.submit(spec(), spec(), spec())
	r.did, r.told = nil, nil
	r.commitErr = errDisk
	r.hear(run.Ended, "1", keep.Record{ExitCode: 5}, false)
	r.now = r.now.Add(time.Second)
	r.look()
	if err := r.e.Step(r.now); !errors.Is(err, store.ErrFull) {
		t.Fatalf("the round says %v", err)
	}
	// The start is dropped and its booking too; the end stays in memory, and
	// its supervisor is not told to forget it.
	r.wantDid("book 2 3", "no room for 1:failed 3:running", "release t3", "book 2")
	r.wantTold("warning")
	if r.at().Written() || r.at().explain.Blocked() == "" {
		t.Error("nothing is said to be wrong")
	}
	if wait := r.at().observer.wait(true); wait > time.Second {
		t.Errorf("it would not try again for %s", wait)
	}

	r.hear(run.Ended, "2", keep.Record{}, false)
	r.now = r.now.Add(time.Second)
	r.look()
	_ = r.e.Step(r.now)
	r.wantTold() // said once
	r.wantRow("1", job.Running, "")

	r.commitErr, r.did = nil, nil
	r.pass(time.Second)
	r.wantDid("book 3", "commit 1:failed 2:finished 3:running", "ack t1", "ack t2", "go 3 t3")
	r.wantTold("ended 1", "ended 2", "started 3", "notice")
	r.wantRow("1", job.Failed, "exit:5")
	if !r.at().Written() {
		t.Error("something is said to be unwritten")
	}
}

func TestAStopThatCannotBeWrittenDownIsNotSent(t *testing.T) {
	r := runOne(t)
	r.commitErr = errDisk
	r.at().requests.Requeue("1", "ann", time.Second)
	_ = r.e.Step(r.now)
	r.wantDid("no room for 1:running")
	r.commitErr = nil
	r.step()
	r.wantDid("commit 1:running", "stop t1 requeue 1s")
}

func TestAnInfeasibleJobIsRefusedOnceThoughTheDiskIsFull(t *testing.T) {
	r := newRig(t, 1)
	r.commitErr = errDisk
	jobs := []*job.Job{{Spec: spec(vram(99999))}}
	r.at().queue.Number(jobs)
	r.at().queue.Submit(jobs)
	_ = r.e.Step(r.now)
	_ = r.e.Step(r.now)
	r.commitErr = nil
	r.step()
	r.wantRow("1", job.Failed, job.Infeasible)
	if row := r.row("1"); row.Attempt.Number != 0 || !row.StartedAt.IsZero() || row.Detail == "" {
		t.Errorf("%+v", row)
	}
}

func TestTheLedger(t *testing.T) {
	tests := []struct {
		name string
		jam  func(*rig)
		free func(*rig)
	}{
		{"while another berth decides, nothing starts", func(r *rig) { r.lockErr = errOther }, func(r *rig) { r.lockErr = nil }},
		{"what others booked cannot be read: nothing starts", func(r *rig) { r.othersErr = errOther }, func(r *rig) { r.othersErr = nil }},
		{"our own booking cannot be written: nothing starts", func(r *rig) { r.bookErr = errOther }, func(r *rig) { r.bookErr = nil }},
		{"no supervisor to be had: nothing starts", func(r *rig) { r.leaseErr = errOther }, func(r *rig) { r.leaseErr = nil }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, 1)
			test.jam(r)
			r.submit(spec())
			r.pass(time.Second)
			r.pass(time.Second)
			r.wantRow("1", job.Queued, "")
			r.wantTold("queued 1", "warning") // once
			if r.locked {
				t.Error("the ledger stays locked")
			}
			test.free(r)
			r.pass(time.Second)
			r.wantRow("1", job.Running, "")
		})
	}
}

func TestBookingsFollowWhatIsUsed(t *testing.T) {
	r := newRig(t, 2)
	r.submit(spec(vram(8000), gpus(2)))
	r.uses("1", 1, 10000)
	r.pass(time.Second)
	r.submit(spec(vram(1000)))
	var entry gpu.Entry
	for _, e := range r.booked {
		if e.Job == "1" {
			entry = e
		}
	}
	if entry.Key != "t1/1" || entry.User != "ann" || entry.HolderPID == 0 {
		t.Errorf("booked %+v", entry)
	}
	if len(entry.BudgetMiB) != 2 || entry.BudgetMiB[0] != 8000 || entry.BudgetMiB[1] != 11000 {
		t.Errorf("booked %v MiB on %v", entry.BudgetMiB, entry.UUIDs)
	}
	r.clear(1)
	r.end("1", keep.Record{}, false)
	if len(r.booked) != 1 || r.booked[0].Job != "2" {
		t.Errorf("after its end, booked: %+v", r.booked)
	}
}

func TestPeaksAreStoredLazily(t *testing.T) {
	r := runOne(t, vram(20000))
	r.uses("1", 0, 5000)
	r.pass(time.Second)
	r.wantDid() // not worth a commit of its own
	if r.row("1").PeakMiB != nil {
		t.Error("the peak is on disk already")
	}
	if wait := r.at().observer.wait(true); wait > running.GrownDelay {
		t.Errorf("the loop would sleep %s", wait)
	}
	r.pass(running.GrownDelay)
	r.wantDid("commit 1:running")
	if got := r.row("1").PeakMiB[0]; got != 5000 {
		t.Errorf("on disk: %d MiB", got)
	}
	r.uses("1", 0, 5400) // less than a tenth more
	r.pass(running.GrownDelay)
	r.pass(running.GrownDelay)
	r.wantDid()
	r.uses("1", 0, 6000)
	r.pass(time.Second)
	r.submit(spec(cpu)) // a commit it can ride on
	if got := r.row("1").PeakMiB[0]; got != 6000 {
		t.Errorf("on disk after another commit: %d MiB", got)
	}
}

func TestAStoredPeakOutlivesBerth(t *testing.T) {
	r := runOne(t, vram(8000))
	r.uses("1", 0, 12000)
	r.pass(time.Second)
	r.pass(running.GrownDelay)
	r.clear(0)
	r.again(foundOne(run.FoundRunning, keep.Record{}))
	r.pass(time.Second)
	r.did = nil
	r.pass(running.GrownDelay)
	r.wantDid() // the disk has it already
	// Nothing is measured now, but what was seen still counts: 13200 of 24576.
	r.submit(spec(vram(12000)), spec(vram(10000)))
	r.wantRow("2", job.Queued, "")
	r.wantRow("3", job.Running, "")
	r.end("1", keep.Record{}, false)
	if got := r.row("1").PeakMiB[0]; got != 12000 {
		t.Errorf("the peak at its end: %d MiB", got)
	}
}

func TestAnAttemptIsMeasuredForItself(t *testing.T) {
	r := runOne(t, vram(1000), retries(1))
	r.uses("1", 0, 2000)
	r.pass(time.Second)
	r.clear(0)
	r.end("1", keep.Record{ExitCode: 1}, true)
	r.uses("1", 0, 1500)
	r.pass(time.Second)
	r.clear(0)
	r.end("1", keep.Record{}, false)
	if got := r.row("1").PeakMiB[0]; got != 1500 {
		t.Errorf("the second attempt is said to have used %d MiB", got)
	}
}

func TestAWordFromAStrangerIsAcknowledgedAndChangesNothing(t *testing.T) {
	r := runOne(t)
	for _, ev := range []run.Event{
		{Kind: run.Ended, Token: "t9", Job: "1", Attempt: 1},
		{Kind: run.Ended, Token: "t9", Job: "8", Attempt: 1},
		{Kind: run.NeverRan, Token: "t9", Job: "1", Attempt: 1},
	} {
		r.at().observer.absorb(ev)
		r.step()
		r.wantDid("ack t9", "book 1")
	}
	r.wantRow("1", job.Running, "")
	r.at().observer.absorb(runEventNobodyKnows)
	r.step()
	r.wantDid()
}
