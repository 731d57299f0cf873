package batch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"berth/internal/engine"
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

// How long the scheduler waits for a reader that is behind before lines go
// missing. A program that reads events is given more time than a person.
const (
	linePatience  = 250 * time.Millisecond
	eventPatience = time.Second
)

// snapshotEvery bounds how often the live view is computed.
const snapshotEvery = 200 * time.Millisecond

// session is one `berth run`, from the first look at the file to the summary.
type session struct {
	opt     Options
	layout  layout
	watcher *watcher
	sizes   string // the table of model sizes that was read; empty: none
	file    jobfile.File
	machine *machine.Machine
	store   *store.Store // the machine's
	log     *slog.Logger // likewise
	engine  *engine.Engine
	cards   []int
	lastSeq int64

	queue    *queue
	screen   *screen
	narrator narrator
	journal  *journal
	trimmed  int64
	board    *board
	account  *account
	over     []*job.Job // newest last, bounded

	interrupted int
	asked       time.Time // when the last interrupt came
	talked      bool      // about a job that does not end
	abandoned   bool      // the opening hangs, and may still use all of this
	shownAt     time.Time
	boardAt     time.Time
	changed     bool // since the board was written
	retold      reason.Story
	retoldAt    time.Time
}

// Run runs a jobs file and returns the exit status. An error it returns is a
// problem: nothing was started, or berth itself had to give up.
func Run(ctx context.Context, opt Options) (int, error) {
	s := &session{opt: opt, queue: newQueue()}
	defer s.close()
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	s.greet()
	if err := s.loop(ctx); err != nil {
		return 0, problem.Wrap(problem.Unable, "running jobs go on; the same command adopts them once this is mended", err)
	}
	return s.finish(), nil
}

// loop runs the engine until the queue is drained or the user stops it.
func (s *session) loop(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go s.watch(ctx)
	go s.listen(ctx)
	if s.screen.live {
		go s.animate(ctx)
	}
	err := s.engine.Run(ctx, s.machine.Runner.Events())
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// watch looks at the jobs file once a poll, and lets the board follow what
// happened since the last one: with nothing left to do, nothing else would.
func (s *session) watch(ctx context.Context) {
	ticker := time.NewTicker(s.opt.Poll)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		file, changed, complaint := s.watcher.look()
		if complaint != "" {
			s.log.Warn("jobs file", "problem", complaint)
			s.engine.Do(ctx, func(*engine.Turn) { s.say("WARN " + complaint) })
		}
		if changed {
			s.engine.Do(ctx, func(t *engine.Turn) {
				s.log.Info("jobs file changed", "lines", len(file.Lines))
				boundMemory(len(file.Lines))
				s.queue.apply(file, t)
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

// publish is told of everything that happened, in order, after it is durable.
func (s *session) publish(events []job.Event) {
	s.changed = true
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
		if s.opt.JSON {
			s.emit(toRecord(ev))
			continue
		}
		if line := s.narrator.line(ev, s.queue.begun, s.queue.total); line != "" {
			lines = append(lines, line)
		}
	}
	if len(lines) > 0 {
		s.screen.print(lines...)
	}
	s.keep(events)
}

// remember puts a job that is over on the board, in the place of the oldest
// there.
func (s *session) remember(j *job.Job) {
	s.over = append(s.over, j)
	if len(s.over) > 2*boardOver {
		s.over = append([]*job.Job(nil), s.over[len(s.over)-boardOver:]...)
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
	queued, running := t.Live()
	// While jobs run or wait, their clocks and the cards move without any
	// event, and the board has to show it.
	if (s.changed || queued+running > 0) && t.Now.Sub(s.boardAt) >= s.opt.Poll {
		s.writeBoard(t)
	}
	if s.interrupted > 0 {
		return running == 0 || s.givenUp(t)
	}
	// With a full disk the last ends may not be written yet: then the exit
	// status is not known yet either.
	return queued == 0 && running == 0 && !s.opt.Watch && t.Written()
}

// refresh writes what the board does not show yet.
func (s *session) refresh(t *engine.Turn) {
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
	// Elapsed times on the board move too while something runs.
	s.changed = s.changed || len(snap.running) > 0
}

func (s *session) snapshot(t *engine.Turn, pending int) snapshot {
	snap := snapshot{
		at: t.Now, file: s.opt.File, tally: s.queue.counts, total: s.queue.total,
		cards: t.Cards(), running: t.Running(), paused: t.Blocked(),
		pending: s.waiting(t, pending),
	}
	for i := len(s.over) - 1; i >= 0 && len(snap.over) < boardOver; i-- {
		snap.over = append(snap.over, s.over[i])
	}
	return snap
}

// waiting are the first of the queued jobs, each with why it waits.
func (s *session) waiting(t *engine.Turn, most int) []waiting {
	jobs := t.Next(most)
	ids := make([]string, len(jobs))
	for i, j := range jobs {
		ids[i] = j.ID
	}
	list := make([]waiting, len(jobs))
	stories := s.stories(t, ids)
	for i, j := range jobs {
		list[i] = waiting{job: j}
		if told := stories[i]; told.ID != "" && !t.Stopping() {
			told.WasPreempted(j.PreemptedFor)
			list[i].reason, list[i].story = told.String(), &told
		} else {
			list[i].reason = t.Why(j.ID)
		}
	}
	return list
}

// retellAfter is how long the story of what waits is told unchanged on the live
// view, which is drawn more often than anything changes.
const retellAfter = time.Second

// stories asks for those of the jobs, and remembers that of the first alone.
func (s *session) stories(t *engine.Turn, ids []string) []reason.Story {
	if len(ids) == 1 && s.retold.ID == ids[0] && t.Now.Sub(s.retoldAt) < retellAfter && !t.Now.Before(s.retoldAt) {
		return []reason.Story{s.retold}
	}
	stories := sched.Stories(t.State(), ids)
	if len(stories) > 0 {
		s.retold, s.retoldAt = stories[0], t.Now
	}
	return stories
}

// say prints a line of berth's own.
func (s *session) say(written string) {
	now := time.Now()
	if s.opt.JSON {
		kind := job.EventNotice
		if strings.HasPrefix(written, "WARN ") {
			kind, written = job.EventWarning, written[len("WARN "):]
		}
		s.emit(record{Time: now, Event: kind, Text: written})
		return
	}
	s.screen.print(stamp(now, text.Line(written)))
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

// missedEvents stands in --json for events that nobody read in time.
func missedEvents(missed int) string {
	line, err := encodeLine(record{Time: time.Now(), Event: job.EventWarning,
		Text: fmt.Sprintf("%s not shown, as the output was not read; journal.jsonl has what is durable", text.Count(missed, "line"))})
	if err != nil {
		panic("bug: " + err.Error())
	}
	return string(line)
}

// finish says how it went.
func (s *session) finish() int {
	now := time.Now()
	s.engine.Outside(now, s.writeBoard)
	status, outcomes := s.queue.status()
	if s.interrupted > 0 {
		status = problem.Interrupted.ExitStatus()
	}
	if s.opt.JSON {
		s.screen.finish(s.encode(summaryRecord(now, s.account, s.queue.counts, status))...)
		return status
	}
	s.screen.finish(s.account.lines(now, s.queue.counts, outcomes)...)
	return status
}

// close lets go of everything; what runs is left running.
func (s *session) close() {
	if s.abandoned {
		return
	}
	if s.screen != nil {
		s.screen.finish()
	}
	if s.journal != nil {
		if err := s.journal.Close(); err != nil {
			s.log.Warn("close", "err", err)
		}
	}
	if s.machine != nil {
		s.machine.Close()
	}
}
