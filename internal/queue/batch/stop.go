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
func (f *follower) obey(ctx context.Context, sig os.Signal) {
	switch {
	case sig == syscall.SIGHUP:
		f.stop.hangUp = true
		f.leave(0)
	case f.opt.Keyboard != nil && sig == os.Interrupt && !f.stop.question && f.stop.asked == 0:
		if words := f.stopQuestion(time.Now()); words != "" {
			f.stop.question = true
			f.ask(words)
			return
		}
		f.halt(ctx)
	case f.link.Own == nil:
		f.leave(130)
	default:
		f.halt(ctx)
	}
}

// halt stops the jobs, and does not wait for them the second time.
func (f *follower) halt(ctx context.Context) {
	f.stop.question = false
	if f.link.Own == nil {
		f.cancel(ctx)
		return
	}
	f.stop.asked++
	f.stop.at = time.Now()
	here, there := f.queue.place()
	if f.stop.asked == 1 && here > 0 {
		f.say(fmt.Sprintf("stopping %s; the next run starts them again (Ctrl-C again: do not wait for them to end)", text.Count(here, "running job")))
	}
	if f.stop.asked == 1 && there > 0 {
		f.say(fmt.Sprintf("%s %s with Slurm; run the same command to come back to them (berth cancel ends them then)", text.Count(there, "job"), text.Verb(there, "stay")))
	}
	f.link.Own.Stop()
}

// cancel cancels the jobs in a daemon's queue.
func (f *follower) cancel(ctx context.Context) {
	_, err := api.Call(ctx, f.link.Client, api.Act, api.ActRequest{Action: api.ActCancel, Select: api.Select{Batch: f.batch, States: []string{string(job.Queued), string(job.Running), string(job.Parked)}}})
	if err != nil {
		f.warn(fmt.Sprintf("the jobs could not be cancelled: %v", err))
	}
	f.opt.Watch, f.stop.cancelled = false, true
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
		f.warn(fmt.Sprintf("%s did not end; left to its supervisor, and the next berth run adopts it", list))
		f.link.Own.Stop()
		s.at = time.Now()
		return
	}
	if !s.warned {
		s.warned = true
		f.warn(fmt.Sprintf("%s has not ended; press Ctrl-C again to leave it to its supervisor", list))
	}
}

// stopQuestion is the question before jobs are stopped; empty: none is asked.
func (f *follower) stopQuestion(now time.Time) string {
	if f.link.Own == nil {
		c := f.queue.counts
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
func (f *follower) press(ctx context.Context, key byte) {
	open := f.stop.question
	f.stop.question = false
	switch {
	case key == 'd' || key == 'D':
		f.leave(0)
	case !open:
	case key == 'y' || key == 'Y':
		f.halt(ctx)
	default:
		f.ask("no: the jobs go on")
	}
}

// ask prints a question, or the answer to one, even where little else is.
func (f *follower) ask(words string) {
	f.screen.print(f.narrator.wrap(text.Bold, stamp(time.Now(), words))...)
}

// leave ends this berth, and leaves the jobs to the queue.
func (f *follower) leave(status int) {
	if f.watcher.stream {
		if _, over := f.watcher.piped(); !over && !f.stop.hangUp {
			f.warn("not detached: more jobs may come through the pipe; put them in a file to detach")
			return
		}
	}
	f.stop.left, f.stop.status = true, status
}

// parted says what happens to the jobs, how to come back to them and how to cancel
// them.
func (f *follower) parted() (int, error) {
	f.screen.finish()
	file, back := f.opt.File, "the same command"
	if f.watcher.stream && f.link.Own != nil {
		lines, _ := f.watcher.piped()
		path := pipedIn(f.link.Own.LogDir)
		if err := replace(path, lines); err != nil {
			return f.stop.status, err
		}
		file = f.narrator.relative(path)
		back = "berth run " + file
	}
	where := "in the background"
	if f.link.Own == nil {
		where = "in the " + f.link.Name
	}
	c := f.queue.counts
	line := fmt.Sprintf("detached: %s %s; %s comes back, berth cancel --batch %s cancels them", c.goOn(), where, back, job.QuoteArgv([]string{file}))
	fmt.Fprintln(f.opt.Out, strings.Join(f.narrator.wrap(text.Plain, stamp(time.Now(), text.Line(line))), "\n"))
	return f.stop.status, nil
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
