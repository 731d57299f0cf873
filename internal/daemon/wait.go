package daemon

import (
	"context"
	"slices"
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
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for !w.done() {
		ev, ok := l.next(bounded)
		if !ok { // its time is up, it fell behind, or the daemon stops
			break
		}
		w.heard(ev.Job)
	}
	return d.waited(ctx, c, w)
}

// waited is how the jobs stand now. Nobody kept them meanwhile: a user may wait
// for all jobs many times over.
func (d *Daemon) waited(ctx context.Context, c api.Caller, w *waitingFor) (api.WaitReply, error) {
	reply := api.WaitReply{Jobs: make([]job.View, 0, len(w.ids))}
	ch := choice{ids: make(map[string]bool, len(w.ids))}
	for _, id := range w.ids {
		ch.IDs, ch.ids[id] = append(ch.IDs, id), true
	}
	if len(ch.IDs) == 0 {
		reply.Done = true
		return reply, nil
	}
	found, _, err := d.resolve(ctx, &ch, true)
	if err != nil {
		return api.WaitReply{}, err
	}
	for i := range found {
		w.heard(&found[i])
	}
	slices.SortFunc(found, func(a, b job.Job) int { return w.at[a.ID] - w.at[b.ID] })
	for i := range found {
		reply.Jobs = append(reply.Jobs, d.view(c, &found[i], nil))
	}
	reply.Done = w.done()
	return reply, nil
}

// lookAt takes in how the jobs stand now.
func (d *Daemon) lookAt(ctx context.Context, w *waitingFor) error {
	ch := choice{ids: make(map[string]bool, w.open)}
	for i, id := range w.ids {
		if !w.over[i] {
			ch.IDs, ch.ids[id] = append(ch.IDs, id), true
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
	ids  []string
	over []bool
	at   map[string]int
	open int
	any  bool
}

func newWaiting(jobs []job.Job, any bool) *waitingFor {
	w := &waitingFor{ids: make([]string, len(jobs)), over: make([]bool, len(jobs)), at: make(map[string]int, len(jobs)), any: any}
	for i := range jobs {
		w.ids[i], w.at[jobs[i].ID] = jobs[i].ID, i
		if w.over[i] = jobs[i].State.Terminal(); !w.over[i] {
			w.open++
		}
	}
	return w
}

func (w *waitingFor) done() bool {
	return w.open == 0 || w.any && w.open < len(w.ids)
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
	was, is := w.over[i], j.State.Terminal()
	w.over[i] = is
	switch {
	case is && !was:
		w.open--
	case was && !is:
		w.open++
	}
}
