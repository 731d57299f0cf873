package batch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"berth/internal/cluster"
	"berth/internal/engine"
	"berth/internal/engine/running"
	"berth/internal/job"
	"berth/internal/jobfile"
	"berth/internal/machine"
	"berth/internal/problem"
	"berth/internal/reason"
	"berth/internal/sched"
	"berth/internal/store"
	"berth/internal/text"
)

// trimEvery bounds the events that wait in the store after they are in the
// journal.
const trimEvery = 1000

// How long the scheduler waits for a slow reader before it drops lines. A
// program that reads events gets more time than a terminal.
const (
	linePatience  = 250 * time.Millisecond
	eventPatience = time.Second
)

// snapshotEvery bounds how often the live view is computed.
const snapshotEvery = 200 * time.Millisecond

// session is one `berth run`, from reading the file to the summary.
type session struct {
	opt     Options
	layout  layout
	watcher *watcher
	sizes   string // the table of model sizes in use; empty: none
	file    jobfile.File
	allAway bool // every job of it runs on Slurm
	cpuJobs int  // its jobs without a GPU here
	machine *machine.Machine
	store   *store.Store // the machine's
	log     *slog.Logger // likewise
	engine  *engine.Engine
	cluster *cluster.Cluster
	tell    func([]job.Event) // passes events on to other processes; nil: none can ask
	cards   []int
	lastSeq int64

	queue    *queue
	screen   *screen
	narrator narrator
	journal  *journal
	trimmed  int64
	board    *board
	account  *account
	ended    []*job.Job // newest last, bounded
	orphans  []orphan   // of gpusched

	halt        halt
	interrupted int
	lost        error     // why the store is not this queue's any more
	stoppedAt   time.Time // when the last interrupt came
	asked       bool      // whether to stop the jobs, and not answered yet; for listen only
	hungUp      bool      // the terminal was closed while the session opened
	leaving     bool      // the queue is left to another berth
	left        tally     // what it had then
	successor   Successor // that berth, if this one started it
	returns     string    // the jobs file with which to come back
	warned      bool      // about a job that does not end
	drained     bool      // the wait for new lines was announced
	closed      bool
	abandoned   bool // the opening hangs and may still use the session
	shownAt     time.Time
	boardAt     time.Time
	changed     bool // since the board was written
	story       reason.Story
	storyAt     time.Time
}

// Run runs a jobs file and returns the exit status. It returns an error if no job
// was started, or berth itself had to give up.
func Run(ctx context.Context, opt Options) (int, error) {
	s := &session{opt: opt, queue: newQueue()}
	defer s.close()
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	if s.opt.Background != nil {
		s.opt.Background.Taken()
	}
	s.greet()
	if err := s.loop(ctx); err != nil {
		return 0, problem.Wrap(problem.Unable, "running jobs go on; fix this, then run the same command to adopt them", err)
	}
	if s.leaving {
		return s.parted(ctx)
	}
	return s.finish(), nil
}

// loop runs the engine until the queue is drained or the user stops it.
func (s *session) loop(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer s.openDoor()()
	go s.watch(ctx)
	go s.listen(ctx)
	var away sync.WaitGroup
	away.Go(func() { s.cluster.Run(ctx) })
	defer func() { cancel(); away.Wait() }()
	if s.screen.live {
		go s.animate(ctx)
	}
	err := s.engine.Run(ctx, s.machine.Runner.Events(), s.after)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// openDoor lets other processes ask about the queue. If it fails, the run goes on
// without it.
func (s *session) openDoor() (done func()) {
	if s.opt.Serve == nil {
		return func() {}
	}
	tell, done, err := s.opt.Serve(Door{Place: s.layout.place(), Machine: s.machine, Engine: s.engine})
	if err != nil {
		s.warn(fmt.Sprintf("berth list and berth logs cannot reach this run: %v", err))
		return func() {}
	}
	s.tell = tell
	return done
}

// watch looks at the jobs file once a poll, and updates the board: with nothing
// left to run, nothing else would.
func (s *session) watch(ctx context.Context) {
	ticker := time.NewTicker(s.opt.Poll)
	defer ticker.Stop()
	var next *jobfile.File // a version that waits for its code to be copied
	var tried time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		file, changed, complaint := s.watcher.look()
		if changed {
			next, tried = &file, time.Time{}
		}
		if changed = next != nil && time.Since(tried) > codeAgain; changed {
			if err := s.takeCode(ctx, next); err != nil {
				changed, tried, complaint = false, time.Now(), s.watcher.once(fmt.Sprintf("%v; keeping the last good queue", err))
			} else {
				file, next = *next, nil
			}
		}
		if complaint != "" {
			s.log.Warn("jobs file", "problem", complaint)
			s.engine.Do(ctx, func(*engine.Turn) { s.warn(complaint) })
		}
		if changed {
			s.engine.Do(ctx, func(t *engine.Turn) {
				s.log.Info("jobs file changed", "lines", len(file.Lines))
				boundMemory(len(file.Lines))
				s.queue.apply(file, requestsOf(t))
				s.keepNumbers()
				s.tendOrphans(t)
				s.sayNotes()
			})
		}
		s.engine.Do(ctx, s.refresh)
	}
}

