package daemon

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/engine"
	"berth/internal/fair"
	"berth/internal/job"
	"berth/internal/store"
	"berth/internal/testkit"
)

// TestALongListLetsOthersInBetween: a list with reasons is made a slice at a time,
// and between two slices another user's request has its turn.
func TestALongListLetsOthersInBetween(t *testing.T) {
	l := newLab(t)
	l.d.slice = 1 // some two hundred turns
	line, open := l.gate("gate")
	l.untilState(l.one(sh(line, "gpus", "2")), job.Running)
	specs := make([]api.Spec, 100)
	for i := range specs {
		specs[i] = sh("true", "gpus", "2", "vram", fmt.Sprintf("%dM", 1000+i%7))
	}
	l.submit(specs...)
	whole, err := l.Jobs(l.ctx, api.Query{Reasons: true, Order: true})
	if err != nil {
		t.Fatal(err)
	}
	// The loop is held until the list and all requests of another user wait for
	// it. Each request waits for the list to come back, so they alternate, and the
	// list is complete last only if it takes more turns than there are requests.
	const requests = 20
	held, free := make(chan struct{}), make(chan struct{})
	go l.d.engine.Do(l.ctx, func(*engine.Turn) { close(held); <-free })
	<-held
	before := 0 // requests that were served before the list was complete
	var all sync.WaitGroup
	listed := false
	all.Go(func() {
		page, err := l.d.Jobs(fair.As(l.ctx, 1), api.Caller{Admin: true}, api.Query{Reasons: true, Order: true})
		if err != nil || len(page.Jobs) != 101 || !slices.EqualFunc(page.Jobs, whole.Jobs, sameReason) || !slices.Equal(page.Order, whole.Order) {
			t.Errorf("%d jobs: %v", len(page.Jobs), err)
		}
		_ = l.d.do(fair.As(l.ctx, 1), func(*engine.Turn) { listed = true })
	})
	l.until("the list waits", func() bool { return l.d.engine.Waiting() >= 1 })
	for range requests {
		all.Go(func() {
			_ = l.d.do(fair.As(l.ctx, 2), func(*engine.Turn) {
				if listed {
					return
				}
				before++
				l.until("the list comes back", func() bool { return l.d.engine.Waiting() >= requests-before+1 })
			})
		})
	}
	l.until("all requests wait", func() bool { return l.d.engine.Waiting() >= requests+1 })
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
	l := newLab(t)
	l.d.gate = newGate(2)
	line, open := l.gate("gate")
	l.untilState(l.one(sh(line, "gpus", "2")), job.Running)
	waits := l.one(sh("true", "gpus", "2"))
	ann, bob := fair.As(l.ctx, 1), fair.As(l.ctx, 2)
	leave, err := l.d.gate.Enter(ann) // the read that does not end
	if err != nil {
		t.Fatal(err)
	}
	admin := api.Caller{Admin: true}
	var mu sync.Mutex
	var served []string
	var all sync.WaitGroup
	ask := func(ctx context.Context, who string) {
		all.Go(func() {
			if _, err := l.d.Why(ctx, admin, waits); err != nil {
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
	l.until("ann's reads wait", func() bool { return l.d.gate.Waiting() == 8 })
	reply, err := l.d.Submit(bob, admin, api.SubmitRequest{Jobs: []api.Spec{sh("true", "gpus", "0")}, Dir: "/tmp"})
	if err != nil {
		t.Fatal(err)
	}
	l.untilState(reply.Jobs[0].ID, job.Finished)
	ask(bob, "bob")
	l.until("bob's read waits, too", func() bool { return l.d.gate.Waiting() == 9 })
	leave()
	all.Wait()
	if at := slices.Index(served, "bob"); at < 0 || at > 2 {
		t.Errorf("served: %v", served)
	}
	open()
}

// TestASumLetsOthersPass: while the history is summed up, another user's long work
// is done in between, and a second sum waits.
func TestASumLetsOthersPass(t *testing.T) {
	l := newLab(t)
	l.d.gate, l.d.slice = newGate(2), 5
	now := time.Now()
	var ended []*job.Job
	for i := range 40 {
		seq := int64(1000 + i)
		ended = append(ended, &job.Job{ID: fmt.Sprint(seq), Seq: seq, User: "ann", State: job.Finished, Outcome: job.OK, SubmittedAt: now,
			Attempt: job.Attempt{Number: 1, StartedAt: now, EndedAt: now}})
	}
	testkit.Must(t, l.d.store.Commit(store.Tx{Put: ended}))
	ann, bob := fair.As(l.ctx, 1), fair.As(l.ctx, 2)
	passed, seen := make(chan int, 1), 0
	err := l.d.eachEnded(ann, now.Add(-time.Hour), func(*job.Job) {
		if seen++; seen != 3 {
			return
		}
		go func() {
			leave, err := l.d.gate.Enter(bob)
			if err != nil {
				t.Error(err)
			}
			passed <- seen // ann is not inside, so nothing changes it
			leave()
		}()
		l.until("bob waits", func() bool { return l.d.gate.Waiting() == 1 })
		soon, cancel := context.WithCancel(fair.As(l.ctx, 3))
		second := make(chan error, 1)
		go func() {
			second <- l.d.eachEnded(soon, now.Add(-time.Hour), func(*job.Job) { t.Error("two sums at a time") })
		}()
		l.until("a second sum waits", func() bool { return l.d.sums.Waiting() == 1 })
		cancel()
		if err := <-second; err == nil {
			t.Error("two sums at a time")
		}
	})
	if at := <-passed; err != nil || seen != 40 || at != 5 {
		t.Errorf("bob passed after %d of %d jobs: %v", at, seen, err)
	}
}
