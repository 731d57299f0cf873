package daemon

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/queue/engine"
	"berth/internal/queue/fair"
	"berth/internal/queue/store"
	"berth/internal/tests/testkit"
)

// TestALongListLetsOthersInBetween: a list with reasons is made a slice at a time,
// and between two slices another user's request has its turn.
func TestALongListLetsOthersInBetween(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.d.find.slice = 1 // some two hundred turns
	line, open := l.gate("gate")
	l.untilState(l.one(sh(line, "gpus", "2")), job.Running)
	specs := make([]api.Spec, 100)
	for i := range specs {
		specs[i] = sh("true", "gpus", "2", "vram", fmt.Sprintf("%dM", 1000+i%7))
	}
	l.submit(specs...)
	whole, err := api.Call(l.ctx, l.Client, api.ListJobs, api.Query{Reasons: true, Order: true})
	if err != nil {
		t.Fatal(err)
	}
	// The loop is held until the list and all requests of another user wait for
	// it. Each request waits for the list to come back, so they alternate, and the
	// list is complete last only if it takes more turns than there are requests.
	const requests = 20
	held, free := make(chan struct{}), make(chan struct{})
	go l.d.svc.queue.Engine.Do(l.ctx, func(*engine.Turn) { close(held); <-free })
	<-held
	before := 0 // requests that were served before the list was complete
	var all sync.WaitGroup
	listed := false
	all.Go(func() {
		page, err := l.page(fair.As(l.ctx, 1), api.Caller{Admin: true}, api.Query{Reasons: true, Order: true})
		if err != nil || len(page.Jobs) != 101 || !slices.EqualFunc(page.Jobs, whole.Jobs, sameReason) || !slices.Equal(page.Order, whole.Order) {
			t.Errorf("%d jobs: %v", len(page.Jobs), err)
		}
		_ = l.d.svc.Do(fair.As(l.ctx, 1), func(*engine.Turn) { listed = true })
	})
	l.until("the list waits", func() bool { return l.d.svc.queue.Engine.Waiting() >= 1 })
	for range requests {
		all.Go(func() {
			_ = l.d.svc.Do(fair.As(l.ctx, 2), func(*engine.Turn) {
				if listed {
					return
				}
				before++
				l.until("the list comes back", func() bool { return l.d.svc.queue.Engine.Waiting() >= requests-before+1 })
			})
		})
	}
	l.until("all requests wait", func() bool { return l.d.svc.queue.Engine.Waiting() >= requests+1 })
	close(free)
	all.Wait()
	if before != requests {
		t.Errorf("%d of %d requests were served before the list was complete", before, requests)
	}
	open()
}

func sameReason(a, b job.View) bool {
	return a.ID == b.ID && a.State == b.State && (a.Reason == nil) == (b.Reason == nil) && (a.Reason == nil || *a.Reason == *b.Reason)
}

// TestASlowReadHoldsUpNobodysJobs: while one user's long read does not end and
// others of the same user wait for it, another user's job is accepted and runs,
// and that user's long read comes next.
func TestASlowReadHoldsUpNobodysJobs(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.d.svc.gate = newGate(2)
	line, open := l.gate("gate")
	l.untilState(l.one(sh(line, "gpus", "2")), job.Running)
	waits := l.one(sh("true", "gpus", "2"))
	ann, bob := fair.As(l.ctx, 1), fair.As(l.ctx, 2)
	leave, err := l.d.svc.gate.Enter(ann) // the read that does not end
	if err != nil {
		t.Fatal(err)
	}
	admin := api.Caller{Admin: true}
	var mu sync.Mutex
	var served []string
	var all sync.WaitGroup
	ask := func(ctx context.Context, who string) {
		all.Go(func() {
			if _, err := l.d.jobs.Why(ctx, admin, waits); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			served = append(served, who)
		})
	}
	for range 8 {
		ask(ann, "ann")
	}
	l.until("ann's reads wait", func() bool { return l.d.svc.gate.Waiting() == 8 })
	reply, err := l.d.submits.Submit(bob, admin, api.SubmitRequest{Jobs: []api.Spec{sh("true", "gpus", "0")}, Dir: "/tmp"})
	if err != nil {
		t.Fatal(err)
	}
	l.untilState(reply.Jobs[0].ID, job.Finished)
	ask(bob, "bob")
	l.until("bob's read waits, too", func() bool { return l.d.svc.gate.Waiting() == 9 })
	leave()
	all.Wait()
	if at := slices.Index(served, "bob"); at < 0 || at > 2 {
		t.Errorf("served: %v", served)
	}
	open()
}

