package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/machine/site"
	"berth/internal/queue"
	"berth/internal/queue/access"
	"berth/internal/queue/config"
	"berth/internal/queue/engine"
	"berth/internal/queue/engine/fault"
	"berth/internal/queue/engine/settings"
	"berth/internal/queue/fair"
	"berth/internal/queue/people"
	"berth/internal/queue/store"
	"berth/internal/slurm/cluster"
	"berth/internal/text/problem"
)

// service is what the handlers of requests have in common: the queue, the config
// in force, the users, and the audit log.
type service struct {
	queue   *queue.Queue // once it is open
	people  *people.People
	places  site.Places
	own     Own    // nil: a daemon
	runs    string // of a berth run: the directory that the paths of its jobs files are from
	version string

	cfg     atomic.Pointer[config.Config]
	audit   *access.Audit // nil: an own queue
	hub     *hub
	cluster atomic.Pointer[cluster.Cluster]
	over    string        // why its jobs wait: no process works on it; empty: one does
	still   *sync.Mutex   // held to use an engine without a loop; nil: the loop runs
	ended   chan struct{} // closed when the engine's loop ends
	gate    *fair.Gate    // where long work for requests takes turns
}

func (s *service) Config() *config.Config { return s.cfg.Load() }

// maxLong bounds the long work for all users at a time. It leaves some of the
// store's readers to short requests.
const maxLong = 2

// newGate leaves a core to the engine, and a place to other users, where there are
// several.
func newGate(cores int) *fair.Gate {
	most := min(cores-1, maxLong)
	return fair.NewGate(most, most-1)
}

// Do runs f in the engine's goroutine and waits for it. If the caller goes away
// first, f does not run.
func (s *service) Do(ctx context.Context, f func(t *engine.Turn)) error {
	if s.still != nil {
		s.still.Lock()
		defer s.still.Unlock()
		s.queue.Engine.Outside(time.Now(), f)
		return nil
	}
	return unlessEnded(s.queue.Engine.Do(ctx, f))
}

// Change is Do for changes that must be on disk before the reply.
func (s *service) Change(ctx context.Context, f func(t *engine.Turn)) error {
	if s.still != nil {
		return s.Do(ctx, f) // nothing of it lasts
	}
	ran := false
	err := s.queue.Engine.Change(ctx, func(t *engine.Turn) {
		f(t)
		ran = true
	})
	fault.Point("before answer")
	if !ran {
		return unlessEnded(err)
	}
	return notWritten(err)
}

func unlessEnded(err error) error {
	if errors.Is(err, engine.ErrEnded) {
		return stopping()
	}
	return err
}

func stopping() error {
	return problem.Newf(problem.Unable, "try again in a moment", "the daemon is stopping")
}

// goneProblem is the problem for a state directory that was removed.
func goneProblem(err error) error {
	p := problem.Newf(problem.Unable, "restart the daemon to begin a new queue; running jobs go on, and their GPUs stay allocated",
		"%v while the daemon ran: it starts nothing any more, and ends after its running jobs", err)
	p.Err = err
	return p
}

// notWritten is the problem for a failed commit.
func notWritten(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, store.ErrRemoved) {
		return goneProblem(err)
	}
	if errors.Is(err, engine.ErrEnded) {
		return stopping()
	}
	hint := "the log says more; berth help back-up restores the last backup"
	switch {
	case errors.Is(err, store.ErrFull):
		hint = "free some disk space; berth then continues by itself"
	case errors.Is(err, store.ErrUnwritable):
		hint = "dmesg says what happened to the disk of the state directory; once it can be written again, berth continues by itself (berth help service)"
	}
	p := problem.Newf(problem.Unable, hint, "the change could not be saved: %v", err)
	p.Err = err
	return p
}

// limits are those of users on this machine. Where several share it, what they
// declare is measured before it counts.
func (s *service) limits(cfg *config.Config) settings.Limits {
	limits := cfg.Limits.On(len(s.queue.Devices), s.queue.Host())
	limits.Measured = s.places.Shared
	return limits
}

// capable refuses a job whose limits this machine cannot enforce.
func (s *service) capable(spec *job.Spec) error {
	if spec.To == job.ToSlurm {
		return nil // its node enforces them
	}
	if why := s.queue.Launcher.Refuses(spec); why != "" {
		return problem.Newf(problem.Refused, s.queue.Launcher.MPSHint, "%s", why)
	}
	return nil
}

// cannotPark is why no job can be parked here now; empty: jobs can be.
func (s *service) cannotPark() string {
	cfg := s.Config()
	return cmp.Or(queue.ParkingFor(cfg.Preempt, cfg.Parking).Cannot, s.queue.CannotPark)
}

// batchFile is a jobs file as its jobs name it, and batchPath is its path: in an own
// queue the path is from the log directory, so that both can be moved together.
func (s *service) batchFile(path string) (string, error) {
	if path == "" || s.runs == "" {
		return path, nil
	}
	file, err := filepath.Rel(s.runs, path)
	if err != nil {
		return "", problem.Newf(problem.Invalid, "", "batch: %v", err)
	}
	return file, nil
}

func (s *service) batchPath(file string) string {
	if file == "" || s.runs == "" {
		return file
	}
	return filepath.Join(s.runs, file)
}

// everyone selects the jobs of all users.
const everyone = "*"

// Note records who did what in the audit log; a berth run has none.
func (s *service) Note(c api.Caller, action string, jobs []string, detail string, err error) {
	if s.audit == nil || err == nil && len(jobs) == 0 && detail == "" && action != "backup" {
		return
	}
	via := cmp.Or(c.Token, c.Way.Via, "socket")
	result := access.OK
	if err != nil {
		result = fmt.Sprint(err)
	}
	s.audit.Record(access.Entry{
		Time: time.Now(), UID: c.UID, User: c.Name, PID: c.PID, Via: via, From: c.Way.From,
		Action: action, Jobs: jobs, Detail: detail, Result: result,
	})
}

// administers refuses a caller who is not an administrator.
func (s *service) administers(c api.Caller, does string) error {
	if c.Admin {
		return nil
	}
	return problem.Newf(problem.Forbidden, "root and members of the group "+s.Config().AdminGroup+" are administrators", "only an administrator %s", does)
}
