package daemon

import (
	"cmp"
	"context"
	"slices"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/queue/engine"
	"berth/internal/text/problem"
)

// waitMost bounds one request; a client that wants to wait longer asks again.
const waitMost = 60 * time.Second

// settled says what a job is waited for: whether it has ended, or is as far as
// that.
var settled = map[string]func(*job.Job) bool{
	"":             func(j *job.Job) bool { return j.State.Terminal() },
	api.WaitEnd:    func(j *job.Job) bool { return j.State.Terminal() },
	api.WaitParked: func(j *job.Job) bool { return j.Parking.Phase != job.ParkOut || j.State.Terminal() },
	api.WaitRunning: func(j *job.Job) bool {
		return j.State == job.Running && j.Parking.Phase == job.ParkNone || j.State.Terminal()
	},
}

// waiter waits for jobs.
type waiter struct {
	svc  *service
	find *finder
}

// Wait returns when the selected jobs have ended or are what was asked for, or
// when its time is up.
func (h *waiter) Wait(ctx context.Context, c api.Caller, r api.WaitRequest) (api.WaitReply, error) {
	ch, err := h.find.choose(ctx, c, r.Select)
	if err != nil {
		return api.WaitReply{}, err
	}
	if !ch.narrow {
		return api.WaitReply{}, problem.Newf(problem.Invalid, "name jobs by id, or give all", "no job is selected")
	}
	w, l, err := h.beginWait(ctx, &ch, r.Any, settled[r.For])
	if l != nil {
		defer h.svc.hub.remove(l)
	}
	if err != nil {
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
	return h.waited(ctx, c, w)
}

// beginWait finds the jobs and subscribes to their events in the same turn.
func (h *waiter) beginWait(ctx context.Context, ch *choice, any bool, is func(*job.Job) bool) (*waitingFor, *listener, error) {
	ctx, leave := h.svc.gate.Begin(ctx)
	defer leave()
	var l *listener
	live := map[string]bool{}
	over, err := h.waitsForOver(ctx, ch)
	if err != nil {
		return nil, nil, err
	}
	found, missing, err := h.find.resolveThen(ctx, ch, over, func(_ *engine.Turn, ids []string) {
		for _, id := range ids {
			live[id] = true
		}
		l = h.svc.hub.listenTo(len(ids), func(id string) bool { return live[id] })
	})
	if err == nil && len(missing) > 0 {
		err = missingProblem(h.find.notMeant(ctx, ch, missing[:1])[0])
	}
	if err != nil {
		return nil, l, err
	}
	return newWaiting(found, any, is), l, nil
}

// maxOverWaited bounds how many finished jobs a name can match.
const maxOverWaited = 10_000

// waitsForOver reports whether finished jobs are selected without an id: by
// name or jobs file, so that a part that failed early counts, or by state.
func (h *waiter) waitsForOver(ctx context.Context, ch *choice) (bool, error) {
	if ch.named() || !ch.wantsOver() || ch.name+ch.batch == "" && len(ch.states) == 0 {
		return false, nil
	}
	counts, err := h.svc.queue.Store.CountOver(ch.filter(ctx))
	if err != nil {
		return false, err
	}
	total := 0
	for _, n := range counts {
		total += n
	}
	if total > maxOverWaited {
		return false, problem.Newf(problem.TooMuch, "leave them out with --state queued,running", "%d finished jobs match; at most %d are accepted", total, maxOverWaited)
	}
	return true, nil
}

// waited reads the jobs again. They were not kept in memory: a user may wait for
// all jobs many times over.
func (h *waiter) waited(ctx context.Context, c api.Caller, w *waitingFor) (api.WaitReply, error) {
	reply := api.WaitReply{Jobs: make([]job.View, 0, len(w.ids))}
	ch := choice{ids: make(map[string]bool, len(w.ids))}
	for _, id := range w.ids {
		ch.IDs, ch.ids[id] = append(ch.IDs, id), true
	}
	if len(ch.IDs) == 0 {
		reply.Done = true
		return reply, nil
	}
	ctx, leave := h.svc.gate.Begin(ctx)
	defer leave()
	found, _, err := h.find.resolve(ctx, &ch, true)
	if err != nil {
		return api.WaitReply{}, err
	}
	for i := range found {
		w.heard(&found[i])
	}
	slices.SortFunc(found, func(a, b job.Job) int { return cmp.Compare(a.Seq, b.Seq) })
	for i := range found {
		reply.Jobs = append(reply.Jobs, h.svc.view(c, &found[i], nil))
	}
	reply.Done = w.done()
	return reply, nil
}

// waitingFor is a set of jobs, and how many are not what is waited for.
type waitingFor struct {
	is   func(*job.Job) bool
	ids  []string
	over []bool
	at   map[string]int
	open int
	any  bool
}

func newWaiting(jobs []job.Job, any bool, is func(*job.Job) bool) *waitingFor {
	w := &waitingFor{is: is, ids: make([]string, len(jobs)), over: make([]bool, len(jobs)), at: make(map[string]int, len(jobs)), any: any}
	for i := range jobs {
		w.ids[i], w.at[jobs[i].ID] = jobs[i].ID, i
		if w.over[i] = is(&jobs[i]); !w.over[i] {
			w.open++
		}
	}
	return w
}

func (w *waitingFor) done() bool {
	return w.open == 0 || w.any && w.open < len(w.ids)
}

// heard records a job's state. A job that had ended may have been requeued.
func (w *waitingFor) heard(j *job.Job) {
	i, meant := w.at[j.ID]
	if !meant {
		return
	}
	was, is := w.over[i], w.is(j)
	w.over[i] = is
	switch {
	case is && !was:
		w.open--
	case was && !is:
		w.open++
	}
}
