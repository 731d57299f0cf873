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

// consider schedules another attempt for a job that could not be started. A job
// that ran and failed is not retried.
func (s *scheduler) consider(ctx context.Context, v job.View, news bool) {
	if v.Outcome == nil || *v.Outcome != job.Launch || forgotten(v, s.since) {
		return
	}
	if ids := s.index.byKey[keyOf(v)]; ids[len(ids)-1] != v.ID {
		return // its line was added again since
	}
	tries := s.tries(ctx, v)
	if tries >= s.opt.maxAttempts {
		if news {
			s.log.fail("job %s could not be started in %d attempts; giving up", jobID(v), tries)
		}
		return
	}
	wait := retryWait(s.opt.retryWait, tries)
	from := time.Now()
	if v.EndedAt != nil {
		from = *v.EndedAt
	}
	s.retries[v.ID] = from.Add(wait)
	s.log.warn("job %s could not be started (attempt %d of %d); next attempt in %s", jobID(v), tries, s.opt.maxAttempts, wait)
}

// tries counts the failed attempts to start a job. The daemon remembers them over
// restarts.
func (s *scheduler) tries(ctx context.Context, v job.View) int {
	detail, err := api.Call(ctx, s.client, api.GetJob, api.JobID{ID: v.ID})
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

// retry requeues the jobs that are due.
func (s *scheduler) retry(ctx context.Context, now time.Time) {
	for id, at := range s.retries {
		if now.Before(at) {
			continue
		}
		_, err := api.Call(ctx, s.client, api.Act, api.ActRequest{Action: api.ActRequeue, Select: api.Select{Words: []string{id}}})
		if err != nil {
			s.log.warnOnce("job %s cannot be requeued yet: %v", jobID(s.index.views[id]), err)
			continue
		}
		// Not a second time before the daemon's event arrives.
		s.retries[id] = now.Add(time.Minute)
		delete(s.reasons, id)
	}
}
