package engine

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"berth/internal/job"
	"berth/internal/queue/fair"
)

// TestRequestsDoNotKeepRoundsFromComing: while one user's requests never stop,
// another user's job is accepted and placed after a few of them.
func TestRequestsDoNotKeepRoundsFromComing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = r.e.Run(ctx, nil, nil)
		}()
		var turns atomic.Int64
		for range 16 {
			go func() {
				for ctx.Err() == nil {
					r.e.Do(fair.As(ctx, 1), func(*Turn) {
						turns.Add(1)
						<-time.After(3 * time.Millisecond)
					})
				}
			}()
		}
		<-time.After(time.Second)
		before, after := turns.Load(), int64(0)
		r.e.Do(fair.As(ctx, 2), func(turn *Turn) {
			j := &job.Job{Key: "b", User: "bob", Spec: job.Spec{Shell: "true"}}
			turn.queue.Number([]*job.Job{j})
			turn.queue.Submit([]*job.Job{j})
			turn.changes.Then(func(error) { after = turns.Load() })
		})
		<-time.After(time.Second)
		stop()
		<-ended
		if turns.Load() < 100 {
			t.Errorf("only %d requests were served", turns.Load())
		}
		if after == 0 || after-before > 6 {
			t.Errorf("asked after %d requests of another user, on disk after %d", before, after)
		}
		if row := r.rows["1"]; row == nil || row.State != job.Running {
			t.Errorf("the job is %+v", row)
		}
	})
}
