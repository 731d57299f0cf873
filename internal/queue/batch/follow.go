package batch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// How long the output waits for a slow reader before it drops lines. A program that
// reads events gets more time than a terminal.
const (
	linePatience  = 250 * time.Millisecond
	eventPatience = time.Second
)

// lingerTime is how long a run waits for its own queue to end.
const lingerTime = 20 * time.Second

// follower is one `berth run`, from reading the file to the summary: it makes a
// queue match the file, and tells what becomes of the jobs.
type follower struct {
	opt     Options
	link    *Link
	batch   string // the file as the queue knows it
	watcher *watcher
	sizes   string // the table of model sizes in use; empty: none
	file    jobfile.File
	specs   map[string]*job.Spec // of the jobs, by id; only for gpusched's words
	cards   int

	queue    *jobList
	screen   *screen
	narrator narrator
	account  *account
	view     view
	events   chan api.Event
	streamed chan error // why the stream of events has ended
	hush     func()     // ends it

	stop    stop
	drained bool            // the wait for new lines was announced
	lost    bool            // the queue has ended by itself
	notes   map[string]bool // those on lines that were said
}

// Run runs a jobs file and returns the exit status. It returns an error if no job
// was started, or berth itself had to give up.
func Run(ctx context.Context, opt Options) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f := &follower{opt: opt, queue: newJobList(), events: make(chan api.Event, 256), streamed: make(chan error, 1), notes: map[string]bool{}}
	f.openScreen()
	defer f.screen.finish()
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
		return f.parted()
	}
	return f.finish(), nil
}

