package batch

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/machine/run"
	"berth/internal/machine/site"
	"berth/internal/queue"
	"berth/internal/queue/engine"
	"berth/internal/queue/engine/cards"
	"berth/internal/queue/engine/launch"
	"berth/internal/queue/engine/settings"
	"berth/internal/queue/engine/waiting"
	"berth/internal/queue/series"
	"berth/internal/queue/store"
	"berth/internal/sched"
	"berth/internal/text/problem"
)

// trimEvery bounds the events that wait in the store after they are in the
// journal.
const trimEvery = 1000

// Host is the own queue of a berth run, as a daemon serves it: it chooses the GPUs,
// deals with what earlier runs left, and keeps journal and board. The jobs file is
// its clients' affair.
type Host struct {
	opt     HostOptions
	layout  layout
	env     []string
	dir     string
	say     func(Word) // to the run that started it
	gpus    *gpuChoice
	store   *store.Store
	log     *slog.Logger
	began   time.Time
	since   int64 // the last event of earlier runs
	empty   bool  // they left no jobs
	simDir  string
	journal *journal
	trimmed int64
	jobs    *jobList
	report  report
	orphans orphans // of gpusched
	halt    halt
}

// HostOptions are the flags of `berth run` that its queue needs.
type HostOptions struct {
	LogDir           string
	StateHome        string // where the state goes if the log directory is on a network; empty: the user's own
	LogFree          int64  // bytes that growing logs leave free on their disk; 0: none
	LogLevel         string
	GPUs             []int          // nil: all, or those of an inherited CUDA_VISIBLE_DEVICES
	Sim              int            // simulated cards; 0: real ones
	SimVRAMMiB       int64          // of each
	Jobs             int            // at a time; 0: as many as fit
	GroupLimits      map[string]int // how many jobs of a group may run at a time
	Poll             time.Duration
	Rules            sched.Rules
	Preempt          string // one of queue.Preempts
	Parking          string // one of queue.Parkings
	Tolerance        float64
	Fresh            bool
	AcceptEmptyStore bool             // continue although an earlier run left jobs running that it does not know
	AsGpusched       bool             // name logs as gpusched does
	Away             bool             // all jobs run on Slurm, so no GPU is needed
	Keys             map[string]int64 // of the lines, with what they declare, in MiB; only if gpusched left a journal
	NeedsGPU         string           // which lines need one; empty: none
	Inner            bool             // it is in an allocation of Slurm
}

// Word is what a host says to the run that starts it.
type Word struct {
	Say     string           `json:"say,omitempty"`
	Problem *problem.Problem `json:"problem,omitempty"` // why it ended
	InUse   bool             `json:"in_use,omitempty"`  // because another process has the queue
	NoGPU   string           `json:"no_gpu,omitempty"`  // why there is none
	Ready   *Ready           `json:"ready,omitempty"`
}

// Ready says that a host can be reached.
type Ready struct {
	Place
	Since  int64  // the last event of earlier runs
	Empty  bool   // they left no jobs
	SimDir string // the simulation directory; empty: the GPUs are real
}

// NewHost makes the directories of an own queue.
func NewHost(opt HostOptions, env []string, dir string, say func(Word)) (*Host, error) {
	h := newHostOf(opt, env, dir, say)
	if err := elsewhere(opt.LogDir); err != nil && !opt.Fresh {
		return nil, problem.Wrap(problem.Unable, "run it there, or keep the state where all machines see it (XDG_STATE_HOME); --fresh starts over", err)
	}
	l, err := openLayout(opt.LogDir, cmp.Or(opt.StateHome, stateHome(h.getenv)), site.OnNetwork)
	if err != nil {
		return nil, problem.Wrap(problem.Unable, "choose another place with --log-dir", err)
	}
	h.layout, h.report.board = l, board{path: l.board(), render: renderBoard}
	return h, nil
}

