package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/queue/engine/running"
	"berth/internal/queue/store"
)

// watcher notes what it hears.
type watcher struct {
	rounds, decisions, commits, failures int

	heard []string
}

func (w *watcher) Round()                { w.rounds++ }
func (w *watcher) Decided(time.Duration) { w.decisions++ }

func (w *watcher) Committed(_ time.Duration, err error) {
	w.commits++
	if err != nil {
		w.failures++
	}
}

func (w *watcher) Parked(took time.Duration, mib int64) { w.note("parked %v %d", took, mib) }
func (w *watcher) NotParked()                           { w.note("not parked") }
func (w *watcher) NotResumed()                          { w.note("not resumed") }
func (w *watcher) Resumed(took, parked time.Duration, mib int64) {
	w.note("resumed %v %v %d", took, parked, mib)
}

func (w *watcher) note(format string, args ...any) {
	w.heard = append(w.heard, fmt.Sprintf(format, args...))
}

func TestAWatchHearsOfParking(t *testing.T) {
	w := &watcher{}
	r := parkedRig(t, func(c *Config) { c.Watch = w })
	r.at().parker.Park("1", "ann", time.Time{})
	r.step()
	r.says("1", wasRefused)
	r.park()
	r.at().parker.Unpark("1", "ann")
	r.pass(time.Minute)
	r.says("1", hasNoRoom)
	r.pass(running.ResumeDelay)
	r.pass(10 * time.Millisecond)
	r.says("1", wasResumed)
	// Between the failed resume and the one that worked: the delay, and the steps
	// of the rig.
	want := []string{"not parked", "parked 2s 5000", "not resumed", "resumed 1s 10.02s 5000"}
	if !slices.Equal(w.heard, want) {
		t.Errorf("heard %q, want %q", w.heard, want)
	}
}

func TestAWatchHearsOfRoundsDecisionsAndCommits(t *testing.T) {
	w := &watcher{}
	r := newRig(t, 1, func(c *Config) { c.Watch = w })
	r.step()
	if w.rounds != 1 || w.decisions != 0 || w.commits != 0 {
		t.Errorf("nothing to do: %+v", w)
	}
	r.submit(job.Spec{Argv: []string{"a"}, GPUs: 1})
	if w.rounds != 2 || w.decisions != 1 || w.commits != 1 || w.failures != 0 {
		t.Errorf("one start: %+v", w)
	}
	r.commitErr = store.ErrFull
	jobs := []*job.Job{{Spec: job.Spec{Argv: []string{"b"}, GPUs: 1}}}
	r.at().queue.Number(jobs)
	r.at().queue.Submit(jobs)
	if err := r.e.Step(r.now); err == nil {
		t.Error("the store is not full")
	}
	if w.failures == 0 {
		t.Errorf("a full disk: %+v", w)
	}
}

// TestTheCensusCountsEveryUnfinishedJob: once, by what it waits for.
func TestTheCensusCountsEveryUnfinishedJob(t *testing.T) {
	r := parkedRig(t)
	r.park()                                         // 1, held
	r.submit(job.Spec{Argv: []string{"b"}, GPUs: 1}) // 2, running
	since := r.now
	r.submit(
		job.Spec{Argv: []string{"c"}, GPUs: 1},
		job.Spec{Argv: []string{"d"}, GPUs: 1},
		job.Spec{Argv: []string{"e"}, GPUs: 1, After: []job.Dependency{{Job: "2", On: job.AfterAny}}},
	)
	late := &job.Job{Spec: job.Spec{Argv: []string{"f"}, GPUs: 1}, NotBefore: r.now.Add(time.Hour), User: "bob"}
	r.at().queue.Number([]*job.Job{late})
	r.at().queue.Submit([]*job.Job{late})
	r.pass(time.Minute)
	c := r.at().explain.Census()
	if c.Queued != 4 || c.Running != 1 || c.Parked != 1 || c.Room != 2 || c.Held != 1 || c.Later != 1 || c.Dependent != 1 {
		t.Errorf("counted %+v", c)
	}
	if c.Users["ann"] != 5 || c.Users["bob"] != 1 || c.HostMiB != 5000 {
		t.Errorf("counted %+v", c)
	}
	if !c.Oldest.Equal(since) {
		t.Errorf("the oldest waits since %v, want %v", c.Oldest, since)
	}
	if empty := newRig(t, 1).at().explain.Census(); empty.Queued+empty.Room != 0 || !empty.Oldest.IsZero() {
		t.Errorf("an empty queue: %+v", empty)
	}
}
