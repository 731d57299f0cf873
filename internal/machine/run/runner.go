package run

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/job"
	"berth/internal/machine/keep"
)

const (
	maxIdle = 8 // warm supervisors kept
	// eventBuffer is more than the jobs that run on one machine. When it is
	// full, supervisors wait; no event is dropped.
	eventBuffer = 1024
)

// errClosed is returned after Close.
var errClosed = errors.New("runner is closed")

// Runner holds the supervisors of one queue. It is safe for concurrent use.
type Runner struct {
	Cgroups Cgroups
	Doors   Doors

	dir        string        // of the supervisors, one directory each
	keepCgroup string        // of the supervisors, or ""
	greetsIn   time.Duration // how long a supervisor that is found may take to greet
	set        *supervisors
}

// keepWord makes berth's own program a supervisor.
const keepWord = "__keep"

// findKeep is the command of a supervisor: the small program beside berth's
// own, or berth itself if that is missing.
func findKeep() []string {
	self, err := os.Executable()
	if err != nil {
		self = "/proc/self/exe"
	}
	beside := filepath.Join(filepath.Dir(self), "berth-keep")
	if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
		return []string{beside}
	}
	return []string{self, keepWord}
}

// Open makes a Runner. berth becomes the parent of processes whose supervisor
// dies, so that none of them escapes.
func Open(o Options) (*Runner, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if len(o.KeepCommand) == 0 {
		o.KeepCommand = findKeep()
	}
	dir, err := filepath.Abs(o.KeepDir)
	if err != nil {
		return nil, fmt.Errorf("supervisors' directory: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("supervisors' directory: %w", err)
	}
	if err := syncDir(filepath.Dir(dir)); err != nil {
		return nil, err
	}
	// Other users must not see anything in it, whatever its mode was.
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, fmt.Errorf("supervisors' directory: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		o.Log.Warn("cannot become the parent of orphans", "error", err)
	}
	r := &Runner{dir: dir, keepCgroup: o.KeepCgroup, greetsIn: answerBudget}
	r.Cgroups.open(o.CgroupParent, o.Log)
	program, err := openProgram(o.KeepCommand[0])
	if err != nil {
		o.Log.Warn("helper processes may be of another version after an upgrade", "error", err)
	}
	r.Doors = Doors{command: o.KeepCommand, program: program, cgroups: &r.Cgroups}
	r.set = &supervisors{
		cgroups: &r.Cgroups, maxIdle: maxIdle, log: o.Log, command: o.KeepCommand,
		events: make(chan Event, eventBuffer), quit: make(chan struct{}),
		all: make(map[string]*supervisor),
	}
	r.set.group.Go(r.set.pulse)
	return r, nil
}

// Events is the channel on which everything that happens is reported.
func (r *Runner) Events() <-chan Event { return r.set.events }

// Go gives the supervisor its order. An error means that nothing ran and no
// event will follow; after nil, exactly one final event does.
func (r *Runner) Go(token string, o keep.Order) error {
	o.CgroupParent = cmp.Or(o.CgroupParent, r.Cgroups.Parent)
	if o.MemMiB > 0 {
		o.MemoryParent = r.Cgroups.limit(memoryController)
	}
	if o.CPUs > 0 {
		o.CPUParent = r.Cgroups.limit(cpuController)
	}
	if err := o.Check(); err != nil {
		return err
	}
	if o.Devices != nil {
		r.set.mu.Lock()
		s, err := r.set.leased(token)
		r.set.mu.Unlock()
		if err != nil {
			return err
		}
		// A lease is its caller's alone, so nobody else is here, and no process inside.
		s.walls = r.Cgroups.enclose(&o, token, s.walls)
	}
	frame, err := o.Frame().Encode()
	if err != nil {
		return fmt.Errorf("job %s: its arguments and environment are too large: %w", o.Job, err)
	}
	if err := directory(filepath.Join(r.dir, token)).leaveCopy(o.Copy); err != nil {
		return err
	}
	r.set.mu.Lock()
	defer r.set.mu.Unlock()
	s, err := r.set.leased(token)
	if err != nil {
		return err
	}
	s.phase, s.job, s.attempt, s.log, s.pty = running, o.Job, o.Attempt, o.Log, o.Pty
	s.identity.PID, s.identity.Session, s.identity.Cgroup = 0, 0, ""
	s.breath = breath{}
	if s.dead {
		r.set.group.Go(s.reportNeverRan)
		return nil
	}
	// If the connection is gone, its goroutine finds out what happened to the
	// order, and reports it.
	if l := s.link; l != nil && o.Careful() && s.protocol < keep.ProtocolCareful {
		r.set.group.Go(func() { s.giveCarefully(l, frame) })
		return nil
	}
	s.send(frame)
	return nil
}

// Stop ends the job: TERM now, KILL after the grace period. A second call with
// less grace shortens it. Stopping a job that is already ending is not an
// error.
func (r *Runner) Stop(token string, why job.Stop, grace time.Duration) error {
	return r.set.tell(token, func(s *supervisor) []byte {
		s.stop = encode(keep.Message(keep.FrameStop, "job", s.job, "attempt", s.attempt, "why", string(why), "grace_ms", grace.Milliseconds()))
		if by := time.Now().Add(max(0, grace) + overruleSlack); s.stopBy.IsZero() || by.Before(s.stopBy) {
			s.stopBy = by
		}
		return s.stop
	})
}

// Warn sends the job its warning signal before it is stopped, once for each
// stamp. A supervisor of an earlier version cannot do that, and the job is
// stopped without a warning.
func (r *Runner) Warn(token, stamp string) error {
	return r.set.tell(token, func(s *supervisor) []byte {
		return encode(keep.Message(keep.FrameWarn, "job", s.job, "attempt", s.attempt, "stamp", stamp))
	})
}

// Park asks the job's supervisor to park it; an event says what came of it.
// patience is how long a running kernel is waited for, and hostMiB is what the
// job's memory limit is raised by.
func (r *Runner) Park(token string, patience time.Duration, hostMiB int64) error {
	return r.set.tell(token, func(s *supervisor) []byte {
		if s.protocol < keep.ProtocolPark {
			// It would not answer. The event must not wait for the engine, which calls this.
			refused := Event{Kind: Parking, Token: token, Job: s.job, Attempt: s.attempt, Park: keep.ParkNews{Why: "its supervisor is of an earlier version"}}
			if !r.set.closed {
				r.set.group.Go(func() { r.set.emit(refused) })
			}
			return nil
		}
		return encode(keep.Message(keep.FramePark, "job", s.job, "attempt", s.attempt, "patience_ms", patience.Milliseconds(), "host_mib", hostMiB))
	})
}

// Resume asks it to resume the job; the room is taken first.
func (r *Runner) Resume(token string, hold []keep.Room) error {
	return r.set.tell(token, func(s *supervisor) []byte { return resumeFrame(s.job, s.attempt, hold) })
}

// Ack confirms that the job's end is on disk. The supervisor returns to the
// pool; a dead one's directory is removed.
func (r *Runner) Ack(token string) {
	r.set.mu.Lock()
	defer r.set.mu.Unlock()
	if s := r.set.all[token]; s != nil && s.phase == ended {
		s.send(ackFrame(s.job, s.attempt))
		r.set.rest(s)
	}
}

// Identity is what the kernel knows of a supervisor and its job.
func (r *Runner) Identity(token string) (Identity, bool) {
	r.set.mu.Lock()
	defer r.set.mu.Unlock()
	s := r.set.all[token]
	if s == nil {
		return Identity{}, false
	}
	return s.identity, true
}

// Begun reports whether a supervisor has reported that its job's attempt runs;
// from then on it owns the log. An attempt unknown to all supervisors here
// counts as begun.
func (r *Runner) Begun(token, id string, attempt int) bool {
	r.set.mu.Lock()
	defer r.set.mu.Unlock()
	s := r.set.all[token]
	if s == nil {
		return true
	}
	return s.phase >= running && s.job == id && s.attempt == attempt && s.identity.PID != 0
}

// Close ends the supervisors without a job, and leaves the others running.
func (r *Runner) Close() error {
	if r.set.close() {
		r.Cgroups.close()
	}
	return nil
}