// remember puts jobs into the history.
func (l *lab) remember(n int) {
	now := time.Now()
	var jobs []*job.Job
	for i := range n {
		seq := int64(1000 + i)
		jobs = append(jobs, &job.Job{ID: fmt.Sprint(seq), Seq: seq, User: "ann", State: job.Finished, Outcome: job.OK, SubmittedAt: now,
			Attempt: job.Attempt{Number: 1, StartedAt: now, EndedAt: now}})
	}
	testkit.Must(l.t, l.d.svc.queue.Store.Commit(store.Tx{Put: jobs}))
}

// TestASumLetsOthersPass: while the history is summed up, another user's long work
// is done in between.
func TestASumLetsOthersPass(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.d.svc.gate = newGate(2)
	l.d.svc.gate.Slice = 0
	const jobs, step = 1200, 500
	l.remember(jobs)
	ann, bob := fair.As(l.ctx, 1), fair.As(l.ctx, 2)
	passed, seen := make(chan int, 1), 0
	err := l.d.history.eachEnded(ann, time.Now().Add(-time.Hour), func(*job.Job) {
		if seen++; seen != 3 {
			return
		}
		go func() {
			leave, err := l.d.svc.gate.Enter(bob)
			if err != nil {
				t.Error(err)
			}
			passed <- seen // ann is not inside, so nothing changes it
			leave()
		}()
		l.until("bob waits", func() bool { return l.d.svc.gate.Waiting() == 1 })
	})
	if at := <-passed; err != nil || seen != jobs || at != step {
		t.Errorf("bob passed after %d of %d jobs: %v", at, seen, err)
	}
}

// TestLongReadsHoldUpNobodysReads: while one user's reads of a long history are in
// progress and wait, another user's list, wait and job are answered without a
// turn, and that user's long read after one slice of the others.
func TestLongReadsHoldUpNobodysReads(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.d.svc.gate = newGate(2)
	l.d.svc.gate.Slice = 0
	l.remember(2600)
	line, open := l.gate("gate")
	busy := l.one(sh(line, "gpus", "2"))
	l.untilState(busy, job.Running)
	waits := l.one(sh("true", "gpus", "2"))
	ann, bob, admin := fair.As(l.ctx, 1), fair.As(l.ctx, 2), api.Caller{Name: "ann", Admin: true}
	history := api.Query{Over: true, Limit: pageMost}
	first, leave := l.d.svc.gate.Begin(ann) // between two steps of its work
	testkit.Must(t, fair.Spend(first, fair.Long))
	var mu sync.Mutex
	var served []string
	var all sync.WaitGroup
	list := func(ctx context.Context, who string) {
		all.Go(func() {
			ctx, leave := l.d.svc.gate.Begin(ctx)
			defer leave()
			if page, err := l.page(ctx, admin, history); err != nil || len(page.Jobs) < 2600 {
				t.Errorf("%s: %d jobs: %v", who, len(page.Jobs), err)
			}
			mu.Lock()
			defer mu.Unlock()
			served = append(served, who)
		})
	}
	for range 8 {
		list(ann, "ann")
	}
	l.until("ann's reads wait", func() bool { return l.d.svc.gate.Waiting() == 8 })
	quick, end := l.d.svc.gate.Begin(bob)
	page, err := l.page(quick, admin, api.Query{Reasons: true})
	end()
	if err != nil || len(page.Jobs) != 2 {
		t.Errorf("bob's list: %d jobs: %v", len(page.Jobs), err)
	}
	reply, err := l.d.waits.Wait(bob, admin, api.WaitRequest{Select: api.Select{Words: []string{"1000", waits}}, Any: true})
	if err != nil || !reply.Done {
		t.Errorf("bob's wait: %+v: %v", reply, err)
	}
	if _, err := l.d.jobs.Job(bob, admin, "1000"); err != nil {
		t.Errorf("bob's job: %v", err)
	}
	list(bob, "bob")
	l.until("bob's long read waits", func() bool { return l.d.svc.gate.Waiting() == 9 })
	leave()
	all.Wait()
	// They take turns slice by slice, so they end at about the same time.
	if at := slices.Index(served, "bob"); at < 0 || at > 2 {
		t.Errorf("served: %v", served)
	}
	open()
}
