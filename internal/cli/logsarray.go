package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"berth/internal/api"
	"berth/internal/cli/session"
	"berth/internal/job"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// array shows the logs of an array's tasks: one after the other, or with -f as
// they grow.
func (o *logsOptions) array(ctx context.Context, s *session.Session, detail api.Detail) error {
	if o.attempt > 0 {
		return problem.Newf(problem.Invalid, "berth list --tasks "+detail.ID+" lists its tasks", "--attempt is for one task; %s is an array", detail.ID)
	}
	if o.follow {
		return o.followArray(ctx, s, detail.ID)
	}
	tasks, _, err := fetchJobs(ctx, s, api.Query{Select: api.Select{Words: []string{detail.ID}}, Over: true}, 0)
	if err != nil {
		return err
	}
	shown := 0
	for _, task := range tasks {
		if task.Attempt == 0 {
			continue
		}
		if shown++; shown > 1 {
			fmt.Fprintln(s.Out)
		}
		fmt.Fprintln(s.Out, s.Painted(text.Bold, text.Line(fmt.Sprintf("==> %s (%s) <==", task.ID, task.State))))
		if err := o.whole(ctx, s, task.ID); err != nil {
			return err
		}
	}
	if shown > 0 {
		return nil
	}
	if detail.State.Terminal() {
		return problem.Newf(problem.Unable, "berth why "+detail.ID, "no task of array %s ever started; it has no log", detail.ID)
	}
	return problem.Newf(problem.Unable, fmt.Sprintf("berth why %s explains why; berth logs -f %[1]s waits for its output", detail.ID), "no task of array %s has started; it has no log yet", detail.ID)
}

// whole shows the log of one task, and ends its last line.
func (o *logsOptions) whole(ctx context.Context, s *session.Session, id string) error {
	last := &lastByte{out: s.Out}
	one := *s
	one.Out = last
	_, err := copyLog(ctx, &one, api.LogQuery{ID: id, Lines: o.lines}, o.raw)
	if hadNoLog(err) {
		s.Say("%v", err)
		err = nil
	}
	if last.byte != 0 && last.byte != '\n' {
		fmt.Fprintln(s.Out)
	}
	return err
}

// lastByte remembers the last byte that was written.
type lastByte struct {
	out  io.Writer
	byte byte
}

func (l *lastByte) Write(p []byte) (int, error) {
	if len(p) > 0 {
		l.byte = p[len(p)-1]
	}
	return l.out.Write(p)
}

const (
	// mostFollowed is how many tasks are followed at a time. The logs of others
	// are shown when one of them has ended.
	mostFollowed = 32
	// endsMargin is how late the end of a task may be listed after that of
	// another one.
	endsMargin = time.Minute
)

// arrayFollower follows the tasks of an array, each in a goroutine of its own.
type arrayFollower struct {
	o     *logsOptions
	s     *session.Session
	array string

	mu    sync.Mutex // one line at a time
	known map[string]bool
	ended *time.Time // the latest end seen
	slots chan struct{}
	tasks sync.WaitGroup
	fail  context.CancelCauseFunc
}

// followArray shows new output of all tasks until the last has ended.
func (o *logsOptions) followArray(ctx context.Context, s *session.Session, array string) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	f := &arrayFollower{o: o, s: s, array: array, known: map[string]bool{}, slots: make(chan struct{}, mostFollowed), fail: fail}
	if err := f.run(ctx); err != nil {
		fail(err)
	}
	f.tasks.Wait()
	return context.Cause(ctx) // what went wrong first, in a task too
}

func (f *arrayFollower) run(ctx context.Context) error {
	patience := session.NewPatience(f.s)
	waits := false
	for {
		over, err := f.look(ctx)
		switch {
		case err != nil:
			if err := patience.Bear(ctx, err); err != nil {
				return err
			}
			continue
		case over:
			return nil
		case len(f.known) == 0 && !waits:
			waits = true
			f.s.Say("no task of array %s has started; waiting for its output", f.array)
		}
		patience.Answered()
		if err := api.Pause(ctx, time.Second); err != nil {
			return err
		}
	}
}

