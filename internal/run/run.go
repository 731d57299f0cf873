package run

import (
	"errors"
	"log/slog"
	"time"

	"berth/internal/job"
	"berth/internal/keep"
)

// Options are what a Runner is opened with.
type Options struct {
	KeepDir      string   // one directory per supervisor is made here
	KeepCommand  []string // how to start a supervisor; empty: FindKeep
	CgroupParent string   // where jobs' cgroups go; "": DetectCgroup, "none": nowhere
	Log          *slog.Logger
	MaxIdle      int // warm supervisors kept; 0: 8
}

// Runner holds the supervisors of one queue.
type Runner struct{ events chan Event }

// FoundKind is what Scan found in a supervisor's directory.
type FoundKind int

// What Scan finds.
const (
	FoundRunning FoundKind = iota + 1 // adopted; its end follows as an event
	FoundEnded                        // Record says how; Ack it once that is on disk
	FoundLost                         // its supervisor is dead; an event follows when the last process is
	FoundEmpty                        // nothing ran, and nothing will
)

// Found is one supervisor of an earlier berth.
type Found struct {
	Token   string
	Job     string // empty where the supervisor never got that far
	Attempt int
	Kind    FoundKind
	Record  keep.Record
	OOM     bool   // as in Event
	LogTail string // as in Event
}

// EventKind is what happened to a job.
type EventKind int

// The kinds of event.
const (
	Started EventKind = iota + 1
	Ended
	Lost
	NeverRan
)

// Event tells of one job under one supervisor.
type Event struct {
	Kind    EventKind
	Token   string
	Job     string
	Attempt int
	Record  keep.Record
	OOM     bool   // it failed, and its log ends in out-of-memory text
	LogTail string // the end of a failed job's log
}

// Identity is a supervisor and its job as the kernel knows them.
type Identity struct {
	Token        string
	KeepPID      int
	KeepStart    uint64
	PID, Session int
	Cgroup       string
}

// Holder is what Attribution knows of one running job.
type Holder struct {
	Key     string
	KeepPID int
	Session int
	Cgroup  string
	Token   string
}

// Attribution says whose a process is.
type Attribution struct{}

var errSoon = errors.New("not there yet")

func FindKeep() []string                                                     { return nil }
func DetectCgroup() string                                                   { return "" }
func Open(o Options) (*Runner, error)                                        { return nil, errSoon }
func (r *Runner) Lease() (token string, err error)                           { return "", errSoon }
func (r *Runner) Release(token string)                                       {}
func (r *Runner) Go(token string, o keep.Order) error                        { return errSoon }
func (r *Runner) Stop(token string, why job.Stop, grace time.Duration) error { return errSoon }
func (r *Runner) Ack(token string)                                           {}
func (r *Runner) Scan() ([]Found, error)                                     { return nil, errSoon }
func (r *Runner) Events() <-chan Event                                       { return r.events }
func (r *Runner) Identity(token string) (Identity, bool)                     { return Identity{}, false }
func (r *Runner) Close() error                                               { return nil }
func NewAttribution() *Attribution                                           { return &Attribution{} }
func (a *Attribution) Set(holders []Holder)                                  {}
func (a *Attribution) Owner(pid int) (key string, ok bool, known bool)       { return "", false, false }
func Wrap(spec job.Spec, gpuEnv []string) (argv []string, setup bool)        { return nil, false }
func OOMText(logPath string, from int64) bool                                { return false }
