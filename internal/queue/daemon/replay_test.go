package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/queue"
	"berth/internal/queue/config"
	"berth/internal/queue/fair"
	"berth/internal/queue/store"
	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

// hadRun puts jobs into the history: each wanted both GPUs for an hour, and they
// were submitted a minute apart.
func (l *lab) hadRun(user string, jobs int) {
	begin := time.Now().Add(-48 * time.Hour)
	var ended []*job.Job
	for i := range jobs {
		seq, at := int64(1000+i), begin.Add(time.Duration(i)*time.Minute)
		started := at.Add(time.Second)
		ended = append(ended, &job.Job{ID: fmt.Sprint(seq), Seq: seq, User: user, State: job.Finished, Outcome: job.OK, SubmittedAt: at,
			Spec:    job.Spec{GPUs: 2, Shell: "secret"},
			Attempt: job.Attempt{Number: 1, StartedAt: started, EndedAt: started.Add(time.Hour), Grant: job.Grant{GPUs: []int{0, 1}}}})
	}
	testkit.Must(l.t, l.d.svc.queue.Store.Commit(store.Tx{Put: ended}))
}

func figure(r api.Replay, name string) []float64 {
	var values []float64
	for _, f := range r.Figures {
		if f.Name == name {
			for _, v := range f.Values {
				values = append(values, v.Value)
			}
		}
	}
	return values
}

func TestAReplaySaysWhatAnotherPolicyWouldHaveDone(t *testing.T) {
	t.Parallel()
	l := newSharedLab(t)
	l.hadRun("daemon", 3)
	bob := l.as("nobody")
	r, err := l.d.history.Replay(l.ctx, bob.Caller, api.ReplayQuery{Policies: []string{"FIFO", "shortest", "fifo"}})
	testkit.Must(t, err)
	if r.Jobs != 3 || r.Users != 1 || r.GPUs != 2 || len(r.Policies) != 2 || r.Policies[0].Name != "fifo" || len(r.Known) < 7 {
		t.Errorf("%+v", r)
	}
	// Both GPUs are taken for three hours: waits of 0, 59 and 118 minutes.
	if got := figure(r, "wait_max_s"); !slices.Equal(got, []float64{118 * 60, 118 * 60}) {
		t.Errorf("the longest waits are %v", got)
	}
	if figure(r, "decision_p50_ms") != nil {
		t.Error("it shows times that it did not take")
	}
	if strings.Contains(fmt.Sprintf("%+v", r), "secret") {
		t.Error("another user's command is in the reply")
	}
	if r, err = l.d.history.Replay(l.ctx, bob.Caller, api.ReplayQuery{Since: new(time.Now())}); err != nil || r.Jobs != 0 || len(r.Figures) != 0 || len(r.Known) < 7 {
		t.Errorf("of no jobs: %+v, %v", r, err)
	}
	_, err = l.d.history.Replay(l.ctx, bob.Caller, api.ReplayQuery{Policies: []string{"lottery"}})
	wantProblem(t, err, problem.Invalid, "unknown policy")
	_, err = l.d.history.Replay(l.ctx, bob.Caller, api.ReplayQuery{Policies: []string{"fifo", "fair", "las", "default", "shortest"}})
	wantProblem(t, err, problem.Invalid, "at most 4")
}

// Two long jobs of one GPU fill the machine, and short ones come after them. With
// parking = "all" the long ones make room in the replay, as they would here.
func TestAReplayParksAsTheDaemonDoes(t *testing.T) {
	t.Parallel()
	for _, parking := range queue.Parkings() {
		l := newLab(t, with(func(c *config.Config) { c.Parking = parking }))
		begin := time.Now().Add(-48 * time.Hour)
		var ended []*job.Job
		for i := range 6 {
			at, ran := begin.Add(time.Duration(i)*time.Minute), 5*time.Minute
			if i < 2 {
				ran = 20 * time.Hour
			}
			ended = append(ended, &job.Job{ID: fmt.Sprint(1000 + i), Seq: int64(1000 + i), User: "ann", State: job.Finished, Outcome: job.OK, SubmittedAt: at,
				Spec:    job.Spec{GPUs: 1, Shell: fmt.Sprint("train ", i)},
				Attempt: job.Attempt{Number: 1, StartedAt: at, EndedAt: at.Add(ran), Grant: job.Grant{GPUs: []int{i % 2}}}})
		}
		testkit.Must(t, l.d.svc.queue.Store.Commit(store.Tx{Put: ended}))
		r, err := l.d.history.Replay(l.ctx, api.Caller{UID: 1, Name: "ann"}, api.ReplayQuery{Policies: []string{"las"}})
		testkit.Must(t, err)
		if got := figure(r, "wait_max_s"); len(got) != 1 || (got[0] < 2*60*60) != (parking == queue.ParkAll) {
			t.Errorf("parking = %s: the longest wait is %v s", parking, got)
		}
	}
}

func TestAReplayHasBounds(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.hadRun("ann", 40)
	c := api.Caller{UID: 1, Name: "ann"}
	few := replayLimits{jobs: 10, page: 4, policies: 4, time: time.Hour}
	r, err := l.d.history.replay(l.ctx, c, api.ReplayQuery{}, few)
	if err != nil || r.Jobs != 10 || !strings.Contains(strings.Join(r.Notes, ""), "only the latest 10 jobs of 40") {
		t.Errorf("%+v, %v", r, err)
	}
	short := usualReplay
	short.time = time.Nanosecond
	_, err = l.d.history.replay(l.ctx, c, api.ReplayQuery{}, short)
	wantProblem(t, err, problem.TooMuch, "took longer")

	// A second one waits for the first, and can be given up.
	leave, err := l.d.history.replays.Enter(fair.As(l.ctx, 1))
	testkit.Must(t, err)
	waiting, cancel := context.WithCancel(fair.As(l.ctx, 2))
	second := make(chan error, 1)
	go func() {
		_, err := l.d.history.Replay(waiting, c, api.ReplayQuery{})
		second <- err
	}()
	l.until("the second waits", func() bool { return l.d.history.replays.Waiting() == 1 })
	cancel()
	if err := <-second; !errors.Is(err, context.Canceled) {
		t.Errorf("two at a time: %v", err)
	}
	leave()
	gone, cancel := context.WithCancel(l.ctx)
	cancel()
	if _, err := l.d.history.Replay(gone, c, api.ReplayQuery{}); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody waits for it, and it went on: %v", err)
	}
}