func newHostOf(opt HostOptions, env []string, dir string, say func(Word)) *Host {
	h := &Host{opt: opt, env: env, dir: dir, say: say, began: time.Now(), jobs: newJobList()}
	h.gpus = &gpuChoice{opt: &h.opt, env: env, say: say}
	return h
}

// RehearsalHost is a host for a dry run, with temporary state.
func RehearsalHost(opt HostOptions, env []string, dir, temporary string, say func(Word)) *Host {
	h := newHostOf(opt, env, dir, say)
	h.layout = layout{logDir: opt.LogDir, state: temporary}
	return h
}

// StartApart starts a host in a session of its own. The caller gets its end from
// wait, and must not call cmd.Wait.
func StartApart(cmd *exec.Cmd) (wait func() error, err error) { return run.StartApart(cmd) }

// Place is where the queue is.
func (h *Host) Place() Place { return h.layout.place() }

// Ready is what the run that started it has to know.
func (h *Host) Ready() *Ready {
	return &Ready{Place: h.layout.place(), Since: h.since, Empty: h.empty, SimDir: h.simDir}
}

// Hear passes on the signals that stop the jobs. Slurm signals all processes of an
// allocation, and the run that started this one passes its own on: the two are one
// signal, and in an allocation that berth asked for, nobody sends another.
func (h *Host) Hear(signals <-chan os.Signal, pass func(os.Signal)) {
	var last time.Time
	for sig := range signals {
		h.halt.note(sig)
		if inAllocation(h.env) && time.Since(last) < haltLag {
			continue
		}
		last = time.Now()
		pass(sig)
		if h.opt.Inner {
			return
		}
	}
}

// Setup says where the queue is, and which GPUs it may use.
func (h *Host) Setup(s *queue.Setup) {
	*s = queue.Setup{
		StateDir: h.layout.state, Hint: "choose another place with --log-dir", MPSDir: h.layout.state, KeepSamples: series.Keep,
		Log: queue.Log{Path: h.layout.log(), MaxBytes: site.LogBytes, Level: h.opt.LogLevel},
		Sim: h.opt.Sim, SimVRAMMiB: h.opt.SimVRAMMiB, Getenv: h.getenv, Within: allocated(h.env),
		Launcher: launch.Launcher{JobsDir: h.layout.jobsDir(), Dir: h.dir, Home: h.getenv("HOME"), Owner: s.Launcher.Owner, LeaveRest: h.opt.AsGpusched},
		Choose:   h.gpus.from,
	}
}

// Settings are what a run has instead of what its config says.
func (h *Host) Settings(c *engine.Config) {
	s := &c.Settings
	s.Limits = settings.Limits{Default: sched.Limit{Jobs: h.opt.Jobs, Flag: "-j"}}
	s.Cards, s.User, s.Outer = h.gpus.cards, h.user(), outerBooking(h.getenv("BERTH_TOKEN"))
	s.Parking = queue.ParkingFor(h.opt.Preempt, h.opt.Parking)
	s.Rest, s.HalfLife = false, 0
	if h.opt.Inner || inAllocation(h.env) {
		c.Halted, c.LostBefore = h.halt.stopped, time.Now()
	}
}