// animate keeps the clock of the live view going.
func (s *session) animate(ctx context.Context) {
	ticker := time.NewTicker(snapshotEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.engine.Do(ctx, s.show)
		}
	}
}

// publish receives all events, in order, once they are durable.
func (s *session) publish(events []job.Event) {
	s.changed = true
	if s.tell != nil {
		s.tell(events)
	}
	var lines []string
	for _, ev := range events {
		s.queue.follow(ev)
		if ev.Kind != job.EventQueued {
			s.account.follow(ev, s.opt.Tolerance)
			s.log.Debug("event", "seq", ev.Seq, "kind", ev.Kind, "text", ev.Text)
		}
		if ev.Kind == job.EventEnded {
			s.remember(ev.Job)
		}
		if ev.Kind == job.EventStarted && s.opt.AsGpusched {
			if err := s.layout.linkLog(ev.Job); err != nil {
				s.log.Warn("name a log as gpusched does", "err", err)
			}
		}
		if s.opt.JSON {
			s.emit(toRecord(ev))
			continue
		}
		lines = append(lines, s.narrator.lines(ev, s.queue.begun, s.queue.total)...)
	}
	if len(lines) > 0 {
		s.screen.print(lines...)
	}
	s.keep(events)
}

// remember puts an ended job on the board, in place of the oldest.
func (s *session) remember(j *job.Job) {
	s.ended = append(s.ended, j)
	if len(s.ended) > 2*boardEnded {
		s.ended = append([]*job.Job(nil), s.ended[len(s.ended)-boardEnded:]...)
	}
}

// keep brings the journal up to date.
func (s *session) keep(events []job.Event) {
	err := error(nil)
	if s.journal.behind {
		err = s.journal.catchUp(s.store)
	} else {
		err = s.journal.append(events)
	}
	if err != nil {
		s.log.Error("journal", "err", err)
		return
	}
	if s.journal.last-s.trimmed >= trimEvery {
		s.trimmed = s.journal.last
		if err := s.store.TrimEvents(s.trimmed); err != nil {
			s.log.Error("trim events", "err", err)
		}
	}
}

// after ends the loop when there is nothing left to do.
func (s *session) after(t *engine.Turn) bool {
	queued, running := t.Explain().Live()
	// While jobs run or wait, times and measurements change without an event,
	// and the board has to show it.
	if (s.changed || queued+running > 0) && t.Now.Sub(s.boardAt) >= s.opt.Poll {
		s.writeBoard(t)
	}
	if s.leaving {
		return true
	}
	if s.interrupted > 0 {
		return t.Supervised() == 0 || s.givenUp(t)
	}
	if t.Lost() != nil {
		s.lost = t.Lost()
		return running == 0
	}
	// If the disk is full the last ends may not be stored yet, so the exit
	// status is not known yet.
	idle := queued == 0 && running == 0 && t.Written()
	if grows := s.opt.Watch && s.watcher.canGrow(); !idle || !grows {
		s.drained = false
		return idle
	}
	if !s.drained {
		s.drained = true
		s.say("queue drained — watching jobs file for new lines (Ctrl-C to stop)")
	}
	return false
}

// refresh looks after what has no events of its own, and writes the board if
// something changed.
func (s *session) refresh(t *engine.Turn) {
	s.tendOrphans(t)
	if s.narrator.theirs != nil {
		for _, r := range t.Running().List() {
			if lines := s.narrator.signals(r.Job, t.Now); len(lines) > 0 {
				s.screen.print(lines...)
			}
		}
	}
	if s.changed {
		s.writeBoard(t)
	}
}

func (s *session) writeBoard(t *engine.Turn) {
	s.boardAt, s.changed = t.Now, false
	if err := s.board.write(s.snapshot(t, boardPending)); err != nil {
		s.log.Error("board", "err", err)
	}
}

func (s *session) show(t *engine.Turn) {
	if t.Now.Sub(s.shownAt) < snapshotEvery/2 {
		return
	}
	s.shownAt = t.Now
	snap := s.snapshot(t, 1)
	s.screen.show(&snap)
	// Elapsed times on the board change while something runs.
	s.changed = s.changed || len(snap.running) > 0
}

