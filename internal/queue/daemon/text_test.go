package daemon

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/queue/config"
	"berth/internal/queue/engine"
	"berth/internal/queue/fair"
	"berth/internal/queue/store"
	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

// wordy is a held job with so many KiB of text, unlike any other.
func wordy(kib, n int) api.Spec {
	s := sh("", "hold", "yes", "gpus", "0")
	s.Command = api.Command{Argv: []string{"/bin/true", fmt.Sprint(n)}}
	for ; kib > 0; kib -= 100 {
		s.Command.Argv = append(s.Command.Argv, strings.Repeat("x", min(kib, 100)<<10))
	}
	return s
}

// TestTurnsAreBoundedByJobsAndBytes.
func TestTurnsAreBoundedByJobsAndBytes(t *testing.T) {
	t.Parallel()
	var found []job.Job
	for i := range 2000 {
		j := job.Job{Seq: int64(i)}
		if i%3 == 0 {
			j.Spec.Shell = strings.Repeat("x", i*i%700_000)
		}
		if i == 100 {
			j.Spec.Shell = strings.Repeat("x", 2*actBytes)
		}
		found = append(found, j)
	}
	var all []job.Job
	for some := range turns(found) {
		bytes := 0
		for i := range some {
			bytes += some[i].Spec.TextBytes()
		}
		if len(some) == 0 || len(some) > actJobs || bytes > actBytes && len(some) > 1 {
			t.Errorf("a turn has %d jobs with %d bytes", len(some), bytes)
		}
		all = append(all, some...)
	}
	if !slices.EqualFunc(all, found, func(a, b job.Job) bool { return a.Seq == b.Seq }) {
		t.Errorf("%d jobs of %d", len(all), len(found))
	}
}

// TestAnActOnLargeJobsLetsOthersInBetween: it takes a turn for each job of 700
// KiB, and another user's requests see it half done.
func TestAnActOnLargeJobsLetsOthersInBetween(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	const jobs = 12
	var specs []api.Spec
	for i := range jobs {
		specs = append(specs, wordy(700, i))
	}
	ids := l.submit(specs...)
	var stop atomic.Bool
	stages := map[int]bool{} // how many were held, as the other user's requests saw it
	var all sync.WaitGroup
	all.Go(func() {
		for !stop.Load() {
			_ = l.d.svc.Do(fair.As(l.ctx, 2), func(t *engine.Turn) {
				held := 0
				for _, id := range ids {
					if j := t.Jobs().Get(id); j != nil && j.Held {
						held++
					}
				}
				stages[held] = true
			})
		}
	})
	reply, err := l.d.actions.Act(fair.As(l.ctx, 1), api.Caller{Admin: true}, api.ActRequest{Action: api.ActRelease, Select: api.Select{All: true}})
	stop.Store(true)
	all.Wait()
	if err != nil || len(reply.Jobs) != jobs {
		t.Errorf("%d jobs: %v", len(reply.Jobs), err)
	}
	delete(stages, 0)
	delete(stages, jobs)
	if len(stages) < 2 {
		t.Errorf("another user's requests saw it half done %d times", len(stages))
	}
}

// TestTextOfUnfinishedJobsIsBounded: their own, and the environments that were
// captured with them.
func TestTextOfUnfinishedJobsIsBounded(t *testing.T) {
	t.Parallel()
	l := newLab(t, with(func(c *config.Config) { c.MaxText = 1 << 20 }))
	submit := func(environ []string, specs ...api.Spec) api.SubmitRequest {
		return api.SubmitRequest{Jobs: specs, Dir: "/tmp", Environ: environ}
	}
	first := l.one(wordy(600, 1))
	l.refused(submit(nil, wordy(600, 2)), problem.TooMuch, "text", "limit of 1 MiB")
	array := wordy(10, 3)
	array.Set("array", "1-60")
	l.refused(submit(nil, array), problem.TooMuch, "text")
	environ := []string{"A=" + strings.Repeat("a", 100_000), "B=" + strings.Repeat("b", 100_000), "C=" + strings.Repeat("c", 100_000)}
	var last string
	for range 3 { // the same environment counts once
		reply, err := api.Call(l.ctx, l.Client, api.Submit, submit(environ, sh("true", "hold", "yes")))
		testkit.Must(t, err)
		last = reply.Jobs[0].ID
	}
	l.refused(submit(append(environ, "D=1"), sh("true", "hold", "yes")), problem.TooMuch, "environment")
	l.one(sh("true", "hold", "yes")) // a small one always fits
	_, err := api.Call(l.ctx, l.Client, api.EditJob, api.EditRequest{JobID: api.JobID{ID: last}, Set: api.Spec{Command: wordy(200, 0).Command}})
	wantProblem(t, err, problem.TooMuch, "text")
	l.act(api.ActCancel, first)
	second := l.one(wordy(600, 4))
	if got := did(l.act(api.ActRequeue, first)); !strings.Contains(got, "limit of 1 MiB") {
		t.Errorf("requeued: %s", got)
	}
	l.restart() // it is counted again
	l.refused(submit(nil, wordy(600, 5)), problem.TooMuch, "text")
	l.act(api.ActCancel, second)
	if got := did(l.act(api.ActRequeue, first)); got != first+":done" {
		t.Errorf("requeued: %s", got)
	}
}

// TestTheHistoryIsBoundedInBytes: what is too much loses its text soon, and says
// so.
func TestTheHistoryIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	l := newLab(t, with(func(c *config.Config) { c.HistoryText = 1 << 20 }))
	first := l.one(wordy(400, 0))
	for n := 1; n < 8; n++ {
		l.one(wordy(400, n))
	}
	l.actOn(api.ActCancel, api.Select{All: true})
	l.until("the first has no text", func() bool { return l.job(first).TextDropped })
	if j := l.job(first); j.Command == nil || !strings.HasPrefix(*j.Command, "/bin/true 0 xxx") || len(*j.Command) > 2<<10 {
		t.Errorf("its command is %v", j.Command)
	}
	if got := did(l.act(api.ActRequeue, first)); got != first+":not its text is no longer kept (retention.history_text), so it cannot run again" {
		t.Errorf("requeue: %s", got)
	}
	l.until("what is left is within the bound", func() bool {
		kept := 0
		testkit.Must(t, l.d.svc.queue.Store.EachOver(store.Filter{}, func(j *job.Job) error { kept += j.Spec.TextBytes(); return nil }))
		return kept <= 1<<20
	})
}

// TestRetainDropsTextOfOneUser, and leaves other users' alone.
func TestRetainDropsTextOfOneUser(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.putOf("ann", 1, 1, 2, time.Hour, strings.Repeat("A=1\x00", 5000))
	a.putOf("bob", 1, 3, 4, time.Hour, strings.Repeat("B=1\x00", 20_000))
	a.putOf("bob", 0, 5, 5, time.Hour, strings.Repeat("C=1\x00", 20_000))
	cfg := config.Default(true)
	cfg.HistoryText = 100_000
	a.retain(cfg)
	for id, gone := range map[string]bool{"1": false, "2": false, "3": false, "4": false, "5": true} {
		j, err := a.store.Job(id)
		testkit.Must(t, err)
		if j.TextGone != gone || (j.Environ == "") != gone || j.Spec.Shell != "true" {
			t.Errorf("job %s: %+v", id, j)
		}
	}
}
