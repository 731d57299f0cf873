package run

import (
	"log/slog"

	"berth/internal/machine/keep"
)

// Options are what a Runner is opened with.
type Options struct {
	KeepDir      string   // gets one directory per supervisor
	KeepCommand  []string // the command of a supervisor; empty: findKeep
	CgroupParent string   // of jobs' cgroups; "": detectCgroup, "none": no cgroups
	KeepCgroup   string   // of the supervisors; "": berth's own
	Log          *slog.Logger
}

// FoundKind is what Scan found in a supervisor's directory.
type FoundKind int

// The kinds of finding.
const (
	// FoundRunning is adopted: its end follows as an event.
	FoundRunning FoundKind = iota + 1
	// FoundEnded left a record; Ack it once that is on disk elsewhere.
	FoundEnded
	// FoundLost died with its job. The event follows when the last process is
	// gone. Without a Job, its record is gone: the machine went down and took
	// the end of it, or somebody removed it. Whatever this supervisor was given
	// is lost.
	FoundLost
	// FoundEmpty ran nothing of what it was given, and never will.
	FoundEmpty
)

// Found is one supervisor of an earlier berth.
type Found struct {
	Token   string
	Job     string
	Attempt int
	Kind    FoundKind
	Record  keep.Record
	OOM     bool   // as in Event
	Copy    []byte // what the earlier berth left about the job; nil: nothing
}

// EventKind is what happened to a job.
type EventKind int

// The kinds of event.
const (
	Started EventKind = iota + 1
	Ended
	Lost
	NeverRan
	Stuck   // a process of the job, or its supervisor, outlived KILL: see Process
	Silent  // the supervisor does not answer; its job keeps running
	Answers // it does again
	Parking // what a manoeuvre came to, or what a supervisor says of it when it is found again: see Park
)

func (k EventKind) String() string {
	switch k {
	case Started:
		return "started"
	case Ended:
		return "ended"
	case Lost:
		return "lost"
	case NeverRan:
		return "never ran"
	case Stuck:
		return "stuck"
	case Silent:
		return "silent"
	case Answers:
		return "answers"
	case Parking:
		return "parking"
	}
	return "unknown"
}

func (k FoundKind) String() string {
	switch k {
	case FoundRunning:
		return "running"
	case FoundEnded:
		return "ended"
	case FoundLost:
		return "lost"
	case FoundEmpty:
		return "empty"
	}
	return "unknown"
}

// Event is about one job under one supervisor. Ended, Lost and NeverRan are
// final: exactly one of them comes for every order that Go accepted.
type Event struct {
	Kind    EventKind
	Token   string
	Job     string
	Attempt int
	Record  keep.Record
	OOM     bool       // it failed, and its log ends in out-of-memory text
	Process keep.Stuck // of Stuck: the process that does not end; of Silent: the supervisor
	Park    keep.ParkNews
}

// Final reports whether nothing more follows about the order.
func (k EventKind) Final() bool { return k == Ended || k == Lost || k == NeverRan }

// Identity is a supervisor and its job as the kernel knows them.
type Identity struct {
	Token        string
	KeepPID      int
	KeepStart    uint64
	PID, Session int
	Cgroup       string
}