func (s *session) snapshot(t *engine.Turn, pending int) snapshot {
	snap := snapshot{
		at: t.Now, file: s.opt.File, tally: s.queue.counts, total: s.queue.total,
		cards: t.Cards().List(), running: append(t.Running().List(), running.Elsewhere(t.Remote().Running())...), paused: t.Explain().Blocked(),
		pending: s.waiting(t, pending), began: s.account.began,
	}
	for i := len(s.ended) - 1; i >= 0 && len(snap.ended) < boardEnded; i-- {
		snap.ended = append(snap.ended, s.ended[i])
	}
	return snap
}

// waiting are the first queued jobs, each with the reason it waits.
func (s *session) waiting(t *engine.Turn, most int) []waitingJob {
	jobs := t.Explain().Next(most)
	ids := make([]string, len(jobs))
	for i, j := range jobs {
		ids[i] = j.ID
	}
	list := make([]waitingJob, len(jobs))
	stories := s.stories(t, ids)
	for i, j := range jobs {
		list[i] = waitingJob{job: j}
		if story := stories[i]; story.ID != "" && !t.Stopping() {
			story.WasPreempted(j.PreemptedFor)
			list[i].reason = story.String()
		} else {
			list[i].reason = t.Explain().Why(j.ID)
		}
	}
	return list
}

// storyAge is how long the live view, which is drawn often, reuses the reason of
// the next job.
const storyAge = time.Second

// stories are the reasons of the jobs; that of a single job is cached.
func (s *session) stories(t *engine.Turn, ids []string) []reason.Story {
	if len(ids) == 1 && s.story.ID == ids[0] && t.Now.Sub(s.storyAt) < storyAge && !t.Now.Before(s.storyAt) {
		return []reason.Story{s.story}
	}
	stories := sched.Stories(t.Explain().State(), ids)
	if len(stories) > 0 {
		s.story, s.storyAt = stories[0], t.Now
	}
	return stories
}

// say prints a notice of berth's own.
func (s *session) say(notice string) {
	if s.opt.Quiet {
		return
	}
	now := time.Now()
	if s.opt.JSON {
		s.emit(record{Time: now, Event: job.EventNotice, Text: notice})
		return
	}
	s.screen.print(s.narrator.wrap(text.Plain, stamp(now, text.Line(notice)))...)
}

// sayNotes says what there is to say about the lines of a new version of the file.
func (s *session) sayNotes() {
	notes := s.queue.notes
	if s.queue.notes = nil; s.opt.AsGpusched {
		return
	}
	for i, note := range notes {
		if i == maxNamed {
			s.say(fmt.Sprintf("and %s more", text.Count(len(notes)-i, "note")))
			return
		}
		s.say(note)
	}
}

// warn prints a warning of berth's own.
func (s *session) warn(warning string) {
	now := time.Now()
	if s.opt.JSON {
		s.emit(record{Time: now, Event: job.EventWarning, Text: warning})
		return
	}
	s.screen.print(s.narrator.warn(now, text.Line(warning))...)
}

// emit writes one JSON line on stdout.
func (s *session) emit(r any) { s.screen.print(s.encode(r)...) }

func (s *session) encode(r any) []string {
	line, err := encodeLine(r)
	if err != nil {
		s.log.Error("encode event", "err", err)
		return nil
	}
	return []string{string(line)}
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

// finish prints the summary and returns the exit status.
func (s *session) finish() int {
	now := time.Now()
	s.removeCode(context.Background())
	s.engine.Outside(now, s.writeBoard)
	status, outcomes := s.queue.status()
	if s.lost != nil {
		status = max(status, problem.Unable.ExitStatus())
	}
	if s.interrupted > 0 {
		status = problem.Interrupted.ExitStatus()
	}
	if s.opt.JSON {
		s.screen.finish(s.encode(summaryRecord(now, s.account, s.queue.counts, status))...)
		return status
	}
	var lines []string
	for _, line := range s.account.lines(now, s.queue.counts, outcomes) {
		lines = append(lines, s.narrator.wrap(text.Plain, line)...)
	}
	if s.narrator.theirs != nil {
		lines = append(s.narrator.theirs.summary(now), lines...)
	} else if s.interrupted > 0 && s.queue.counts.queued > 0 {
		lines = append(lines, "run the same command to continue")
	}
	s.screen.finish(lines...)
	return status
}

// close releases everything; running jobs stay running.
func (s *session) close() {
	if s.abandoned || s.closed {
		return
	}
	s.closed = true
	if s.screen != nil {
		s.screen.finish()
	}
	if s.journal != nil {
		if err := s.journal.Close(); err != nil {
			s.log.Warn("close", "err", err)
		}
	}
	if s.machine != nil {
		s.unmark()
		s.machine.Close()
	}
}