// Began deals with what earlier runs left.
func (h *Host) Began(ctx context.Context, m *queue.Queue, found []run.Found) ([]run.Found, error) {
	h.store, h.log, h.simDir, h.empty = m.Store, m.Log, m.SimDir, true
	if err := h.layout.keepTheirs(); err != nil {
		return nil, theirProblem(err)
	}
	var err error
	if h.journal, err = openJournal(h.layout.journal()); err != nil {
		return nil, problem.Wrap(problem.Unable, "", err)
	}
	if h.opt.Fresh {
		if err := h.startOver(ctx, m, found); err != nil {
			return nil, problem.Wrap(problem.Unable, "", err)
		}
		found = nil
	}
	if err := h.regain(found); err != nil {
		return nil, err
	}
	if err := h.inherit(time.Now()); err != nil {
		return nil, theirProblem(err)
	}
	if err := h.journal.catchUp(h.store); err != nil {
		h.log.Error("journal", "err", err)
	}
	if h.since, err = h.store.LastEvent(); err != nil {
		return nil, problem.Wrap(problem.Unable, "", err)
	}
	if h.opt.AsGpusched {
		h.report.board.render = newTheirWords(h.opt.Tolerance, false, len(h.gpus.cards)).board
	}
	return found, h.store.Each(func(j *job.Job) error {
		h.jobs.remember(j)
		h.empty = false
		if j.State.Terminal() {
			h.report.remember(j)
		}
		return nil
	})
}

// Restored sets the limits of groups. Those of an earlier run do not count.
func (h *Host) Restored(t *engine.Turn) error {
	for _, group := range t.Groups().List(h.user()) {
		if err := t.Groups().Limit(group.User, group.Name, 0); err != nil {
			return err
		}
	}
	for group, limit := range h.opt.GroupLimits {
		if err := t.Groups().Limit(h.user(), group, limit); err != nil {
			return problem.Newf(problem.Invalid, "", "--group-limit: expected at most %d groups, found %d", waiting.MaxGroups, len(h.opt.GroupLimits))
		}
	}
	return nil
}

// Took sees the jobs of all lines of a jobs file.
func (h *Host) Took(t *engine.Turn, file string, ids []string) {
	h.report.file, h.report.changed = file, true
	h.log.Info("jobs file changed", "lines", len(ids))
	h.jobs.take(ids)
	h.orphans.tend(t, h.began)
}

// Publish receives all events, in order, once they are durable.
func (h *Host) Publish(events []job.Event) {
	h.report.changed = true
	for _, ev := range events {
		h.jobs.follow(ev)
		if ev.Kind == job.EventEnded {
			h.report.remember(ev.Job)
		}
		if ev.Kind == job.EventStarted && h.opt.AsGpusched {
			if err := h.layout.linkLog(ev.Job); err != nil {
				h.log.Warn("name a log as gpusched does", "err", err)
			}
		}
	}
	h.keep(events)
}

// keep brings the journal up to date.
func (h *Host) keep(events []job.Event) {
	err := error(nil)
	if h.journal.behind {
		err = h.journal.catchUp(h.store)
	} else {
		err = h.journal.append(events)
	}
	if err != nil {
		h.log.Error("journal", "err", err)
		return
	}
	if h.journal.last-h.trimmed >= trimEvery {
		h.trimmed = h.journal.last
		if err := h.store.TrimEvents(h.trimmed); err != nil {
			h.log.Error("trim events", "err", err)
		}
	}
}

// After writes the board if a poll has passed. While jobs run or wait, times and
// measurements change without an event.
func (h *Host) After(t *engine.Turn) {
	if h.report.due(t, h.opt.Poll) {
		h.orphans.tend(t, h.began)
		h.Over(t)
	}
}

// Over writes the board.
func (h *Host) Over(t *engine.Turn) {
	if err := h.report.write(t, h.jobs, h.began); err != nil {
		h.log.Error("board", "err", err)
	}
}

// Close closes the journal.
func (h *Host) Close() {
	if h.journal != nil {
		if err := h.journal.Close(); err != nil {
			h.log.Warn("close", "err", err)
		}
	}
}

// outerBooking is the key of the booking of the job that this berth runs in.
func outerBooking(token string) string {
	parts := strings.Split(token, ":")
	if len(parts) != 3 {
		return ""
	}
	return cards.BookingKey(parts[0], parts[1])
}

func (h *Host) getenv(name string) string { return job.Getenv(h.env, name) }

func (h *Host) user() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	if name := h.getenv("USER"); name != "" {
		return name
	}
	return strconv.Itoa(os.Getuid())
}
