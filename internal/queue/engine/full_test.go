package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/queue/engine/journal"
	"berth/internal/queue/store"
)

// TestOnAFullDisk: a waiting job says that the disk is full, not that it starts
// next, and a cancellation is carried out although it cannot be saved.
func TestOnAFullDisk(t *testing.T) {
	r := runOne(t, vram(1000))
	r.commitErr = fmt.Errorf("commit: %w", store.ErrFull)
	jobs := []*job.Job{{Spec: spec(vram(1000))}}
	r.at().queue.Number(jobs)
	r.at().queue.Submit(jobs)
	if err := r.e.Step(r.now); err == nil {
		t.Fatal("the disk is not full")
	}
	if why := r.at().explain.Why("2"); !strings.HasPrefix(why, "cannot be started: the disk of berth's state is full") {
		t.Errorf("it waits because %q", why)
	}
	r.did = nil
	r.at().requests.CancelBy("1", "ann", 0)
	_ = r.e.Step(r.now)
	if !slices.Contains(r.did, "stop t1 cancel 0s") {
		t.Errorf("the engine did %q", r.did)
	}
	r.commitErr = nil
	r.step()
	if row := r.row("1"); row.Stop != job.StopCancel {
		t.Errorf("its reason to stop is %q", row.Stop)
	}
	if why := r.at().explain.Blocked(); why != "" {
		t.Errorf("nothing starts because %s", why)
	}
}

// TestEveryStopIsCarriedOutOnAFullDisk: only jobs that are to run again wait,
// because nothing can start.
func TestEveryStopIsCarriedOutOnAFullDisk(t *testing.T) {
	for why, ask := range map[job.Stop]func(*Turn){
		job.StopInterrupt: func(t *Turn) { t.requests.Interrupt(false) },
		job.StopCancel:    func(t *Turn) { t.requests.Cancel("1", "asked") },
	} {
		t.Run(string(why), func(t *testing.T) {
			r := runOne(t, vram(1000))
			r.commitErr = fmt.Errorf("commit: %w", store.ErrFull)
			r.did = nil
			ask(r.at())
			_ = r.e.Step(r.now)
			sent := slices.ContainsFunc(r.did, func(did string) bool { return strings.HasPrefix(did, "stop t1 "+string(why)) })
			if !sent {
				t.Errorf("the engine did %q", r.did)
			}
		})
	}
}

// TestFactsHaveRoomOnAFullDisk: an ending and a cancellation are recorded, nothing
// starts and nothing is accepted, and that is said once until there is room.
func TestFactsHaveRoomOnAFullDisk(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec())
	r.submit(spec())
	r.submit(spec())
	r.wantRow("1", job.Running, "")
	r.commitErr, r.reserve = fmt.Errorf("commit: %w", store.ErrFull), true
	r.end("1", keep.Record{ExitCode: 3}, false)
	_ = r.e.Step(r.now)
	r.wantRow("1", job.Failed, job.Exited(3))
	r.at().requests.Cancel("2", "asked")
	_ = r.e.Step(r.now)
	r.wantRow("2", job.Cancelled, job.WasCancelled)
	r.wantRow("3", job.Queued, "")
	if why := r.at().explain.Why("3"); !strings.HasPrefix(why, "cannot be started: the disk of berth's state is full") {
		t.Errorf("it waits because %q", why)
	}
	var refused error
	batch := []*job.Job{{Spec: spec()}}
	r.at().queue.Number(batch)
	r.at().requests.Accept(journal.Batch{Jobs: batch, Done: func(err error) { refused = err }})
	_ = r.e.Step(r.now)
	if !errors.Is(refused, store.ErrFull) {
		t.Errorf("a new job is refused with %v", refused)
	}
	r.commitErr = nil
	r.step()
	r.step()
	r.wantRow("3", job.Running, "")
	if why := r.at().explain.Blocked(); why != "" {
		t.Errorf("nothing starts because %s", why)
	}
}

func TestWithoutASupervisor(t *testing.T) {
	r := newRig(t, 1)
	r.leaseErr = fmt.Errorf("create supervisor directory: %w", syscall.ENOSPC)
	r.submit(spec(vram(1000)))
	if why := r.at().explain.Why("1"); !strings.HasPrefix(why, "cannot be started: the disk of berth's state is full: create supervisor directory") {
		t.Errorf("it waits because %q", why)
	}
	r.leaseErr = nil
	r.pass(notNowDelay)
	r.wantRow("1", job.Running, "")
}

