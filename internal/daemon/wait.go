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
	found, missing, err := d.resolve(ctx, &ch, false)
	if err != nil {
		return api.WaitReply{}, err
	}
	if len(missing) > 0 {
		return api.WaitReply{}, api.Problemf(api.NotFound, "berth list --all shows what there is", "no job %.60s", missing[0])
	}
	w := newWaiting(found, r.Any)
	l := d.hub.listenTo(len(found), w.means)
	defer d.hub.leave(l)
	// What ended before anyone listened is seen now, and the rest heard.
	if err := d.lookAt(ctx, w); err != nil {
		return api.WaitReply{}, err
	}
	timeout := time.Duration(r.TimeoutS * float64(time.Second))
	if timeout <= 0 || timeout > waitMost {
		timeout = waitMost
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for !w.done() {
		ev, ok := l.next(ctx)
		if !ok { // its time is up, it fell behind, or the daemon stops
			break
		}
		w.heard(ev.Job)
	}
	reply := api.WaitReply{Done: w.done(), Jobs: make([]job.View, len(w.jobs))}
	for i := range w.jobs {
		reply.Jobs[i] = d.view(c, &w.jobs[i], nil)
	}
	return reply, nil
}

// lookAt takes in how the jobs stand now.
func (d *Daemon) lookAt(ctx context.Context, w *waitingFor) error {
	ch := choice{ids: make(map[string]bool, len(w.jobs))}
	for i := range w.jobs {
		if !w.jobs[i].State.Terminal() {
			ch.IDs = append(ch.IDs, w.jobs[i].ID)
			ch.ids[w.jobs[i].ID] = true
		}
	}
	if len(ch.IDs) == 0 {
		return nil
	}
	now, _, err := d.resolve(ctx, &ch, true)
	for i := range now {
		w.heard(&now[i])
	}
	return err
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

// means reports whether a job is one of them.
func (w *waitingFor) means(id string) bool {
	_, meant := w.at[id]
	return meant
}

// heard takes in how a job stands. One that was over may have been queued
// again.
func (w *waitingFor) heard(j *job.Job) {
	i, meant := w.at[j.ID]
	if !meant {
		return
	}
	was, is := w.jobs[i].State.Terminal(), j.State.Terminal()
	w.jobs[i] = *j
	switch {
	case is && !was:
		w.open--
	case was && !is:
		w.open++
	}
}
