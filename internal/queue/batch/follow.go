package batch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/text/problem"
)

// lingerTime is how long a run waits for its own queue to end.
const lingerTime = 20 * time.Second

// follower is one `berth run`, from reading the file to the summary: it makes a
// queue match the file, and tells what becomes of the jobs.
type follower struct {
	opt      Options
	link     *Link
	batch    string // the file as the queue knows it
	source   *Source
	voice    *voice
	jobs     *jobList
	specs    map[string]*job.Spec // of the jobs, by id; only for gpusched's words
	cards    int
	account  *account
	view     view
	events   chan api.Event
	streamed chan error // why the stream of events has ended
	hush     func()     // ends it
	missed   missed

	stop    stop
	drained bool // the wait for new lines was announced
	lost    bool // the queue has ended by itself
}

func newFollower(opt Options) *follower {
	f := &follower{opt: opt, voice: newVoice(&opt), jobs: newJobList(), events: make(chan api.Event, 256), streamed: make(chan error, 1)}
	f.source = NewSource(&f.opt, f.opt.place)
	return f
}

// Run runs a jobs file and returns the exit status. It returns an error if no job
// was started, or berth itself had to give up.
func Run(ctx context.Context, opt Options) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f := newFollower(opt)
	defer f.voice.screen.finish()
	status, err := f.run(ctx)
	if f.link != nil && f.link.Own != nil && !f.stop.left {
		cancel() // the stream ends
		f.link.Own.Leave()
		select {
		case <-f.link.Own.Ended:
		case <-time.After(lingerTime): // somebody else follows it
		}
	}
	return status, err
}

func (f *follower) run(ctx context.Context) (int, error) {
	if err := f.begin(ctx); err != nil {
		return 0, err
	}
	if err := f.loop(ctx); err != nil {
		return 0, err
	}
	if f.stop.left {
		return f.stop.parted(f)
	}
	return f.finish(), nil
}

// loop follows the jobs until all have ended or the user stops it.
func (f *follower) loop(ctx context.Context) error {
	poll := time.NewTicker(f.opt.Poll)
	defer poll.Stop()
	draw := time.NewTicker(drawEvery)
	defer draw.Stop()
	if !f.voice.screen.live {
		draw.Stop()
	}
	for !f.over() {
		select {
		case ev := <-f.events:
			f.hear(ev)
		case err := <-f.streamed:
			if err := f.cutOff(ctx, err); err != nil {
				return err
			}
		case sig := <-f.opt.Signals:
			f.stop.obey(ctx, f, sig)
		case key := <-f.opt.Keyboard:
			f.stop.press(ctx, f, key)
		case <-poll.C:
			f.look(ctx)
			f.stop.remind(f)
		case <-draw.C:
			f.view.draw(ctx, f)
		}
	}
	return nil
}

// over reports whether there is nothing left to follow.
func (f *follower) over() bool {
	if len(f.events) > 0 && !f.stop.left {
		return false
	}
	if f.stop.left || f.lost {
		return true
	}
	if f.stop.asked > 0 && f.link.Own != nil {
		return false // until the queue has ended
	}
	idle := f.jobs.counts.queued+f.jobs.counts.running == 0
	if grows := f.opt.Watch && f.source.canGrow(); !idle || !grows {
		f.drained = false
		return idle
	}
	if !f.drained {
		f.drained = true
		f.voice.say("queue drained — watching jobs file for new lines (Ctrl-C to stop)")
	}
	return false
}

