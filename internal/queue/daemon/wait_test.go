package daemon

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

// waits asks in the background, and answers with who is over.
func (l *lab) waits(r api.WaitRequest) <-chan api.WaitReply {
	answer := make(chan api.WaitReply, 1)
	heard := l.d.svc.hub.count() + 1
	go func() {
		reply, err := api.Call(l.ctx, l.Client, api.WaitForJobs, r)
		if err != nil && !errors.Is(err, context.Canceled) {
			reply.Jobs = []job.View{{ID: err.Error()}}
		}
		answer <- reply
	}()
	l.until("it waits", func() bool { return l.d.svc.hub.count() >= heard || len(answer) > 0 })
	return answer
}

func (l *lab) answered(answer <-chan api.WaitReply) api.WaitReply {
	l.t.Helper()
	select {
	case reply := <-answer:
		return reply
	case <-time.After(testkit.Patience):
		l.t.Fatal("no answer")
		return api.WaitReply{}
	}
}

// ends lists the states in an answer.
func ends(r api.WaitReply) (states []job.State) {
	for _, v := range r.Jobs {
		states = append(states, v.State)
	}
	return states
}

func TestWait(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	line, open := l.gate("gate")
	slow := l.one(sh(line, "gpus", "0"))
	held := l.one(sh("true", "hold", "yes"))
	done := l.one(sh("exit 3", "gpus", "0"))
	l.end(done)

	over := l.answered(l.waits(api.WaitRequest{Select: api.Select{Words: []string{done}}}))
	if !over.Done || len(over.Jobs) != 1 || value(over.Jobs[0].ExitCode) != 3 {
		t.Errorf("what is over: %+v", over)
	}
	first := l.answered(l.waits(api.WaitRequest{Select: api.Select{Words: []string{slow, done}}, Any: true}))
	if !first.Done || !slices.Contains(ends(first), job.Failed) {
		t.Errorf("any of two, one over: %v %v", first.Done, ends(first))
	}
	late := l.answered(l.waits(api.WaitRequest{Select: api.Select{Words: []string{held}}, TimeoutS: 0.1}))
	if late.Done || !slices.Equal(ends(late), []job.State{job.Queued}) {
		t.Errorf("out of time: %+v", late)
	}
	_, err := api.Call(l.ctx, l.Client, api.WaitForJobs, api.WaitRequest{Select: api.Select{Words: []string{"99"}}})
	wantProblem(t, err, problem.NotFound, "99")
	_, err = api.Call(l.ctx, l.Client, api.WaitForJobs, api.WaitRequest{})
	wantProblem(t, err, problem.Invalid)

	all := l.waits(api.WaitRequest{Select: api.Select{Words: []string{slow, held, done}}})
	anyone := l.waits(api.WaitRequest{Select: api.Select{Words: []string{slow, held}}, Any: true})
	open()
	if reply := l.answered(anyone); !reply.Done || !slices.Equal(ends(reply), []job.State{job.Finished, job.Queued}) {
		t.Errorf("any of two: %v %v", reply.Done, ends(reply))
	}
	select {
	case reply := <-all:
		t.Fatalf("answered while one is held: %v", ends(reply))
	default:
	}
	l.act(api.ActCancel, held)
	if reply := l.answered(all); !reply.Done || !slices.Equal(ends(reply), []job.State{job.Finished, job.Cancelled, job.Failed}) {
		t.Errorf("all of three: %v %v", reply.Done, ends(reply))
	}
	l.until("nobody listens", func() bool { return l.d.svc.hub.count() == 0 })
}

func TestWaitFollowsARequeue(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a, b := l.one(sh("true", "gpus", "0")), l.one(sh("true", "hold", "yes"))
	l.finished(a)
	answer := l.waits(api.WaitRequest{Select: api.Select{Words: []string{a, b}}})
	l.act(api.ActRequeue, a)
	l.finished(a)
	line, open := l.gate("gate")
	if _, err := api.Call(l.ctx, l.Client, api.EditJob, api.EditRequest{JobID: api.JobID{ID: b}, Set: sh(line)}); err != nil {
		t.Fatal(err)
	}
	l.act(api.ActRelease, b)
	l.untilState(b, job.Running)
	open()
	if reply := l.answered(answer); !reply.Done || reply.Jobs[0].Attempt != 2 {
		t.Errorf("%v, attempt %d", reply.Done, reply.Jobs[0].Attempt)
	}
}

func TestAWaitEndsWithTheDaemon(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	held := l.one(sh("true", "hold", "yes"))
	answer := l.waits(api.WaitRequest{Select: api.Select{Words: []string{held}}})
	l.stop()
	if reply := l.answered(answer); reply.Done {
		t.Errorf("done: %+v", reply)
	}
	l.start()
}

// TestManyWaitForMany: each waiter hears of the end of its own job, whatever
// else happens.
func TestManyWaitForMany(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var answers []<-chan api.WaitReply
	ids := l.submit(slices.Repeat([]api.Spec{sh("true", "gpus", "0", "hold", "yes")}, 30)...)
	for _, id := range ids {
		answers = append(answers, l.waits(api.WaitRequest{Select: api.Select{Words: []string{id}}}))
	}
	l.act(api.ActRelease, ids...)
	for i, answer := range answers {
		if reply := l.answered(answer); !reply.Done || len(reply.Jobs) != 1 || reply.Jobs[0].ID != ids[i] || reply.Jobs[0].State != job.Finished {
			t.Errorf("job %s: %+v", ids[i], reply)
		}
	}
}

// TestHub: who falls behind is let go, and nobody else.
func TestHub(t *testing.T) {
	t.Parallel()
	h := newHub()
	slow, quick := h.listen(), h.listen()
	mine := h.listenTo(1, func(id string) bool { return id == "7" })
	event := job.Event{Job: &job.Job{ID: "1"}}
	for range hubBuffer + 1 {
		h.publish([]job.Event{event, {Text: "about no job"}})
		for range 2 {
			if _, ok := quick.next(context.Background()); !ok {
				t.Fatal("who kept up was let go")
			}
		}
	}
	heard := 0
	for range slow.events {
		heard++
	}
	if heard != hubBuffer {
		t.Errorf("the slow one heard %d", heard)
	}
	h.publish([]job.Event{{Job: &job.Job{ID: "7"}}})
	if ev, ok := mine.next(context.Background()); !ok || ev.Job.ID != "7" || len(mine.events) > 0 {
		t.Errorf("who waits for one job heard %+v, %v and %d more", ev, ok, len(mine.events))
	}
	h.remove(slow)
	h.remove(mine)
	h.remove(mine)
	h.close()
	if _, ok := quick.next(context.Background()); !ok {
		if _, ok := quick.next(context.Background()); ok {
			t.Error("a closed hub speaks")
		}
	}
	if _, ok := <-h.listen().events; ok || h.count() != 0 {
		t.Error("a closed hub takes listeners")
	}
}

func (h *hub) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.listeners)
}
