package daemon

import (
	"context"
	"time"

	"berth/internal/api"
	"berth/internal/job"
)

// waitMost bounds one answer; who wants to wait longer asks again.
const waitMost = 60 * time.Second

// Wait answers when the selected jobs are over, or when its time is up.
func (d *Daemon) Wait(ctx context.Context, c api.Caller, r api.WaitRequest) (api.WaitReply, error) {
	ch, err := d.choose(c, r.Select, true)
	if err != nil {
		return api.WaitReply{}, err
	}
	if !ch.narrow {
		return api.WaitReply{}, api.Problemf(api.Invalid, "name jobs by id, or say all", "no job is selected")
	}
	// Whoever listens first misses no end.
	l := d.hub.listen()
	defer func() { d.hub.leave(l) }()
	found, missing, err := d.resolve(ctx, &ch, false)
	if err != nil {
		return api.WaitReply{}, err
	}
	if len(missing) > 0 {
		return api.WaitReply{}, api.Problemf(api.NotFound, "berth list --all shows what there is", "no job %.60s", missing[0])
	}
	timeout := time.Duration(r.TimeoutS * float64(time.Second))
	if timeout <= 0 || timeout > waitMost {
		timeout = waitMost
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	w := newWaiting(found, r.Any)
	for !w.done() {
		ev, ok := l.next(ctx)
		if !ok && ctx.Err() != nil {
			break
		}
		if !ok { // fell behind, or the daemon stops: let the caller ask again
			break
		}
		w.heard(ev)
	}
	reply := api.WaitReply{Done: w.done(), Jobs: make([]job.View, len(w.jobs))}
	for i := range w.jobs {
		reply.Jobs[i] = d.view(c, &w.jobs[i], nil)
	}
	return reply, nil
}

// waitingFor is jobs, and how many of them are not over.
type waitingFor struct {
	jobs []job.Job
	at   map[string]int
	open int
	any  bool
}

func newWaiting(jobs []job.Job, any bool) *waitingFor {
	w := &waitingFor{jobs: jobs, at: make(map[string]int, len(jobs)), any: any}
	for i := range jobs {
		w.at[jobs[i].ID] = i
		if !jobs[i].State.Terminal() {
			w.open++
		}
	}
	return w
}

func (w *waitingFor) done() bool {
	return w.open == 0 || w.any && w.open < len(w.jobs)
}

// heard takes in an event. A job that was over may have been queued again.
func (w *waitingFor) heard(ev job.Event) {
	if ev.Job == nil {
		return
	}
	i, meant := w.at[ev.Job.ID]
	if !meant {
		return
	}
	was, is := w.jobs[i].State.Terminal(), ev.Job.State.Terminal()
	w.jobs[i] = *ev.Job
	switch {
	case is && !was:
		w.open--
	case was && !is:
		w.open++
	}
}
