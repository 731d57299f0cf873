package keep

import (
	"strconv"
	"time"
)

// State is what a supervisor is doing, in its record and in its greeting.
type State string

// The states of a supervisor.
const (
	Idle    State = "idle"
	Started State = "started" // written before the fork: the job may have run
	Ended   State = "ended"   // written when no process of the job is left
)

// Record is what a supervisor writes down about a job. A zero PID in a started
// record means that the supervisor died between writing it and knowing the
// process; a zero PID in an ended one means that nothing ran.
type Record struct {
	State   State
	Seq     uint64 // counts the jobs of one supervisor
	Token   string
	Job     string
	Attempt int

	BootID    string
	KeepPID   int
	KeepStart uint64 // start time of the supervisor in clock ticks since boot
	PID       int
	PIDStart  uint64
	Session   int
	Cgroup    string // directory of the job's cgroup; empty where it has none
	Log       string // empty when it was too long to be written down
	LogFrom   int64  // where this attempt's output begins

	StartedAt time.Time
	EndedAt   time.Time

	ExitCode    int // -1 when a signal ended it or nothing ran
	Signal      int // 0: none
	Core        bool
	Stop        string // why it was ended: cancel, timeout, interrupt; empty: by itself
	Launch      string // why nothing ran; empty when something did
	SetupFailed bool
	Stragglers  int // processes that outlived the main one and had to be ended

	MaxRSSKiB int64
	User, Sys time.Duration // CPU time of the whole tree, in milliseconds' precision
	Note      string        // what the supervisor had to do without, as a cgroup
}

func itoa(n int) string { return strconv.Itoa(n) }