// look finds tasks that have started since the last look. It reports whether all
// tasks have ended; that is asked first, so that none is missed.
func (f *arrayFollower) look(ctx context.Context) (over bool, err error) {
	detail, err := api.Call(ctx, f.s.Client, api.GetJob, api.JobID{ID: f.array})
	if err != nil {
		return false, err
	}
	running := api.Query{Select: api.Select{Words: []string{f.array}, States: []string{string(job.Running), string(job.Parked)}}}
	if err := f.begin(ctx, running); err != nil {
		return false, err
	}
	ended := api.Query{Select: api.Select{Words: []string{f.array}, States: []string{string(job.Finished), string(job.Failed), string(job.Cancelled)}}, Over: true}
	if f.ended != nil {
		since := f.ended.Add(-endsMargin)
		ended.Since = &since
	}
	return detail.State.Terminal(), f.begin(ctx, ended)
}

// begin shows tasks that are not known yet: at once if they have ended.
func (f *arrayFollower) begin(ctx context.Context, q api.Query) error {
	var found []job.View
	_, err := f.s.Client.JobsAll(ctx, q, func(v job.View) error {
		found = append(found, v)
		return nil
	})
	if err != nil {
		return err
	}
	for _, v := range found {
		if v.EndedAt != nil && v.State.Terminal() && (f.ended == nil || v.EndedAt.After(*f.ended)) {
			f.ended = v.EndedAt
		}
		if f.known[v.ID] || v.Attempt == 0 {
			continue
		}
		f.known[v.ID] = true
		if v.State.Terminal() {
			if err := f.show(ctx, v.ID); err != nil {
				return err
			}
			continue
		}
		f.tasks.Go(func() {
			select {
			case f.slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			defer func() { <-f.slots }()
			if err := f.show(ctx, v.ID); err != nil {
				f.fail(err)
			}
		})
	}
	return nil
}

// show follows one task to its end.
func (f *arrayFollower) show(ctx context.Context, id string) error {
	lines := &lineWriter{mu: &f.mu, out: f.s.Out, prefix: f.s.Painted(text.Dim, id+" |") + " "}
	defer lines.end()
	one := *f.s
	one.Out, one.ErrOut = lines, io.Discard // messages are printed once, for all tasks
	err := followLog(ctx, &one, api.LogQuery{ID: id, Lines: f.o.lines, Follow: true}, f.o.raw)
	if hadNoLog(err) {
		return nil
	}
	return err
}

// longestLine bounds how much of a line is held back.
const longestLine = 64 << 10

// lineWriter writes whole lines with a prefix, so that several can share an
// output. A carriage return ends a line too: the lines of a progress bar would
// overwrite those of other tasks.
type lineWriter struct {
	mu     *sync.Mutex
	out    io.Writer
	prefix string
	line   []byte
	ended  bool // by a carriage return, which a newline may follow
}

func (w *lineWriter) Write(p []byte) (int, error) {
	for _, b := range p {
		was := w.ended
		w.ended = b == '\r'
		switch {
		case b == '\n' && was && len(w.line) == 0:
		case b == '\r' && len(w.line) == 0:
		case b == '\n' || b == '\r':
			if err := w.flush(); err != nil {
				return 0, err
			}
		default:
			if w.line = append(w.line, b); len(w.line) >= longestLine {
				if err := w.flush(); err != nil {
					return 0, err
				}
			}
		}
	}
	return len(p), nil
}

const resetColour = "\x1b[0m"

func (w *lineWriter) flush() error {
	line := append([]byte(w.prefix), w.line...)
	if bytes.IndexByte(w.line, 0x1b) >= 0 {
		line = append(line, resetColour...) // the next line is of another task
	}
	w.line = w.line[:0]
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.out.Write(append(line, '\n'))
	return err
}

// end writes the last line, if it was not ended.
func (w *lineWriter) end() {
	if len(w.line) > 0 && string(w.line) != resetColour {
		_ = w.flush() // the log was shown
	}
}