// listen receives events until the queue ends.
func (f *follower) listen(ctx context.Context, link *Link, events chan<- api.Event, streamed chan<- error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if link.Own != nil {
		link.Client.OnRetry = func(error) {
			if !api.Listening(ctx, link.Client.Place()) {
				cancel() // it has ended
			}
		}
	}
	link.Client.OnStream = func(again bool) {
		if again || link.Since < 0 {
			f.missed.maybe.Store(true)
		}
	}
	query := api.EventQuery{Since: link.Since}
	streamed <- link.Client.Events(ctx, query, func(ev api.Event) error {
		select {
		case events <- ev:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// cutOff deals with the end of the stream: that of an own queue ends with it.
func (f *follower) cutOff(ctx context.Context, err error) error {
	if f.link.Own == nil || problem.KindOf(err) != "" {
		return problem.Wrap(problem.Unable, "the jobs go on; run the same command to come back to them", err)
	}
	for len(f.events) > 0 {
		f.hear(<-f.events)
	}
	f.lost = true
	if f.stop.asked == 0 && !f.missed.settled(ctx, f) {
		return f.ended()
	}
	return nil
}

// ended is the problem where an own queue has ended before its jobs.
func (f *follower) ended() error {
	if own := f.link.Own; own.Failed != nil {
		<-own.Ended
		if why := own.Failed(); why != nil {
			return why
		}
	}
	return problem.Newf(problem.Unable, "running jobs go on; fix this, then run the same command to adopt them", "the queue in %s has ended; its berth.log says why", f.opt.LogDir)
}

// hear takes in an event.
func (f *follower) hear(event api.Event) {
	if event.Job != nil && (!f.mine(event.Job) || f.jobs.knows(&event)) {
		return
	}
	ev := eventOf(&event, f.specs)
	f.view.stale = true
	if ev.Job != nil {
		f.view.add(ev.Job)
	}
	f.jobs.follow(ev)
	if ev.Kind != job.EventQueued {
		f.account.follow(ev, f.opt.Tolerance)
	}
	f.voice.narrate(&event, ev, f.jobs.begun, f.jobs.total)
}

// mine reports whether a job is one of this run's.
func (f *follower) mine(v *job.View) bool {
	return f.link.all() || v.Batch != nil && *v.Batch == f.batch || f.jobs.byID[v.ID] != nil
}

// look looks at the jobs file, and at the jobs if an event may have been missed.
func (f *follower) look(ctx context.Context) {
	f.missed.look(ctx, f)
	file, changed, complaint := f.source.Look()
	if changed {
		if err := f.send(ctx, file, false); err != nil {
			complaint = f.source.once(fmt.Sprintf("%v; keeping the last good queue", err))
		}
	}
	if complaint != "" {
		f.voice.warn(complaint)
	}
	if f.voice.narrator.theirs != nil {
		for _, r := range f.view.jobs {
			f.voice.screen.print(f.voice.narrator.signals(r, time.Now())...)
		}
	}
}

// send makes the queue match a version of the file.
func (f *follower) send(ctx context.Context, file jobfile.File, first bool) error {
	if f.stop.asked > 0 {
		return nil
	}
	reply, err := f.link.Send(ctx, file.Lines, first, false)
	if err != nil {
		return err
	}
	ids := make([]string, len(reply.Jobs))
	for i, j := range reply.Jobs {
		ids[i] = j.ID
		if f.jobs.byID[j.ID] == nil && first && !f.link.all() && j.State != "" { // an older berth's job, which names no file
			f.jobs.remember(&job.Job{ID: j.ID, State: job.State(j.State), Outcome: job.Outcome(j.Reason)})
		}
		if f.specs != nil {
			f.specs[j.ID] = &file.Lines[i].Spec
		}
		if j.Again {
			f.jobs.again(j.ID)
		}
	}
	f.jobs.take(ids)
	f.drained = f.drained && f.jobs.counts.queued == 0
	if !f.opt.AsGpusched {
		for _, note := range f.voice.remarks(file, reply) {
			f.voice.say(note)
		}
	}
	return nil
}

// finish prints the summary and returns the exit status.
func (f *follower) finish() int {
	now := time.Now()
	status, outcomes := f.jobs.status()
	if f.stop.asked > 0 || f.stop.cancelled {
		status = problem.Interrupted.ExitStatus()
	}
	if f.opt.JSON {
		f.voice.emit(summaryRecord(now, f.account, f.jobs.counts, status))
		return status
	}
	lines := f.voice.wrapped(f.account.lines(now, f.jobs.counts, outcomes))
	if f.voice.narrator.theirs != nil {
		lines = append(f.voice.narrator.theirs.summary(now), lines...)
	} else if f.stop.asked > 0 && f.jobs.counts.queued > 0 {
		lines = append(lines, "run the same command to continue")
	}
	f.voice.screen.finish(lines...)
	return status
}

var errInterrupted = errors.New("interrupted before any job was started")