// loop follows the jobs until all have ended or the user stops it.
func (f *follower) loop(ctx context.Context) error {
	poll := time.NewTicker(f.opt.Poll)
	defer poll.Stop()
	draw := time.NewTicker(drawEvery)
	defer draw.Stop()
	if !f.screen.live {
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
			f.obey(ctx, sig)
		case key := <-f.opt.Keyboard:
			f.press(ctx, key)
		case <-poll.C:
			f.look(ctx)
			f.stop.remind(f)
		case <-draw.C:
			f.draw(ctx)
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
	idle := f.queue.counts.queued+f.queue.counts.running == 0
	if grows := f.opt.Watch && f.watcher.canGrow(); !idle || !grows {
		f.drained = false
		return idle
	}
	if !f.drained {
		f.drained = true
		f.say("queue drained — watching jobs file for new lines (Ctrl-C to stop)")
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
	if f.stop.asked == 0 {
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
	if event.Job != nil && !f.mine(event.Job) {
		return
	}
	ev := eventOf(&event, f.specs)
	f.view.stale = true
	if ev.Job != nil {
		f.view.add(ev.Job)
	}
	f.queue.follow(ev)
	if ev.Kind != job.EventQueued {
		f.account.follow(ev, f.opt.Tolerance)
	}
	if f.opt.JSON {
		f.emit(event)
		return
	}
	f.screen.print(f.narrator.lines(ev, f.queue.begun, f.queue.total)...)
}

// all reports whether all jobs of the queue are this run's: it has started it.
func (f *follower) all() bool { return f.link.Own != nil && !f.link.Own.Joined }

// mine reports whether a job is one of this run's.
func (f *follower) mine(v *job.View) bool {
	return f.all() || v.Batch != nil && *v.Batch == f.batch
}

// look looks at the jobs file.
func (f *follower) look(ctx context.Context) {
	file, changed, complaint := f.watcher.look()
	if changed {
		if err := f.send(ctx, file, false); err != nil {
			complaint = f.watcher.once(fmt.Sprintf("%v; keeping the last good queue", err))
		}
	}
	if complaint != "" {
		f.warn(complaint)
	}
	if f.narrator.theirs != nil {
		for _, r := range f.view.jobs {
			f.screen.print(f.narrator.signals(r, time.Now())...)
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
		if f.specs != nil {
			f.specs[j.ID] = &file.Lines[i].Spec
		}
		if j.Again {
			f.queue.again(j.ID)
		}
	}
	f.queue.take(ids)
	f.drained = f.drained && f.queue.counts.queued == 0
	for _, note := range f.remarks(file, reply) {
		f.say(note)
	}
	return nil
}

// remarks are the notes on lines that were not said before.
func (f *follower) remarks(file jobfile.File, reply api.SubmitReply) (notes []string) {
	if f.opt.AsGpusched {
		return nil
	}
	for i, line := range file.Lines {
		said := appendSome(nil, line.Note)
		said = append(said, reply.Jobs[i].Notes...)
		for _, note := range said {
			if key := line.Key + note; !f.notes[key] {
				f.notes[key] = true
				notes = append(notes, fmt.Sprintf("line %d: %s", line.Number, note))
			}
		}
	}
	if more := len(notes) - maxNamed; more > 0 {
		notes = append(notes[:maxNamed], fmt.Sprintf("and %s more", text.Count(more, "note")))
	}
	return notes
}

// say prints a notice of berth's own.
func (f *follower) say(notice string) {
	if f.opt.Quiet {
		return
	}
	now := time.Now()
	if f.opt.JSON {
		f.emit(record{Time: now, Event: job.EventNotice, Text: notice})
		return
	}
	f.screen.print(f.narrator.wrap(text.Plain, stamp(now, text.Line(notice)))...)
}

// warn prints a warning of berth's own.
func (f *follower) warn(warning string) {
	now := time.Now()
	if f.opt.JSON {
		f.emit(record{Time: now, Event: job.EventWarning, Text: warning})
		return
	}
	f.screen.print(f.narrator.warn(now, text.Line(warning))...)
}

// emit writes one JSON line on stdout.
func (f *follower) emit(r any) {
	line, err := encodeLine(r)
	if err != nil {
		panic("bug: " + err.Error())
	}
	f.screen.print(string(line))
}

// missedEvents replaces dropped events in --json.
func missedEvents(missed int) string {
	line, err := encodeLine(record{Time: time.Now(), Event: job.EventWarning,
		Text: fmt.Sprintf("%s not shown because the output was not read; journal.jsonl has all stored events", text.Count(missed, "line"))})
	if err != nil {
		panic("bug: " + err.Error())
	}
	return string(line)
}

func (f *follower) openScreen() {
	f.screen = &screen{
		out: f.opt.Out, live: f.opt.Terminal && !f.opt.JSON && !f.opt.Quiet, colour: f.opt.Colour && !f.opt.JSON,
		width: f.opt.Width, height: f.opt.Height, patience: linePatience,
	}
	if f.opt.JSON {
		f.screen.patience, f.screen.notice = eventPatience, missedEvents
	}
	f.narrator = narrator{
		tolerance: f.opt.Tolerance, verbose: f.opt.Verbose, quiet: f.opt.Quiet, paint: painter(f.screen.colour),
		dir: f.opt.Dir, exists: isThere, tail: tailOfLog,
	}
	if f.opt.Terminal && !f.opt.AsGpusched {
		f.narrator.width = f.opt.Width
	}
}

// finish prints the summary and returns the exit status.
func (f *follower) finish() int {
	now := time.Now()
	status, outcomes := f.queue.status()
	if f.stop.asked > 0 || f.stop.cancelled {
		status = problem.Interrupted.ExitStatus()
	}
	if f.opt.JSON {
		f.emit(summaryRecord(now, f.account, f.queue.counts, status))
		return status
	}
	var lines []string
	for _, line := range f.account.lines(now, f.queue.counts, outcomes) {
		lines = append(lines, f.narrator.wrap(text.Plain, line)...)
	}
	if f.narrator.theirs != nil {
		lines = append(f.narrator.theirs.summary(now), lines...)
	} else if f.stop.asked > 0 && f.queue.counts.queued > 0 {
		lines = append(lines, "run the same command to continue")
	}
	f.screen.finish(lines...)
	return status
}

var errInterrupted = errors.New("interrupted before any job was started")
