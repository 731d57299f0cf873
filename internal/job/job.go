package job

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Job is a spec and all that became of it. A zero time means "not yet".
type Job struct {
	ID   string // what people type; "17", or "17_0" for a task of an array
	Seq  int64  // order of submission; not reused until a fresh start
	Key  string // identity of a jobs-file line; empty elsewhere
	User string
	UID  int // whose right it runs with; of a berth of one's own, the own
	Spec Spec

	Environ string // names the captured environment in the store; empty: none was
	Umask   int    // of the caller; -1: not known
	Held    bool   // queued, but not until someone releases it

	State   State
	Outcome Outcome
	Detail  string // why it ended so, or why it went back to the queue

	// Rank orders jobs of equal priority: the line in a jobs file, else the
	// order of submission.
	Rank      int64
	VRAMMiB   int64 // the declaration in force: the spec's, or what a retry raised it to
	NotBefore time.Time

	// WaitsSince is since when it waits, or waited when it was last placed,
	// where that is later than its submission: it was released, or came back.
	WaitsSince time.Time

	RetriesUsed int
	Requeues    int
	Preemptions int // how often it was set aside for another job

	// PreemptedFor is the job that a running one is being set aside for, and a
	// queued one was.
	PreemptedFor string

	SubmittedAt time.Time

	Attempt // the one that runs, or the last
}

// Attempt is one run of a job: what it was given, and what came of it. To run
// the job again is to replace it.
type Attempt struct {
	Number int // 1 for the first; 0 before the job was ever placed

	Grant Grant
	Keep  string // token of the supervisor that holds it
	Stop  Stop   // an end that berth asked for, recorded before it is acted on
	// PreemptAt is when a job that is being set aside is told to end.
	PreemptAt time.Time

	StartedAt time.Time
	EndedAt   time.Time
	ExitCode  *int
	Signal    string

	PeakMiB map[int]int64 // per physical GPU; nil: not known
	AvgUtil *float64
	Log     string
	// IdleSince is since when it holds device memory and does not use its cards,
	// once that is long. It is measured anew by each berth, and not kept.
	IdleSince time.Time
	// LogDropped is how many bytes were taken out of the middle of the log,
	// because it grew beyond its limit.
	LogDropped int64
}

// Next is the attempt that follows, begun at a time: nothing of the one before
// is left in it.
func (a Attempt) Next(at time.Time, grant Grant, keep string) Attempt {
	return Attempt{Number: a.Number + 1, Grant: grant, Keep: keep, StartedAt: at}
}

// Past is what stays to be seen of an attempt while the job waits for another:
// its result, and nothing that it held.
func (a Attempt) Past() Attempt {
	return Attempt{
		Number: a.Number, EndedAt: a.EndedAt, ExitCode: a.ExitCode, Signal: a.Signal,
		PeakMiB: a.PeakMiB, AvgUtil: a.AvgUtil, Log: a.Log, LogDropped: a.LogDropped,
	}
}

// None is what a job has that is run anew: the number alone, so that no two
// attempts ever share one.
func (a Attempt) None() Attempt { return Attempt{Number: a.Number} }

// Grant is what a placed job holds, from the moment the placement is
// committed until its last process is gone.
type Grant struct {
	GPUs      []int    `json:"gpus,omitempty"` // physical indices, in the job's order
	UUIDs     []string `json:"uuids,omitempty"`
	BudgetMiB int64    `json:"budget_mib,omitempty"` // per GPU; 0: holds the whole card
	CardMiB   int64    `json:"card_mib,omitempty"`   // memory of the smallest card granted
	Share     float64  `json:"share,omitempty"`
	Alone     bool     `json:"alone,omitempty"`     // nothing may join it
	Exclusive bool     `json:"exclusive,omitempty"` // no other berth job may join it
}

// List is the cards as CUDA_VISIBLE_DEVICES wants them: "0,1".
func (g Grant) List() string {
	words := make([]string, len(g.GPUs))
	for i, index := range g.GPUs {
		words[i] = strconv.Itoa(index)
	}
	return strings.Join(words, ",")
}

// Stop is why berth ends a running job.
type Stop string

// The reasons to end a job.
const (
	NoStop        Stop = ""
	StopCancel    Stop = "cancel"
	StopTimeout   Stop = "timeout"
	StopInterrupt Stop = "interrupt" // berth itself was told to stop; the job runs again
	StopRequeue   Stop = "requeue"   // a person wants it run again from its beginning
	StopPreempt   Stop = "aside"     // another job needs its cards more; it runs again
)

// Name is the job's name, or the one it has by default.
func (j *Job) Name() string {
	if j.Spec.Name != "" {
		return j.Spec.Name
	}
	return "job" + j.ID
}

// Array is the id of the array a task belongs to, "17" of "17_3"; empty for
// a job that is no task.
func (j *Job) Array() string {
	base, _, found := strings.Cut(j.ID, "_")
	if !found {
		return ""
	}
	return base
}

// Leaving reports whether it is being set aside for another job.
func (j *Job) Leaving() bool { return j.State == Running && j.Stop == StopPreempt }

// Submitted makes it a queued job.
func (j *Job) Submitted(at time.Time) {
	j.State = Queued
	j.SubmittedAt = at
}

// Clone copies the job so that neither copy sees the other's changes.
func (j *Job) Clone() *Job {
	c := *j
	c.PeakMiB = maps.Clone(j.PeakMiB)
	c.Grant.GPUs = slices.Clone(j.Grant.GPUs)
	c.Grant.UUIDs = slices.Clone(j.Grant.UUIDs)
	if j.ExitCode != nil {
		code := *j.ExitCode
		c.ExitCode = &code
	}
	if j.AvgUtil != nil {
		util := *j.AvgUtil
		c.AvgUtil = &util
	}
	return &c
}
