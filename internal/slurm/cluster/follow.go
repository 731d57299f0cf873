package cluster

import (
	"cmp"
	"context"
	"errors"
	"time"

	"berth/internal/job"
	"berth/internal/queue/engine"
	"berth/internal/slurm/handover"
)

// follow reads what the jobs' wrappers have written.
func (w *worker) follow(ctx context.Context) {
	batches := w.batches()
	if len(batches) == 0 {
		return
	}
	var look lookRequest
	var names []string
	for batch, jobs := range batches {
		watch := watchedBatch{Jobs: make(map[int]handover.Has, len(jobs))}
		for index, h := range jobs {
			watch.Dir, watch.Jobs[index] = h.job.Handover.Dir, h.has
		}
		look.Batches, names = append(look.Batches, watch), append(names, batch)
	}
	begun := time.Now()
	seen, err := do(ctx, w, look)
	w.lookCost = time.Since(begun)
	if err != nil || len(seen) != len(names) {
		return
	}
	unread := ""
	for i, batch := range names {
		if why := seen[i].Error; why != "" {
			unread = why
		} else {
			for _, h := range batches[batch] {
				h.looked = begun
			}
		}
		w.notice(ctx, batches[batch], &seen[i])
	}
	if unread != w.unread && unread != "" {
		w.c.Log.Warn("cannot read what jobs on Slurm's nodes wrote; their ends are not known until it can be read", "uid", w.uid, "why", unread)
	}
	w.unread = unread
}

// notice reports what is new about the jobs of a batch.
func (w *worker) notice(ctx context.Context, jobs batch, s *batchNews) {
	var news []func(*engine.Turn)
	var over []*remoteJob
	for index, h := range jobs {
		id, batch := h.job.ID, h.job.Handover.Batch
		if b, found := s.Begun[index]; found && !b.Taken {
			log := w.sender.logOf(orderedAs(&h.job), h.job.Handover.Dir, index)
			h.has.Begun, h.job.Handover.Node = true, b.Node
			news = append(news, func(t *engine.Turn) { t.Remote().Began(id, batch, b, log) })
		}
		if n, found := s.Now[index]; found {
			h.has.Now, h.has.NowAt = true, s.NowAt[index]
			if !h.fenced.IsZero() {
				h.fenced = time.Now()
			}
			news = append(news, func(t *engine.Turn) { t.Remote().Used(id, batch, n) })
		}
		r, found := s.Ended[index]
		if !found || !h.has.Begun {
			continue
		}
		if r.Stopped != job.NoStop && h.job.Stop == job.NoStop {
			// Slurm ended it, and only Slurm knows why.
			h.ended, w.queue.want = &r, true
			h.has.Ended = true
			continue
		}
		over = append(over, h)
		news = append(news, func(t *engine.Turn) { t.Remote().Returned(id, batch, r) })
	}
	if w.report(ctx, news) != nil {
		for _, h := range jobs { // read them again
			h.has = handover.Has{Begun: h.job.State == job.Running}
		}
		return
	}
	for _, h := range over {
		w.sender.fullUntil = time.Time{} // there may be room
		w.forget(ctx, h)
	}
}

// orderedAs is a job as its order has it.
func orderedAs(j *job.Job) *job.Job {
	next := j.Clone()
	next.Attempt.Number++
	return next
}

// forget drops a job that has ended, and with the last of a batch its order.
func (w *worker) forget(ctx context.Context, h *remoteJob) {
	batch := h.job.Handover.Batch
	if w.jobs[h.job.ID] == h {
		delete(w.jobs, h.job.ID)
	}
	for _, other := range w.jobs {
		if other.job.Handover.Batch == batch {
			return
		}
	}
	_, _ = do(ctx, w, removeRequest{h.job.Handover.Dir})
}

// stop has Slurm stop the jobs that are to be stopped. One that has not begun is
// taken back, which needs no word from Slurm.
func (w *worker) stop(ctx context.Context) {
	var waiting, running []*remoteJob
	for _, h := range w.sorted(func(h *remoteJob) bool { return h.job.HandedOver() && h.job.Stop != job.NoStop }) {
		if !h.has.Begun {
			waiting = append(waiting, h)
		} else if h.name == "" {
			w.queue.want = true // Slurm's queue will tell
		} else if time.Since(h.told) > w.c.pace.stop {
			running = append(running, h)
		}
	}
	w.takeBack(ctx, waiting, "")
	if len(running) == 0 {
		return
	}
	var cancel cancelRequest
	var stop stopRequest
	for _, h := range running {
		h.told = time.Now()
		cancel.Jobs, stop.Markers = append(cancel.Jobs, h.named()), append(stop.Markers, h.marker())
	}
	if _, err := do(ctx, w, cancel); err != nil {
		w.troubles(ctx, err)
		_, _ = do(ctx, w, stop) // Slurm is told again later
	}
}

// takeBack takes the start markers of jobs, so that they never begin where they
// were handed over. Those that have begun stay as they are.
func (w *worker) takeBack(ctx context.Context, jobs []*remoteJob, why string) {
	if len(jobs) == 0 {
		return
	}
	taken, err := w.take(ctx, jobs)
	if err != nil && ctx.Err() == nil {
		w.c.Log.Warn("take a job back from Slurm", "err", err)
	}
	if len(taken) == 0 {
		return
	}
	var left []jobName
	for _, h := range taken {
		if h.name != "" {
			left = append(left, h.named())
		}
	}
	err = w.c.Engine.Change(ctx, func(t *engine.Turn) {
		for _, h := range taken {
			t.Remote().TakenBack(h.job.ID, h.job.Handover.Batch, why)
		}
	})
	if err != nil {
		return // the markers stay taken, and the next look finds that
	}
	for _, h := range taken {
		w.forget(ctx, h)
	}
	if len(left) > 0 && w.trouble == "" {
		// What is left in Slurm's queue only takes up room there; compare removes it
		// if this fails.
		_, _ = do(ctx, w, cancelRequest{left})
	}
}

// take takes the start markers of jobs, and returns those that can never begin now.
// The error is of the others, or of all.
func (w *worker) take(ctx context.Context, jobs []*remoteJob) (taken []*remoteJob, err error) {
	var markers []startMarker
	for _, h := range jobs {
		markers = append(markers, h.marker())
	}
	have, err := do(ctx, w, takeRequest{markers})
	if len(have) != len(jobs) {
		return nil, cmp.Or(err, errors.New("the answer is not about these jobs"))
	}
	for i, h := range jobs {
		if have[i] {
			taken = append(taken, h)
		}
	}
	return taken, err
}

func (h *remoteJob) named() jobName { return jobName{h.job.Handover.Slurm, h.name} }

// marker is the start marker of a job. Without an id from Slurm berth may have ended
// before it made the directory.
func (h *remoteJob) marker() startMarker {
	return startMarker{Dir: h.job.Handover.Dir, Index: h.job.Handover.Index, Make: h.job.Handover.Slurm == ""}
}
