package batch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"berth/internal/engine"
	"berth/internal/engine/fault"
	"berth/internal/problem"
	"berth/internal/run"
	"berth/internal/store"
	"berth/internal/text"
)

// A run leaves its terminal by handing its queue to a second berth, which needs
// none. The second one is started first, reads the jobs file and waits for the
// lock of the queue; only then does the first one end. Whichever of them is
// killed in between, the lock passes to the other, or to the next berth run:
// jobs run under their supervisors in any case.

// Background is set in a berth that works without a terminal, and says how far
// it is.
type Background struct {
	Ready func() // it only waits for the queue
	Taken func() // it has the queue
}

// Successor is a berth in the background that waits for the queue.
type Successor interface {
	PID() int
	Output() string // the file that has what it prints
	// Took returns nil when it has the queue, or why it has not.
	Took(ctx context.Context) error
}

// StartApart starts a successor in a session of its own. The caller gets its end
// from wait, and must not call cmd.Wait.
func StartApart(cmd *exec.Cmd) (wait func() error, err error) { return run.StartApart(cmd) }

// How long a berth waits for the queue of another that leaves it.
const (
	handoverTime = time.Minute
	handoverStep = 10 * time.Millisecond
)

const (
	// markName is a file in the state directory that names the berth in the
	// background, and its jobs file.
	markName = "background"
	// pipedName is a file in the log directory with the jobs that came from a
	// pipe.
	pipedName = "piped-jobs.txt"
)

// detach starts a berth in the background, and ends this one once that waits for
// the queue.
func (s *session) detach(ctx context.Context) {
	if s.opt.Detach == nil || s.successor != nil {
		return
	}
	file, err := s.keptFile()
	if err == nil {
		s.successor, err = s.opt.Detach(ctx, file)
	}
	if err != nil {
		s.successor = nil
		s.engine.Do(ctx, func(*engine.Turn) { s.warn(fmt.Sprintf("not detached: %v", err)) })
		return
	}
	s.returns = file
	fault.Point("successor waits")
	s.engine.Do(ctx, s.leave)
}

// leave ends the loop, and leaves the jobs to the next berth.
func (s *session) leave(t *engine.Turn) {
	queued, running := t.Explain().Live()
	s.log.Info("leaving the queue", "running", running, "queued", queued)
	s.leaving, s.left = true, tally{running: running, queued: queued}
}

// keptFile is a jobs file that another berth can read. Lines from a pipe are
// written to a file, once the pipe has ended.
func (s *session) keptFile() (string, error) {
	if !s.watcher.stream {
		return s.opt.File, nil
	}
	lines, over := s.watcher.piped()
	if !over {
		return "", errors.New("more jobs may come through the pipe; put them in a file to detach")
	}
	path := filepath.Join(s.layout.logDir, pipedName)
	if err := replace(path, lines); err != nil {
		return "", err
	}
	return path, nil
}

// parted ends a session that left its queue. It returns when the next berth has
// it.
func (s *session) parted(ctx context.Context) (int, error) {
	s.engine.Outside(time.Now(), s.writeBoard)
	if s.successor == nil {
		s.say("leaving the queue to a berth run in the foreground")
		return 0, nil
	}
	s.close()
	fault.Point("left")
	bounded, cancel := context.WithTimeout(ctx, handoverTime)
	defer cancel()
	go s.hurry(bounded, cancel)
	if err := s.successor.Took(bounded); err != nil {
		return 0, problem.Wrap(problem.Unable, "running jobs go on; the same berth run command continues the queue", err)
	}
	now, dir := time.Now(), s.relative(s.opt.LogDir)
	for _, line := range []string{
		fmt.Sprintf("detached: %s in the background (pid %d)", s.left.goOn(), s.successor.PID()),
		fmt.Sprintf("berth list --log-dir %s shows them, %s comes back, %s has the output", dir, s.wayBack(), s.relative(s.successor.Output())),
	} {
		fmt.Fprintln(s.opt.Out, strings.Join(s.narrator.wrap(text.Plain, stamp(now, text.Line(line))), "\n"))
	}
	return 0, nil
}

// wayBack is the command that brings the run back to a terminal.
func (s *session) wayBack() string {
	if s.returns == s.opt.File {
		return "the same command"
	}
	return "berth run " + s.relative(s.returns)
}

// hurry gives up the wait for the next berth when the user does.
func (s *session) hurry(ctx context.Context, stop func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case sig := <-s.opt.Signals:
			if sig != syscall.SIGHUP {
				stop()
			}
		}
	}
}

// goOn says how many jobs another berth takes over.
func (t tally) goOn() string {
	switch {
	case t.running == 0:
		return fmt.Sprintf("%s %s", text.Count(t.queued, "queued job"), text.Verb(t.queued, "wait"))
	case t.queued == 0:
		return fmt.Sprintf("%s %s on", text.Count(t.running, "running job"), map[bool]string{true: "goes", false: "go"}[t.running == 1])
	}
	return fmt.Sprintf("%d running and %d queued jobs go on", t.running, t.queued)
}

// relative is a path as the user would write it.
func (s *session) relative(path string) string {
	if !filepath.IsAbs(path) {
		return path
	}
	return s.narrator.relative(path)
}

// awaitQueue calls open until no other berth has the queue. It waits for one
// that is leaving it: for the one that started this berth in the background, or
// for one in the background that this berth relieves.
func (s *session) awaitQueue(ctx context.Context, open func() error) error {
	began, asked := time.Now(), 0
	for {
		err := open()
		locked, inUse := errors.AsType[*store.LockedError](err)
		switch {
		case !inUse || time.Since(began) > handoverTime:
			return err
		case s.opt.Background != nil:
			if asked++; asked == 1 {
				s.opt.Background.Ready()
			}
		case asked > 0 && asked == locked.PID: // it is about to leave
		case s.inBackground(locked.PID):
			asked = locked.PID
			if err := syscall.Kill(asked, syscall.SIGHUP); err != nil {
				return err
			}
		default:
			return err
		}
		timer := time.NewTimer(handoverStep)
		select {
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-timer.C:
		}
	}
}

// mark notes in the state directory that this berth runs in the background, so
// that the same command on a terminal can relieve it.
func (s *session) mark() error {
	if s.opt.Background == nil {
		return nil
	}
	fault.Point("inherits")
	return replace(s.markPath(), fmt.Appendf(nil, "%d %s\n", os.Getpid(), s.absFile()))
}

func (s *session) unmark() {
	if s.opt.Background != nil {
		_ = os.Remove(s.markPath()) // without its process it means nothing
	}
}

// inBackground reports whether a process is a berth in the background that works
// on the same jobs file.
func (s *session) inBackground(pid int) bool {
	if s.opt.Detach == nil {
		return false
	}
	mark, err := os.ReadFile(s.markPath())
	return err == nil && pid > 0 && string(mark) == fmt.Sprintf("%d %s\n", pid, s.absFile())
}

func (s *session) absFile() string {
	if filepath.IsAbs(s.opt.File) {
		return filepath.Clean(s.opt.File)
	}
	return filepath.Join(s.opt.Dir, s.opt.File)
}

func (s *session) markPath() string { return filepath.Join(s.layout.state, markName) }
