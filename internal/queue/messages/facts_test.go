package messages

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/queue/notify"
)

// rulesOf reads rules that are good.
func rulesOf(t *testing.T, list ...string) []notify.Rule {
	t.Helper()
	rules, err := notify.ParseRules(list)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// happened is an event of a job of ann's, with rules of its own.
func happened(kind job.EventKind, id string, outcome job.Outcome, text string, rules ...string) *job.Event {
	j := &job.Job{ID: id, User: "ann", UID: 1000, Spec: job.Spec{Name: "train", Notify: rules}, State: job.Running, Outcome: outcome}
	j.Attempt = job.Attempt{Number: 1, StartedAt: time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC), Grant: job.Grant{GPUs: []int{0, 1}}, PeakMiB: map[int]int64{0: 100, 1: 200}}
	if kind == job.EventEnded {
		j.State, j.EndedAt = outcome.State(), j.StartedAt.Add(time.Hour)
	}
	return &job.Event{At: j.StartedAt.Add(time.Hour), Kind: kind, Job: j, Text: text}
}

func TestWhichEventsAreTold(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		event *job.Event
		says  string // empty: nobody is told
	}{
		{"a start", happened(job.EventStarted, "17", "", "on GPU 0", "start:exec:a"), "train (17) started, GPU 0,1, peak 200 MiB"},
		{"a start that nobody asked for", happened(job.EventStarted, "17", "", "", "end,fail,oom,idle:exec:a"), ""},
		{"an end", happened(job.EventEnded, "17", job.OK, "", "end:exec:a"), "train (17) finished, ran 1h00m, GPU 0,1, peak 200 MiB"},
		{"a good end, where failures are asked for", happened(job.EventEnded, "17", job.OK, "", "fail,oom:exec:a"), ""},
		{"a failure", happened(job.EventEnded, "17", job.Exited(3), "", "fail:exec:a"), "train (17) failed with exit code 3"},
		{"a failure is an end", happened(job.EventEnded, "17", job.Exited(3), "", "end:exec:a"), "failed with exit code 3"},
		{"told once, whatever it is called", happened(job.EventEnded, "17", job.OOM, "", "end,fail,oom:exec:a"), "ran out of GPU memory"},
		{"a time limit", happened(job.EventEnded, "17", job.Timeout, "", "fail:exec:a"), "reached its time limit"},
		{"a cancellation is no failure", happened(job.EventEnded, "17", job.WasCancelled, "", "fail:exec:a"), ""},
		{"and an end", happened(job.EventEnded, "17", job.WasCancelled, "cancelled by bob", "end:exec:a"), "was cancelled, ran 1h00m, GPU 0,1, peak 200 MiB: cancelled by bob"},
		{"a dependency that failed", happened(job.EventEnded, "17", job.Depends, "job 3 failed", "fail:exec:a"), "was cancelled with a job it depends on"},
		{"a launch that may name files", happened(job.EventEnded, "17", job.Launch, "/home/ann/s3cret: no such file", "fail:exec:a"), "could not be started"},
		{"a retry without memory", happened(job.EventRetry, "17", "", job.OutOfMemory+"; retry 1 of 3", "oom:exec:a"), "ran out of GPU memory"},
		{"another retry", happened(job.EventRetry, "17", "", "exit:1; retry 1 of 3", "oom,fail,end:exec:a"), ""},
		{"a job that will be ended", happened(job.EventOveruse, "17", "", "it will be ended", "fail:exec:a"), "is about to be ended"},
		{"an idle job", happened(job.EventIdle, "17", "", "no use for 2h", "idle:exec:a"), "does not use its GPUs"},
		{"a park", happened(job.EventParked, "17", "", "", "start,end,fail,oom,idle:exec:a"), ""},
		{"none", happened(job.EventEnded, "17", job.Exited(1), "", "none"), ""},
		{"the user's rules", happened(job.EventEnded, "17", job.OK, ""), "train (17) finished"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPost(t)
			p.wishes = map[int][]notify.Rule{1000: rulesOf(t, "end:exec:default"), 1001: rulesOf(t, "end:exec:another")}
			p.later(time.Minute, true)
			p.commit(tt.event)
			said := p.later(time.Hour, true)
			if tt.says == "" {
				wantSaid(t, said)
				return
			}
			if len(said) != 1 || !strings.Contains(said[0], tt.says) || strings.Contains(said[0], "\n") || strings.Contains(said[0], "s3cret") {
				t.Errorf("%q, expected %q", said, tt.says)
			}
			wantSaid(t, p.later(48*time.Hour, true))
		})
	}
}

// TestAnArrayIsToldOnce: its ends are one message once the last task is over,
// through a kill in the middle; a failure is told soon.
func TestAnArrayIsToldOnce(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	p.alive = map[notify.Whole]bool{{Array: "17"}: true}
	p.later(time.Minute, true)
	task := func(i int, outcome job.Outcome) *job.Event {
		return happened(job.EventEnded, fmt.Sprintf("17_%d", i), outcome, "", "end,fail:exec:a")
	}
	var said []string
	for i := range 1000 {
		outcome := job.OK
		if i == 400 {
			outcome = job.Exited(1)
		}
		p.commit(task(i, outcome))
		if i%100 == 0 {
			said = append(said, p.later(10*time.Minute, true)...)
		}
		if i == 500 {
			p.killed()
		}
	}
	said = append(said, p.later(10*time.Minute, true)...)
	mine := said[:0]
	for _, s := range said {
		if !strings.Contains(s, "without being stopped") {
			mine = append(mine, s)
		}
	}
	wantSaid(t, mine, "train (17_400) failed")
	p.alive = nil // even if no event says so
	said = p.later(10*time.Minute, true)
	if len(said) != 1 || !strings.Contains(said[0], "and 980 more events: array train (17): 999 finished, 1 failed") || strings.Count(said[0], "train (17_400) failed") != 1 {
		t.Errorf("%q", said)
	}
}

func TestGivingUpIsReported(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	p.later(time.Minute, true)
	p.commit(happened(job.EventEnded, "17", job.OK, "", "end:exec:a"))
	p.later(48*time.Hour, false)
	if p.lost != 1 {
		t.Errorf("%d reports", p.lost)
	}
}

// TestTooManyMessagesAreNotDroppedInSilence: beyond the bound the oldest goes, and
// that is an event like giving up.
func TestTooManyMessagesAreNotDroppedInSilence(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	var log strings.Builder
	p.log = slog.New(slog.NewTextHandler(&log, nil))
	p.later(time.Minute, true)
	for i := range 250 {
		p.commit(happened(job.EventEnded, fmt.Sprint(i), job.OK, "", fmt.Sprintf("end:exec:%d", i)))
	}
	p.step(p.now)
	if n := strings.Count(log.String(), "dropped a message"); p.lost != 50 || n != 50 {
		t.Errorf("%d reports, %d lines", p.lost, n)
	}
}
