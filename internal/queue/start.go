package queue

import (
	"time"

	"berth/internal/job"
	"berth/internal/machine/run"
	"berth/internal/queue/engine"
)

// Start makes the engine. cfg has the caller's part; last is the highest number
// any job ever had.
func (q *Queue) Start(cfg engine.Config, last int64) {
	cfg.Host = q.Host()
	cfg.Devices = q.Devices
	cfg.NoGPUs = q.NoGPUs
	cfg.Xids = q.heard
	cfg.Log = q.Log
	cfg.Parking = q.Parking(cfg.Parking)
	cfg.Measured = q.Samples.Record
	cfg.CPUTimes = run.CPUTimes
	q.Engine = engine.New(cfg, q.Store, q.Runner, q.Source, q.ledger, run.NewAttribution(), last)
}

// TakeOver gives the engine the jobs that an earlier process left, some of them with
// the supervisors that were found, and what that one knew.
func (q *Queue) TakeOver(found []run.Found) (err error) {
	q.Engine.Outside(time.Now(), func(t *engine.Turn) {
		r, one, all := t.Recovery(), q.Store.Meta, q.Store.Metas
		for _, restore := range []func() error{
			func() error { return r.Pauses(one) },
			func() error { return r.Usage(one) },
			func() error { return r.Health(one) },
			func() error { return t.Parking().RestorePace(one) },
			func() error { return t.Groups().Restore(all) },
		} {
			if err == nil {
				err = restore()
			}
		}
		r.Recall(q.Store.Past)
	})
	if err != nil {
		return err
	}
	return q.takeJobs(found)
}

// pageOfJobs is how many queued jobs are in memory as they are in the store, twice:
// a page is read while the one before it is queued. In the queue they take much less.
const pageOfJobs = 500

// takeJobs restores the queued jobs, and then the others with their supervisors.
func (q *Queue) takeJobs(found []run.Found) (err error) {
	restore := func(jobs []*job.Job, found []run.Found) {
		q.Engine.Outside(time.Now(), func(t *engine.Turn) { t.Recovery().Restore(jobs, found) })
	}
	var begun []*job.Job
	pages := make(chan []*job.Job)
	go func() {
		defer close(pages)
		var queued []*job.Job
		err = q.Store.EachLive(func(j *job.Job) error {
			if j.State != job.Queued {
				begun = append(begun, j)
				return nil
			}
			if queued = append(queued, j); len(queued) == pageOfJobs {
				pages <- queued
				queued = nil
			}
			return nil
		})
		pages <- queued
	}()
	for queued := range pages {
		restore(queued, nil)
	}
	if err == nil {
		restore(begun, found)
	}
	return err
}
