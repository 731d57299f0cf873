package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/queue/engine"
	"berth/internal/slurm"
	"berth/internal/slurm/client"
	"berth/internal/slurm/handover"
	"berth/internal/tests/testkit"
)

// runs starts what Slurm has queued, and waits until berth knows that a job runs.
func (q *queue) runs(id string) {
	q.t.Helper()
	testkit.Eventually(q.t, "job "+id+" runs", func() bool {
		q.fake.mu.Lock()
		for _, j := range q.fake.queue {
			if j.entry.State == "PENDING" {
				q.fake.start(j)
			}
		}
		q.fake.mu.Unlock()
		return q.job(id).State == job.Running
	})
}

// TestAQueueUnderAnotherName: the name of a queue depends on where its store is, and
// on its device. With another one it still knows its jobs, and leaves others' alone.
func TestAQueueUnderAnotherName(t *testing.T) {
	fake := newFake(t, 1)
	q := newQueue(t, fake)
	id := q.submit(1, nil)[0]
	q.runs(id)
	q.stop()
	q.name = "q2"
	fake.mu.Lock()
	fake.queue["7"] = &fakeJob{entry: slurmEntry("7", "berth:q3:0123456789abcdef")}
	fake.mu.Unlock()
	q.start()
	testkit.Never(t, 2*q.pace.patience, "a job that runs is given up", func() bool { return q.job(id).State != job.Running })
	fake.mu.Lock()
	if fake.queue["7"] == nil {
		t.Error("another queue's job was cancelled")
	}
	delete(fake.queue, "7")
	fake.mu.Unlock()
	if j := q.await(id, job.Finished); fake.ran[id] != 1 {
		t.Errorf("%+v ran %d times", j, fake.ran[id])
	}
}

func slurmEntry(id, comment string) slurm.Entry {
	return slurm.Entry{ID: id, Comment: comment, Name: "x", State: "RUNNING"}
}

// TestAChangeJustBeforeTheHandover: a job that is changed while its worker is about to
// hand it over runs as changed.
func TestAChangeJustBeforeTheHandover(t *testing.T) {
	fake := newFake(t, 1)
	q := newQueue(t, fake)
	q.stop()
	var id atomic.Pointer[string]
	last := "true"
	q.do = func(ctx context.Context, request any) (any, error) {
		if _, lists := request.(listRequest); lists && id.Load() != nil {
			known := id.Load()
			q.engine.Do(ctx, func(t *engine.Turn) {
				if j, found := t.Jobs().Find(*known); found && !j.HandedOver() && len(last) < 20 {
					spec := j.Spec
					last += "e"
					spec.Shell = last
					t.Queue().Edit(*known, spec, j.Rank)
				}
			})
		}
		return fake.do(ctx, request)
	}
	q.start()
	first := q.submit(1, func(_ int, j *job.Job) { j.Spec.CPUs = 2 })[0] // keeps the worker busy
	testkit.Eventually(t, "it waits in Slurm's queue", func() bool { return q.job(first).Handover.Batch != "" })
	second := q.submit(1, nil)[0]
	id.Store(&second)
	testkit.Eventually(t, "the other is handed over", func() bool { return q.job(second).Handover.Slurm != "" })
	fake.mu.Lock()
	defer fake.mu.Unlock()
	for _, j := range fake.queue {
		if j.order.Job.ID == second && j.order.Job.Spec.Shell != last {
			t.Errorf("it would run %q, and was changed to %q", j.order.Job.Spec.Shell, last)
		}
	}
}

// TestFilesThatCannotBeRead: while the shared disk cannot be read, a job that Slurm
// does not list any more has not ended for berth, whatever its record says.
func TestFilesThatCannotBeRead(t *testing.T) {
	fake := newFake(t, 1)
	q := newQueue(t, fake)
	q.stop()
	var blind atomic.Bool
	q.do = func(ctx context.Context, request any) (any, error) {
		reply, err := fake.do(ctx, request)
		if seen, looks := reply.([]batchNews); looks && blind.Load() {
			for i := range seen {
				seen[i] = batchNews{Error: "input/output error"}
			}
		}
		return reply, err
	}
	q.start()
	id := q.submit(1, func(_ int, j *job.Job) { j.Spec.Requeue = true })[0]
	q.runs(id)
	blind.Store(true)
	fake.tick() // it ends well
	testkit.Never(t, 2*q.pace.patience, "its end is guessed", func() bool { return q.job(id).State != job.Running })
	blind.Store(false)
	if j := q.await(id, job.Finished); fake.ran[id] != 1 {
		t.Errorf("%+v ran %d times", j, fake.ran[id])
	}
}

