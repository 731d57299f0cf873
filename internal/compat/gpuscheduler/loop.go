package gpuscheduler

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"berth/internal/api"
	"berth/internal/compat/frontend"
	"berth/internal/job"
	"berth/internal/queue/batch"
	"berth/internal/text"
)

// tickEvery is how often files are checked, which is cheap. The intervals of the
// flags are upper bounds for noticing a change.
const tickEvery = 500 * time.Millisecond

// follow is the loop: it receives events of jobs and GPUs and synchronises the
// files with the daemon.
func (s *scheduler) follow(ctx context.Context, typed <-chan os.Signal, passed chan<- os.Signal, done <-chan error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := make(chan api.Event, 256)
	s.streams.wait.Go(func() {
		defer close(events)
		// -1: only new events; the jobs are listed once the stream has begun.
		err := s.client.Events(ctx, api.EventQuery{Since: -1, GPUs: true}, func(ev api.Event) error {
			select {
			case events <- ev:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		if err != nil && ctx.Err() == nil {
			s.log.warn("lost the connection to the daemon's events: %v", err)
		}
	})
	ticker := time.NewTicker(min(tickEvery, s.opt.monitorEvery, s.opt.stateEvery))
	defer ticker.Stop()
	for {
		select {
		case err := <-done:
			s.drain(ctx, events)
			return err
		case sig := <-typed:
			s.stop(sig)
			passed <- sig
		case ev, open := <-events:
			if !open {
				events = nil
				continue
			}
			s.hear(ctx, ev)
		case <-ticker.C:
			s.tick(ctx)
		}
	}
}

// drain handles the events sent before the daemon ended.
func (s *scheduler) drain(ctx context.Context, events <-chan api.Event) {
	for {
		select {
		case ev, open := <-events:
			if !open {
				return
			}
			s.hear(ctx, ev)
		default:
			return
		}
	}
}

func (s *scheduler) stop(sig os.Signal) {
	running := 0
	for _, v := range s.index.views {
		if v.State == job.Running {
			running++
		}
	}
	switch {
	case s.opt.screen && running > 0:
		s.log.info("%v: stopping; the screen sessions of %s continue, and the next start finds them", sig, text.Count(running, "running job"))
	case running > 0 && !s.stopping:
		s.log.info("%v: stopping %s, to run again at the next start (once more: without waiting)", sig, text.Count(running, "running job"))
	case !s.stopping:
		s.log.info("%v: stopping", sig)
	default: // a full disk prevents their end from being recorded
		s.log.info("%v: not waiting for jobs (once more: exits, and leaves the jobs to the next start)", sig)
	}
	s.stopping = true
}

func (s *scheduler) hear(ctx context.Context, ev api.Event) {
	switch {
	case ev.Kind == job.EventGPUs:
		s.index.cards = ev.GPUs
		if !s.ready {
			s.begin(ctx)
		}
	case ev.Job != nil:
		s.happened(ctx, ev)
	case ev.Kind == job.EventCard && ev.By != "":
		s.log.info("%s", ev.Text) // paused or resumed by a person
		s.index.changed = true
	case ev.Kind == job.EventWarning || ev.Kind == job.EventGPUsLost || ev.Kind == job.EventCard:
		s.log.warn("%s", ev.Text)
	}
}

// begin takes over the jobs of an earlier scheduler.
func (s *scheduler) begin(ctx context.Context) {
	_, err := s.client.JobsAll(ctx, api.Query{Select: api.Select{All: true}, Over: true}, func(v job.View) error {
		s.index.put(v)
		return nil
	})
	if err != nil {
		s.log.warn("list the jobs of an earlier start: %v", err)
		return // tried again with the next GPU event
	}
	s.ready, s.looked = true, time.Now()
	s.sayUnsaved(s.mirror.takeOver(ctx))
	s.sayBegun()
	for _, v := range s.index.all() {
		since := func(at *time.Time) bool { return at != nil && !at.Before(s.began) }
		switch {
		case since(v.StartedAt): // before the stream of events began
			s.started(ctx, v)
			if v.State.Terminal() {
				s.ended(ctx, v)
			}
		case v.State == job.Running:
			s.log.info("job %s is still running on gpu %s", jobID(v), text.Numbers(v.GPUIDs))
			s.streams.show(ctx, v, true)
		case v.State.Terminal() && since(v.EndedAt):
			s.ended(ctx, v)
		case v.State == job.Failed:
			s.retries.consider(ctx, v, false)
		}
	}
	s.tick(ctx)
}

// first reports whether this is logged for the first time for an attempt.
func (s *scheduler) first(v job.View, what string) bool {
	key := fmt.Sprintf("%s/%d/%s", v.ID, v.Attempt, what)
	defer func() { s.reported[key] = true }()
	return !s.reported[key]
}

func (s *scheduler) started(ctx context.Context, v job.View) {
	if s.first(v, "started") {
		s.log.info("job %s started on gpu %s: %s (%s)", jobID(v), text.Numbers(v.GPUIDs), commandOf(v), s.whereToLook(v))
		s.streams.show(ctx, v, false)
	}
}

func (s *scheduler) ended(ctx context.Context, v job.View) {
	if s.first(v, "ended") {
		s.streams.after(v.ID, func() { s.sayEnd(v) })
		s.retries.consider(ctx, v, true)
	}
}

func (s *scheduler) sayBegun() {
	running, queued, finished, failed := 0, 0, 0, 0
	for _, v := range s.index.views {
		switch {
		case v.StartedAt != nil && v.StartedAt.Before(s.began) && !v.State.Terminal():
			running++
		case v.State == job.Queued || v.StartedAt != nil && !v.StartedAt.Before(s.began):
			queued++
		case forgotten(v, s.index.since):
		case v.State == job.Finished:
			finished++
		case v.State == job.Failed:
			failed++
		}
	}
	s.log.info("scheduler started: %s, jobs file %s, state file %s", text.Count(len(s.index.cards), "GPU"), cmp.Or(s.opt.jobsFile, "none"), s.opt.stateFile)
	if running+queued+finished+failed > 0 {
		s.log.info("from before: %d running, %d queued, %d succeeded, %d failed", running, queued, finished, failed)
	}
}

// happened logs an event of a job and acts on it.
func (s *scheduler) happened(ctx context.Context, ev api.Event) {
	v := *ev.Job
	s.index.put(v)
	if !s.ready {
		return // begin lists all jobs
	}
	id := jobID(v)
	switch ev.Kind {
	case job.EventStarted:
		s.started(ctx, v)
	case job.EventEnded:
		s.ended(ctx, v)
	case job.EventRequeued, job.EventRetry, job.EventPreempted:
		delete(s.index.retries, v.ID)
		s.streams.after(v.ID, func() { s.log.info("job %s is requeued: %s", id, ev.Text) })
	case job.EventWarning, job.EventExceeds, job.EventOveruse, job.EventIdle:
		s.log.warn("job %s: %s", id, ev.Text)
	}
}

// whereToLook says where a job's output is.
func (s *scheduler) whereToLook(v job.View) string {
	where := "log " + frontend.Value(v.Log)
	if words := strings.Fields(frontend.Value(v.Command)); s.opt.screen && len(words) > 3 && words[1] == ScreenWord {
		where = "screen -r " + sessionName(text.Numbers(slices.Sorted(slices.Values(v.GPUIDs))), words[2], words[3]) + ", " + where
	}
	return where
}

// sayEnd logs how a job ended, and after a failure its last line of output.
func (s *scheduler) sayEnd(v job.View) {
	if v.State == job.Finished {
		s.log.info("job %s finished on gpu %s", jobID(v), text.Numbers(v.GPUIDs))
		return
	}
	text := fmt.Sprintf("job %s failed: %s", jobID(v), outcomeOf(v))
	if said := batch.LastLines(frontend.Value(v.Log)); len(said) > 0 {
		text += "; last output: " + strings.TrimSpace(said[len(said)-1])
	}
	s.log.fail("%s", text)
}

// outcomeOf is how a job ended, in words.
func outcomeOf(v job.View) string {
	text := string(v.State)
	if v.Outcome != nil {
		text = string(*v.Outcome)
	}
	if v.Reason != nil && *v.Reason != "" {
		text += " (" + *v.Reason + ")"
	}
	return text
}

// tick checks the files, retries jobs that are due, and explains waits.
func (s *scheduler) tick(ctx context.Context) {
	if !s.ready {
		return
	}
	now := time.Now()
	s.sayUnsaved(s.mirror.sync(ctx, now))
	if s.stopping {
		return
	}
	s.feed.look(ctx, now)
	for _, id := range s.retries.due(ctx, now) {
		delete(s.reasons, id)
	}
	s.explain(ctx, now)
}

func (s *scheduler) sayUnsaved(err error) {
	if err != nil && !s.stopping { // a stopping daemon does not answer; lastSave follows
		s.log.warnOnce("cannot write the state file: %v", err)
	}
}

// explainEvery is how often waits are explained, and explainMost for how many
// jobs at a time.
const (
	explainEvery = 2 * time.Second
	explainMost  = 20
)

// explain logs once, for each job at the head of the queue, why it waits.
func (s *scheduler) explain(ctx context.Context, now time.Time) {
	if now.Sub(s.looked) < explainEvery {
		return
	}
	s.looked = now
	page, err := api.Call(ctx, s.client, api.ListJobs, api.Query{Select: api.Select{States: []string{"queued"}}, Reasons: true, Limit: explainMost})
	if err != nil {
		return
	}
	for _, v := range page.Jobs {
		if v.Reason == nil || s.reasons[v.ID] {
			continue
		}
		s.reasons[v.ID] = true
		s.log.info("job %s waits: %s", jobID(v), inItsIDs(*v.Reason, s.index.views))
	}
}
