package batch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/text"
)

// DefaultAskAfter is how long a job must have run before Ctrl-C on a terminal
// asks.
const DefaultAskAfter = 10 * time.Minute

// unansweredAfter is how long after its grace period a job that has not ended is
// reported: its supervisor may be stopped, or hang in the kernel.
const unansweredAfter = 5 * time.Second

// stop is how a run comes to an end before its jobs.
type stop struct {
	asked     int       // how often the user wanted the jobs stopped
	at        time.Time // the last time
	question  bool      // whether to stop them is asked, and not answered yet
	warned    bool      // about a job that does not end
	cancelled bool      // they were cancelled in a daemon's queue
	left      bool      // the jobs go on without this berth
	hangUp    bool      // because the terminal was closed
	status    int       // the exit status then
}

// obey obeys a signal. On a terminal, Ctrl-C asks first if stopping would lose long
// work, or if the jobs are in a daemon's queue.
func (s *stop) obey(ctx context.Context, f *follower, sig os.Signal) {
	switch {
	case sig == syscall.SIGHUP:
		s.hangUp = true
		s.leave(f, 0)
	case f.opt.Keyboard != nil && sig == os.Interrupt && !s.question && s.asked == 0:
		if words := s.ask(f, time.Now()); words != "" {
			s.question = true
			f.voice.ask(words)
			return
		}
		s.halt(ctx, f)
	case f.link.Own == nil:
		s.leave(f, 130)
	default:
		s.halt(ctx, f)
	}
}

// halt stops the jobs, and does not wait for them the second time.
func (s *stop) halt(ctx context.Context, f *follower) {
	s.question = false
	if f.link.Own == nil {
		s.cancel(ctx, f)
		return
	}
	s.asked++
	s.at = time.Now()
	here, there := f.jobs.place()
	if s.asked == 1 && here > 0 {
		f.voice.say(fmt.Sprintf("stopping %s; the next run starts them again (Ctrl-C again: do not wait for them to end)", text.Count(here, "running job")))
	}
	if s.asked == 1 && there > 0 {
		f.voice.say(fmt.Sprintf("%s %s with Slurm; run the same command to come back to them (berth cancel ends them then)", text.Count(there, "job"), text.Verb(there, "stay")))
	}
	f.link.Own.Stop()
}

// cancel cancels the jobs in a daemon's queue.
func (s *stop) cancel(ctx context.Context, f *follower) {
	_, err := api.Call(ctx, f.link.Client, api.Act, api.ActRequest{Action: api.ActCancel, Select: api.Select{Batch: f.batch, States: []string{string(job.Queued), string(job.Running), string(job.Parked)}}})
	if err != nil {
		f.voice.warn(fmt.Sprintf("the jobs could not be cancelled: %v", err))
	}
	f.opt.Watch, s.cancelled = false, true
}

// remind reports a job that does not end, and gives up after a second interrupt.
// It is left to its supervisor, as if berth were killed.
func (s *stop) remind(f *follower) {
	if s.asked == 0 {
		return
	}
	patience := unansweredAfter
	var names []string
	for _, j := range f.view.jobs {
		if away(j) {
			continue
		}
		names = append(names, label(j))
		if s.asked == 1 {
			patience = max(patience, j.Spec.Grace+unansweredAfter)
		}
	}
	if time.Since(s.at) < patience || len(names) == 0 {
		return
	}
	list := strings.Join(names, ", ")
	if s.asked > 1 {
		f.voice.warn(fmt.Sprintf("%s did not end; left to its supervisor, and the next berth run adopts it", list))
		f.link.Own.Stop()
		s.at = time.Now()
		return
	}
	if !s.warned {
		s.warned = true
		f.voice.warn(fmt.Sprintf("%s has not ended; press Ctrl-C again to leave it to its supervisor", list))
	}
}

// ask is the question before jobs are stopped; empty: none is asked.
func (s *stop) ask(f *follower, now time.Time) string {
	if f.link.Own == nil {
		c := f.jobs.counts
		return fmt.Sprintf("%s %s in the queue: cancel %s? [y/N/d=leave]", text.Count(c.running+c.queued, "job"), text.Verb(c.running+c.queued, "are"), map[bool]string{true: "it", false: "them"}[c.running+c.queued == 1])
	}
	long, longest := 0, time.Duration(0)
	for _, j := range f.view.jobs {
		if ran := j.Worked(now); ran >= f.opt.AskAfter {
			long, longest = long+1, max(longest, ran)
		}
	}
	if long == 0 {
		return ""
	}
	return fmt.Sprintf("%s %s run for up to %s: stop %s? [y/N/d=detach]", text.Count(long, "job"), text.Verb(long, "have"),
		text.Span(longest), map[bool]string{true: "it", false: "them"}[long == 1])
}

// press obeys a key.
func (s *stop) press(ctx context.Context, f *follower, key byte) {
	open := s.question
	s.question = false
	switch {
	case key == 'd' || key == 'D':
		s.leave(f, 0)
	case !open:
	case key == 'y' || key == 'Y':
		s.halt(ctx, f)
	default:
		f.voice.ask("no: the jobs go on")
	}
}

// leave ends this berth, and leaves the jobs to the queue.
func (s *stop) leave(f *follower, status int) {
	if f.source.stream {
		if _, over := f.source.piped(); !over && !s.hangUp {
			f.voice.warn("not detached: more jobs may come through the pipe; put them in a file to detach")
			return
		}
	}
	s.left, s.status = true, status
}

// parted says what happens to the jobs, how to come back to them and how to cancel
// them.
func (s *stop) parted(f *follower) (int, error) {
	f.voice.screen.finish()
	file, back := f.opt.File, "the same command"
	if f.source.stream && f.link.Own != nil {
		lines, _ := f.source.piped()
		path := pipedIn(f.link.Own.LogDir)
		if err := Replace(path, lines); err != nil {
			return s.status, err
		}
		file = Relative(f.opt.Dir, path)
		back = "berth run " + file
	}
	where := "in the background"
	if f.link.Own == nil {
		where = "in the " + f.link.Name
		if f.source.stream {
			file = fromPipe
		}
	}
	c := f.jobs.counts
	line := fmt.Sprintf("detached: %s %s; %s comes back, berth cancel --batch %s cancels them", c.goOn(), where, back, job.QuoteArgv([]string{file}))
	fmt.Fprintln(f.opt.Out, strings.Join(f.voice.narrator.wrap(text.Plain, stamp(time.Now(), text.Line(line))), "\n"))
	return s.status, nil
}

// goOn says how many jobs go on without this berth.
func (t tally) goOn() string {
	switch {
	case t.running == 0:
		return fmt.Sprintf("%s %s", text.Count(t.queued, "queued job"), text.Verb(t.queued, "wait"))
	case t.queued == 0:
		return fmt.Sprintf("%s %s on", text.Count(t.running, "running job"), map[bool]string{true: "goes", false: "go"}[t.running == 1])
	}
	return fmt.Sprintf("%d running and %d queued jobs go on", t.running, t.queued)
}

// pipedName is a file in the log directory with the jobs that came from a pipe.
const pipedName = "piped-jobs.txt"

func pipedIn(logDir string) string { return filepath.Join(logDir, pipedName) }