// accounts makes Slurm answer for a job that runs, which leaves this record, if any.
func (q *queue) accounts(state, listed string, r *handover.Record) job.Job {
	q.t.Helper()
	fake := q.fake
	var account slurm.Account
	q.stop()
	q.do = func(ctx context.Context, request any) (any, error) {
		reply, err := fake.do(ctx, request)
		if _, asks := request.(accountRequest); asks {
			reply = []slurm.Account{account}
		}
		return reply, err
	}
	q.start()
	id := q.submit(1, nil)[0]
	q.runs(id)
	fake.mu.Lock()
	j := fake.active[0]
	fake.active = nil
	account = slurm.Account{ID: j.entry.ID, Comment: j.entry.Comment, Name: j.entry.Name, State: state}
	if r != nil {
		fake.finish(j, *r)
	}
	if j.entry.State = listed; listed == "" {
		delete(fake.queue, j.entry.ID)
	}
	fake.mu.Unlock()
	return q.await(id, job.Finished, job.Failed, job.Cancelled)
}

// TestAJobThatSlurmGaveUp: a node that is cut off from Slurm keeps running its job,
// which is stopped before it is handed over again.
func TestAJobThatSlurmGaveUp(t *testing.T) {
	fake := newFake(t, 1)
	q := newQueue(t, fake)
	q.stop()
	q.pace.fence = time.Hour
	var account slurm.Account
	var submitted atomic.Int32
	q.do = func(ctx context.Context, request any) (any, error) {
		reply, err := fake.do(ctx, request)
		switch request.(type) {
		case accountRequest:
			reply = []slurm.Account{account}
		case submitRequest:
			submitted.Add(1)
		}
		return reply, err
	}
	q.start()
	id := q.submit(1, func(_ int, j *job.Job) { j.Spec.Requeue = true })[0]
	q.runs(id)
	fake.mu.Lock()
	cut := fake.active[0]
	fake.active = nil
	account = slurm.Account{ID: cut.entry.ID, Comment: cut.entry.Comment, Name: cut.entry.Name, State: "NODE_FAIL", Node: "n1"}
	delete(fake.queue, cut.entry.ID)
	fake.mu.Unlock()
	testkit.Eventually(t, "its wrapper is told", func() bool { return handover.Stopped(cut.dir, cut.index) })
	testkit.Never(t, 2*q.pace.patience, "it is handed over while it runs", func() bool { return submitted.Load() > 1 })
	fake.mu.Lock()
	fake.finish(cut, handover.Record{Outcome: job.WasCancelled, Stopped: job.StopInterrupt, EndedAt: time.Now()})
	fake.mu.Unlock()
	if j := q.await(id, job.Finished); fake.ran[id] != 2 || j.Attempt.Number != 2 {
		t.Errorf("%+v ran %d times", j, fake.ran[id])
	}
}

// TestANodeThatRefusesAJob: Slurm says that it runs, and it never begins.
func TestANodeThatRefusesAJob(t *testing.T) {
	fake := newFake(t, 1)
	q := newQueue(t, fake)
	id := q.submit(1, nil)[0]
	first := ""
	testkit.Eventually(t, "it is in the queue", func() bool {
		fake.mu.Lock()
		defer fake.mu.Unlock()
		for _, j := range fake.queue {
			first, j.entry.State, j.entry.Reason, j.entry.Node = j.entry.ID, "RUNNING", "", "n1"
		}
		return first != ""
	})
	testkit.Eventually(t, "berth says so", func() bool {
		return strings.Contains(q.why(id), "on its way to n1") || q.job(id).Handover.Slurm != first
	})
	j := q.await(id, job.Finished)
	fake.mu.Lock()
	defer fake.mu.Unlock()
	if fake.ran[id] != 1 || j.Attempt.Number != 1 || fake.calls != 2 || fake.queue[first] != nil {
		t.Errorf("%+v ran %d times, after %d calls of sbatch", j, fake.ran[id], fake.calls)
	}
}

// TestCompletedWithoutARecord: a second start of a job exits well at once, so Slurm's
// word does not make it done.
func TestCompletedWithoutARecord(t *testing.T) {
	if j := newQueue(t, newFake(t, 1)).accounts("COMPLETED", "", nil); j.Outcome != job.Lost {
		t.Errorf("it is %s: %s", j.Outcome, j.Detail)
	}
}