// TestWhereTheStoreWasRemoved: nothing starts and nothing is accepted, a running
// job ends as ever, and all goes on if the store comes back.
func TestWhereTheStoreWasRemoved(t *testing.T) {
	r := runOne(t, vram(1000))
	r.removed = fmt.Errorf("%w: /x", store.ErrRemoved)
	jobs := []*job.Job{{Spec: spec(vram(1000))}}
	r.at().queue.Number(jobs)
	r.at().queue.Submit(jobs)
	r.step()
	r.wantRow("2", job.Queued, "")
	if why := r.at().explain.Why("2"); why != "cannot be started: the directory of the store was removed: /x" {
		t.Errorf("it waits because %q", why)
	}
	var refused error
	r.at().requests.Accept(journal.Batch{Jobs: []*job.Job{{Spec: spec()}}, Done: func(err error) { refused = err }})
	if !errors.Is(refused, store.ErrRemoved) {
		t.Errorf("a new job is refused with %v", refused)
	}
	r.did = nil
	r.at().requests.CancelBy("1", "ann", 0)
	r.step()
	if !slices.Contains(r.did, "stop t1 cancel 0s") {
		t.Errorf("the engine did %q", r.did)
	}
	r.removed = nil
	if err := r.at().Present(); err != nil {
		t.Fatal(err)
	}
	r.step()
	r.wantRow("2", job.Running, "")
}

// TestOnADiskThatFails: the loop goes on. Nothing starts and nothing is accepted,
// jobs are stopped, and what happened is saved once the disk works again.
func TestOnADiskThatFails(t *testing.T) {
	r := runOne(t, vram(1000))
	r.commitErr = fmt.Errorf("commit: %w: %w", store.ErrUnwritable, syscall.EROFS)
	var refused error
	batch := []*job.Job{{Spec: spec()}}
	r.at().queue.Number(batch)
	r.at().requests.Accept(journal.Batch{Jobs: batch, Done: func(err error) { refused = err }})
	_ = r.e.Step(r.now)
	if !errors.Is(refused, store.ErrUnwritable) {
		t.Errorf("a new job is refused with %v", refused)
	}
	if why := r.at().explain.Blocked(); !strings.HasPrefix(why, "the disk of berth's state cannot be written: ") {
		t.Errorf("nothing starts because %q", why)
	}
	r.did = nil
	r.at().requests.CancelBy("1", "ann", 0)
	_ = r.e.Step(r.now)
	if !slices.Contains(r.did, "stop t1 cancel 0s") {
		t.Errorf("the engine did %q", r.did)
	}
	r.commitErr = nil
	r.end("1", keep.Record{Stop: string(job.StopCancel), Signal: 15}, false)
	r.step()
	r.wantRow("1", job.Cancelled, job.WasCancelled)
	if why := r.at().explain.Blocked(); why != "" {
		t.Errorf("nothing starts because %s", why)
	}
}

// TestTheLoopOutlivesADiskThatFails, and ends with a store that is damaged.
func TestTheLoopOutlivesADiskThatFails(t *testing.T) {
	for _, test := range []struct {
		err  error
		ends bool
	}{{store.ErrFull, false}, {store.ErrUnwritable, false}, {errors.New("the store is damaged"), true}} {
		t.Run(test.err.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 1)
				jobs := []*job.Job{{Spec: spec()}}
				r.at().queue.Number(jobs)
				r.at().queue.Submit(jobs)
				r.commitErr = test.err
				ctx, stop := context.WithTimeout(t.Context(), time.Minute)
				defer stop()
				if err := r.e.Run(ctx, nil, nil); errors.Is(err, test.err) != test.ends {
					t.Errorf("it ended with %v", err)
				}
			})
		})
	}
}

// TestAJobWhoseDiskFailsAsItStarts waits: it has done nothing wrong.
func TestAJobWhoseDiskFailsAsItStarts(t *testing.T) {
	r := newRig(t, 1)
	r.goErr = fmt.Errorf("leave a copy: %w", syscall.EROFS)
	r.submit(spec())
	r.step()
	r.wantRow("1", job.Queued, "")
	r.goErr = nil
	r.pass(notNowDelay)
	r.wantRow("1", job.Running, "")
}
