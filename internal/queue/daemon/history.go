package daemon

import (
	"context"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/queue/engine"
	"berth/internal/queue/fair"
	"berth/internal/queue/stats"
	"berth/internal/queue/store"
	"berth/internal/text/problem"
)

// history sums up and replays what has ended.
type history struct {
	svc     *service
	jobs    *jobs
	replays *fair.Gate // where replays take turns
}

// Stats sums up what the machine did.
func (h *history) Stats(ctx context.Context, _ api.Caller, q api.StatsQuery) (api.Stats, error) {
	now := time.Now()
	since, until := now.Add(-30*24*time.Hour), now
	if q.Since != nil {
		since = *q.Since
	}
	if q.Until != nil && q.Until.Before(now) {
		until = *q.Until // nothing was used in the future
	}
	if !since.Before(until) {
		return api.Stats{}, problem.Newf(problem.Invalid, "", "the period ends before it begins")
	}
	// Running jobs are read first: one that ends in between is found in the
	// store.
	running := map[string]job.Job{}
	err := h.svc.Do(ctx, func(t *engine.Turn) {
		for _, r := range t.Running().List() {
			running[r.Job.ID] = t.Running().Copy(r.Job)
		}
	})
	if err != nil {
		return api.Stats{}, err
	}
	sum := stats.New(since, until, len(h.svc.queue.Devices), q.User, time.Local)
	err = h.eachEnded(ctx, since, func(j *job.Job) {
		delete(running, j.ID)
		sum.Add(j)
	})
	if err != nil {
		return api.Stats{}, err
	}
	for _, j := range running {
		sum.Add(&j)
	}
	return sum.Result(), nil
}

// eachEnded visits the jobs that have ended since then. A long history takes
// seconds, in which the long work of other users has its turns.
func (h *history) eachEnded(ctx context.Context, since time.Time, visit func(*job.Job)) error {
	ctx, leave := h.svc.gate.Begin(ctx)
	defer leave()
	return h.svc.queue.Store.EachOver(store.Filter{EndedSince: since, Pause: pauses(ctx)}, func(j *job.Job) error {
		visit(j)
		return nil
	})
}