// TestFailedWithoutAnExitCode: Slurm's word says neither that a job ended well nor how
// it failed. One that had not begun is handed over again, but not for ever.
func TestFailedWithoutAnExitCode(t *testing.T) {
	if j := newQueue(t, newFake(t, 1)).accounts("FAILED", "", nil); j.Outcome != job.Lost || j.Detail != "Slurm says that it failed, without an exit code" {
		t.Errorf("it is %s: %s", j.Outcome, j.Detail)
	}
	fake := newFake(t, 1)
	q := newQueue(t, fake)
	q.stop()
	account := map[string]slurm.Account{}
	q.do = func(ctx context.Context, request any) (any, error) {
		reply, err := fake.do(ctx, request)
		fake.mu.Lock()
		defer fake.mu.Unlock()
		if asked, asks := request.(accountRequest); asks {
			var accounts []slurm.Account
			for _, id := range asked.IDs {
				accounts = append(accounts, account[id])
			}
			reply = accounts
		}
		for id, j := range fake.queue { // each ends before it begins
			account[id] = slurm.Account{ID: id, Comment: j.entry.Comment, Name: j.entry.Name, State: "FAILED"}
			delete(fake.queue, id)
		}
		return reply, err
	}
	q.start()
	id := q.submit(1, nil)[0]
	// Not await, whose ticks may start it before its end is on record.
	testkit.Eventually(t, "it has failed", func() bool { return q.job(id).State == job.Failed })
	j := q.job(id)
	if j.Outcome != job.Launch || !strings.Contains(j.Detail, "before it began (Slurm says that it failed, without an exit code)") || fake.calls != 1+mostFailures || fake.ran[id] != 0 {
		t.Errorf("it is %s: %s, after %d calls of sbatch", j.Outcome, j.Detail, fake.calls)
	}
}

// TestAccountingLags: slurmctld knows the end of a job before its accounting does.
func TestAccountingLags(t *testing.T) {
	stopped := &handover.Record{Outcome: job.WasCancelled, Stopped: job.StopInterrupt, EndedAt: time.Now()}
	if j := newQueue(t, newFake(t, 1)).accounts("RUNNING", "TIMEOUT", stopped); j.Outcome != job.Timeout {
		t.Errorf("it is %s: %s", j.Outcome, j.Detail)
	}
}

// TestALimitHoldsForTasksThatDiffer: Slurm counts in each of its arrays, so only one
// is in its queue.
func TestALimitHoldsForTasksThatDiffer(t *testing.T) {
	fake := newFake(t, 1)
	q := newQueue(t, fake)
	ids := q.submit(6, func(i int, j *job.Job) {
		j.ID, j.Spec.ArrayLimit, j.Spec.CPUs = fmt.Sprintf("1_%d", i), 1, 1+i%2
	})
	for _, id := range ids {
		testkit.Eventually(t, "job "+id+" ends", func() bool {
			fake.mu.Lock()
			batches := map[string]bool{}
			for _, j := range fake.queue {
				batches[j.entry.Comment] = true
			}
			fake.mu.Unlock()
			if len(batches) > 1 {
				t.Fatalf("%d arrays are in Slurm's queue", len(batches))
			}
			fake.tick()
			return q.job(id).State == job.Finished
		})
	}
}

// TestUseIsReadOnce: a report that has not changed is not read again.
func TestUseIsReadOnce(t *testing.T) {
	dir := t.TempDir()
	testkit.Must(t, handover.Report(dir, 0, handover.Now{At: time.Unix(1e9, 0)}))
	s := watchedBatch{Dir: dir, Jobs: map[int]handover.Has{0: {}}}.look()
	if len(s.Now) != 1 {
		t.Fatalf("%+v", s)
	}
	if s = (watchedBatch{Dir: dir, Jobs: map[int]handover.Has{0: {Now: true, NowAt: s.NowAt[0].UTC()}}}).look(); len(s.Now) != 0 {
		t.Errorf("it was read again: %+v", s)
	}
}

