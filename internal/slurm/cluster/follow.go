package cluster

import (
	"context"
	"time"

	"berth/internal/job"
	"berth/internal/queue/engine"
	"berth/internal/slurm/handover"
)

// follow reads what the jobs' wrappers have written.
func (d *desk) follow(ctx context.Context) {
	batches := d.batches()
	if len(batches) == 0 {
		return
	}
	var r Request
	var names []string
	for batch, jobs := range batches {
		w := Watch{Jobs: make(map[int]handover.Has, len(jobs))}
		for index, h := range jobs {
			w.Dir, w.Jobs[index] = h.job.Handover.Dir, h.has
		}
		r.Look, names = append(r.Look, w), append(names, batch)
	}
	begun := time.Now()
	reply, err := d.do(ctx, r)
	d.lookCost = time.Since(begun)
	if err != nil || len(reply.Seen) != len(names) {
		return
	}
	unread := ""
	for i, batch := range names {
		if why := reply.Seen[i].Error; why != "" {
			unread = why
		} else {
			for _, h := range batches[batch] {
				h.looked = begun
			}
		}
		d.notice(ctx, batches[batch], &reply.Seen[i])
	}
	if unread != d.unread && unread != "" {
		d.c.Log.Warn("cannot read what jobs on Slurm's nodes wrote; their ends are not known until it can be read", "uid", d.uid, "why", unread)
	}
	d.unread = unread
}

// notice reports what is new about the jobs of a batch.
func (d *desk) notice(ctx context.Context, jobs batch, s *Seen) {
	var news []func(*engine.Turn)
	var over []*held
	for index, h := range jobs {
		id, batch := h.job.ID, h.job.Handover.Batch
		if b, found := s.Begun[index]; found && !b.Taken {
			log := d.logOf(orderedAs(&h.job), h.job.Handover.Dir, index)
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
			h.ended, d.want = &r, true
			h.has.Ended = true
			continue
		}
		over = append(over, h)
		news = append(news, func(t *engine.Turn) { t.Remote().Returned(id, batch, r) })
	}
	if len(news) == 0 {
		return
	}
	err := d.c.Engine.Change(ctx, func(t *engine.Turn) {
		for _, f := range news {
			f(t)
		}
	})
	if err != nil {
		for _, h := range jobs { // read them again
			h.has = handover.Has{Begun: h.job.State == job.Running}
		}
		return
	}
	for _, h := range over {
		d.fullUntil = time.Time{} // there may be room
		d.forget(ctx, h)
	}
}

// orderedAs is a job as its order has it.
func orderedAs(j *job.Job) *job.Job {
	next := j.Clone()
	next.Attempt.Number++
	return next
}

// forget drops a job that has ended, and with the last of a batch its order.
func (d *desk) forget(ctx context.Context, h *held) {
	batch := h.job.Handover.Batch
	if d.jobs[h.job.ID] == h {
		delete(d.jobs, h.job.ID)
	}
	for _, other := range d.jobs {
		if other.job.Handover.Batch == batch {
			return
		}
	}
	_, _ = d.do(ctx, Request{Remove: []string{h.job.Handover.Dir}})
}

// stop has Slurm stop the jobs that are to be stopped. One that has not begun is
// taken back, which needs no word from Slurm.
func (d *desk) stop(ctx context.Context) {
	var waiting, running []*held
	for _, h := range d.sorted(func(h *held) bool { return h.job.HandedOver() && h.job.Stop != job.NoStop }) {
		if !h.has.Begun {
			waiting = append(waiting, h)
		} else if h.name == "" {
			d.want = true // Slurm's queue will tell
		} else if time.Since(h.told) > d.c.pace.stop {
			running = append(running, h)
		}
	}
	d.takeBack(ctx, waiting, "")
	if len(running) == 0 {
		return
	}
	var r Request
	for _, h := range running {
		h.told = time.Now()
		r.Cancel = append(r.Cancel, Named{h.job.Handover.Slurm, h.name})
	}
	reply, err := d.do(ctx, r)
	if err == nil && reply.Trouble == "" {
		return
	}
	d.troubles(ctx, unreachable(reply.Trouble, err))
	r = Request{}
	for _, h := range running {
		r.Stop = append(r.Stop, d.marker(h))
	}
	_, _ = d.do(ctx, r) // Slurm is told again later
}

// takeBack takes the start markers of jobs, so that they never begin where they
// were handed over. Those that have begun stay as they are.
func (d *desk) takeBack(ctx context.Context, jobs []*held, why string) {
	if len(jobs) == 0 {
		return
	}
	var r Request
	for _, h := range jobs {
		r.Take = append(r.Take, d.marker(h))
	}
	reply, err := d.do(ctx, r)
	if err != nil || len(reply.Taken) != len(jobs) {
		return
	}
	if reply.TakeError != "" {
		d.c.Log.Warn("take a job back from Slurm", "err", reply.TakeError)
	}
	var taken []*held
	var left []Named
	for i, h := range jobs {
		if !reply.Taken[i] {
			continue
		}
		if taken = append(taken, h); h.name != "" {
			left = append(left, Named{h.job.Handover.Slurm, h.name})
		}
	}
	err = d.c.Engine.Change(ctx, func(t *engine.Turn) {
		for _, h := range taken {
			t.Remote().TakenBack(h.job.ID, h.job.Handover.Batch, why)
		}
	})
	if err != nil {
		return // the markers stay taken, and the next look finds that
	}
	for _, h := range taken {
		d.forget(ctx, h)
	}
	if len(left) > 0 && d.trouble == "" {
		// What is left in Slurm's queue only takes up room there; compare removes it
		// if this fails.
		_, _ = d.do(ctx, Request{Cancel: left})
	}
}

// marker is the start marker of a job. Without an id from Slurm berth may have ended
// before it made the directory.
func (d *desk) marker(h *held) Marker {
	return Marker{Dir: h.job.Handover.Dir, Index: h.job.Handover.Index, Make: h.job.Handover.Slurm == ""}
}
