package gpuscheduler

import (
	"context"
	"time"

	"berth/internal/api"
	"berth/internal/job"
)

// retryMost is the longest wait between two attempts to start a job.
const retryMost = 30 * time.Second

// retryWait is how long to wait after this many attempts.
func retryWait(base time.Duration, tries int) time.Duration {
	most := max(base, retryMost)
	wait := base
	for range tries - 1 {
		if wait *= 2; wait >= most {
			return most
		}
	}
	return wait
}

// retries start jobs again that could not be started.
type retries struct{ shared }

// consider schedules another attempt for a job that could not be started. A job
// that ran and failed is not retried.
func (r *retries) consider(ctx context.Context, v job.View, news bool) {
	if v.Outcome == nil || *v.Outcome != job.Launch || forgotten(v, r.index.since) {
		return
	}
	if ids := r.index.byKey[keyOf(v)]; ids[len(ids)-1] != v.ID {
		return // its line was added again since
	}
	tries := r.tries(ctx, v)
	if tries >= r.opt.maxAttempts {
		if news {
			r.log.fail("job %s could not be started in %d attempts; giving up", jobID(v), tries)
		}
		return
	}
	wait := retryWait(r.opt.retryWait, tries)
	from := time.Now()
	if v.EndedAt != nil {
		from = *v.EndedAt
	}
	r.index.retries[v.ID] = from.Add(wait)
	r.log.warn("job %s could not be started (attempt %d of %d); next attempt in %s", jobID(v), tries, r.opt.maxAttempts, wait)
}

// tries counts the failed attempts to start a job. The daemon remembers them over
// restarts.
func (r *retries) tries(ctx context.Context, v job.View) int {
	detail, err := api.Call(ctx, r.client, api.GetJob, api.JobID{ID: v.ID})
	if err != nil {
		return v.Attempt
	}
	n := 0
	for _, ev := range detail.Events {
		if ev.Kind == job.EventEnded {
			n++
		}
	}
	return max(n, 1)
}

// due requeues the jobs that are due, and returns them.
func (r *retries) due(ctx context.Context, now time.Time) (again []string) {
	for id, at := range r.index.retries {
		if now.Before(at) {
			continue
		}
		_, err := api.Call(ctx, r.client, api.Act, api.ActRequest{Action: api.ActRequeue, Select: api.Select{Words: []string{id}}})
		if err != nil {
			r.log.warnOnce("job %s cannot be requeued yet: %v", jobID(r.index.views[id]), err)
			continue
		}
		// Not a second time before the daemon's event arrives.
		r.index.retries[id] = now.Add(time.Minute)
		again = append(again, id)
	}
	return again
}