// TestAKilledSbatchIsNoRefusal: slurmctld may have heard it.
func TestAKilledSbatchIsNoRefusal(t *testing.T) {
	dir := t.TempDir()
	testkit.Write(t, filepath.Join(dir, "sbatch"), "#!/bin/sh\nkill -9 $$\n", 0o755)
	submitted, err := submitRequest{Dir: filepath.Join(dir, "b")}.do(t.Context(), client.Client{Environ: []string{"PATH=" + dir}})
	if err == nil || submitted != (submitAnswer{}) {
		t.Errorf("%+v %v", submitted, err)
	}
}

// TestAHangingUserDelaysNoEnd: a process in a file system that does not answer cannot
// be killed.
func TestAHangingUserDelaysNoEnd(t *testing.T) {
	t.Parallel()
	c := New(Setup{Log: slog.New(slog.DiscardHandler)})
	over := make(chan struct{})
	defer close(over)
	c.wait.Go(func() { <-over })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.wake = make(chan struct{}) // nothing to hand over
	ended := make(chan struct{})
	go func() {
		c.Run(ctx)
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(2 * leaveTime):
		t.Error("it waits")
	}
}

// TestARefusalThatWasNone: a job that Slurm took although sbatch failed does not run
// once berth has called it refused.
func TestARefusalThatWasNone(t *testing.T) {
	fake := newFake(t, 1)
	q := newQueue(t, fake)
	q.stop()
	q.do = func(ctx context.Context, request any) (any, error) {
		reply, err := fake.do(ctx, request)
		if submitted, submits := reply.(submitAnswer); submits && submitted.ID != "" {
			reply = submitAnswer{Refused: "Unknown error"}
		}
		return reply, err
	}
	q.start()
	id := q.submit(1, nil)[0]
	testkit.Eventually(t, "it is refused", func() bool { return q.job(id).State == job.Failed })
	for range 20 {
		fake.tick()
	}
	if fake.ran[id] != 0 {
		t.Error("it ran")
	}
}

// TestNothingIsHandedOverByABerthThatStops: it starts nothing any more, here or there.
func TestNothingIsHandedOverByABerthThatStops(t *testing.T) {
	fake := newFake(t, 1)
	q := newQueue(t, fake)
	q.act(func(t *engine.Turn) { t.Requests().Interrupt(false) })
	id := q.submit(1, nil)[0]
	testkit.Never(t, 20*q.pace.queue, "sbatch is called", func() bool {
		fake.mu.Lock()
		defer fake.mu.Unlock()
		return fake.calls != 0
	})
	if j := q.job(id); j.Handover.Batch != "" {
		t.Errorf("it is handed over: %+v", j.Handover)
	}
	q.stop()
	q.start()
	if q.await(id, job.Finished); fake.ran[id] != 1 {
		t.Errorf("it ran %d times", fake.ran[id])
	}
}

// TestARemovedDirectory: a job whose files somebody removed can still be cancelled. If
// nothing at all is there, the file system may not be mounted, and it cannot.
func TestARemovedDirectory(t *testing.T) {
	fake := newFake(t, 1)
	q := newQueue(t, fake)
	id := q.submit(1, nil)[0]
	testkit.Eventually(t, "it is in Slurm's queue", func() bool { return q.job(id).Handover.Slurm != "" })
	dir := q.job(id).Handover.Dir
	testkit.Must(t, os.Rename(filepath.Dir(dir), filepath.Dir(dir)+".away"))
	q.act(func(t *engine.Turn) { t.Requests().CancelBy(id, "ann", 0) })
	testkit.Never(t, 2*q.pace.patience, "it is taken for cancelled", func() bool { return q.job(id).State != job.Queued })
	testkit.Must(t, os.RemoveAll(filepath.Dir(dir)+".away"), os.Mkdir(filepath.Dir(dir), 0o700))
	testkit.Eventually(t, "it is cancelled", func() bool { return q.job(id).State == job.Cancelled })
}

// TestADirectoryThatAnotherUserMade: whoever owns it would choose the program that
// runs as this user.
func TestADirectoryThatAnotherUserMade(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make another user's directory")
	}
	dir := filepath.Join(t.TempDir(), "1000")
	testkit.Must(t, os.Mkdir(dir, 0o755), os.Chown(dir, 4242, 4242))
	submitted, err := submitRequest{Dir: filepath.Join(dir, "q", "b"), Own: dir}.do(t.Context(), client.Client{Environ: []string{"PATH=/"}})
	if err != nil || !strings.Contains(submitted.Unsent, "belongs to user 4242") {
		t.Errorf("%+v %v", submitted, err)
	}
}
