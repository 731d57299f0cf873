package job

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Job is a spec and everything that happened to it. A zero time means "not yet".
type Job struct {
	ID   string // as users type it: "17", or "17_0" for a task of an array
	Seq  int64  // order of submission; not reused until a fresh start
	Key  string // identity of a jobs-file line; empty elsewhere
	User string
	UID  int // the user it runs as
	Spec Spec

	Environ string // name of the captured environment in the store; empty: none
	Umask   int    // of the caller; -1: not known
	Held    bool   // queued, but not to start until released

	State   State
	Outcome Outcome
	Detail  string // why it ended like this, or why it went back to the queue

	// Rank orders jobs of equal priority: the line in a jobs file, otherwise the
	// order of submission.
	Rank      int64
	VRAMMiB   int64 // the current declaration: the spec's, or what a retry raised it to
	NotBefore time.Time

	// WaitsSince is when its current or last wait began, if that is later than
	// its submission: it was released, or went back to the queue.
	WaitsSince time.Time

	RetriesUsed int
	Requeues    int
	Preemptions int // how often it was preempted

	// Checkpoints sums up its earlier attempts, if it saves its own work.
	Checkpoints Checkpoints

	// PreemptedFor is the job that a running one is being preempted for, or a
	// queued one was.
	PreemptedFor string

	// TextGone means that its long text was dropped after it had ended: only the
	// beginning of its command is left, and it cannot run again.
	TextGone bool

	SubmittedAt time.Time
	Handover    Handover // to Slurm; zero: it is in berth's own hands

	Attempt // the current or last one
}

// Attempt is one run of a job: what it got and how it ended. A new run replaces
// it.
type Attempt struct {
	Number int // 1 for the first; 0 before the job was ever placed

	Grant Grant
	Keep  string // token of the supervisor that holds it
	Stop  Stop   // why berth stops it, recorded before the stop is sent
	// PreemptAt is when a job that is being preempted is told to stop.
	PreemptAt time.Time

	StartedAt time.Time
	EndedAt   time.Time
	Parking   Parking
	ExitCode  *int
	Signal    string

	PeakMiB map[int]int64 // per physical GPU; nil: not known
	AvgUtil *float64
	// OverGPUs is what its measured memory counts as beyond its declaration, in
	// GPUs.
	OverGPUs float64
	Log      string
	// IdleSince is since when it has held its cards, or its CPUs, without using
	// them, once that is long. Each berth measures it anew; it is not stored.
	IdleSince time.Time
	// LogDropped is how many bytes were dropped from the middle of the log
	// because it grew beyond its limit.
	LogDropped int64
}

// Handover is a job's place in a cluster's queue. It is on disk before the cluster
// is asked, and is what the cluster's job is recognised by: Slurm can forget an id
// and give it to another job.
type Handover struct {
	Batch string    // the jobs that were handed over together
	Dir   string    // of the batch, which the cluster's nodes see too
	Index int       // its place among them
	Slurm string    // Slurm's id, "120" or "120_3"; empty: Slurm has not answered
	Alone bool      // the batch has no other job, so it is not an array to Slurm
	Held  bool      // berth holds it in Slurm's queue, or did and has yet to release it there
	At    time.Time // when it was handed over
	Node  string    // where it runs or ran
}

// HandedOver reports whether a cluster has the job, or is being given it.
func (j *Job) HandedOver() bool { return j.Handover.Batch != "" && !j.State.Terminal() }

// Next is a new attempt that begins at this time. Only the number is carried
// over.
func (a Attempt) Next(at time.Time, grant Grant, keep string) Attempt {
	return Attempt{Number: a.Number + 1, Grant: grant, Keep: keep, StartedAt: at}
}

// Past is what remains visible of an attempt while the job waits for another:
// its result, and nothing that it held.
func (a Attempt) Past() Attempt {
	return Attempt{
		Number: a.Number, EndedAt: a.EndedAt, ExitCode: a.ExitCode, Signal: a.Signal,
		PeakMiB: a.PeakMiB, AvgUtil: a.AvgUtil, Log: a.Log, LogDropped: a.LogDropped,
	}
}

// None is the attempt of a job that is run again from scratch: only the number,
// so that no two attempts share one.
func (a Attempt) None() Attempt { return Attempt{Number: a.Number} }

// Grant is what a placed job holds, from the commit of its placement until its
// last process is gone.
type Grant struct {
	GPUs      []int    `json:"gpus,omitempty"` // physical indices, in the job's order
	UUIDs     []string `json:"uuids,omitempty"`
	BudgetMiB int64    `json:"budget_mib,omitempty"` // per GPU; 0: holds the whole card
	CardMiB   int64    `json:"card_mib,omitempty"`   // memory of the smallest card granted
	Share     float64  `json:"share,omitempty"`
	Alone     bool     `json:"alone,omitempty"`     // no other job may join it
	Exclusive bool     `json:"exclusive,omitempty"` // no other berth job may join it
}

// List is the cards in the form of CUDA_VISIBLE_DEVICES: "0,1".
func (g Grant) List() string {
	words := make([]string, len(g.GPUs))
	for i, index := range g.GPUs {
		words[i] = strconv.Itoa(index)
	}
	return strings.Join(words, ",")
}

// CountedGPUs counts whole cards even where a job declared only part of their
// memory, because others may not be able to use the rest. A share promises that
// they can, so it counts as what it is.
func CountedGPUs(gpus int, share float64) float64 {
	if share > 0 {
		return share * float64(gpus)
	}
	return float64(gpus)
}

// ChargedGPUs is what the attempt counts as, against limits, in fair share and in
// GPU-hours: what was allocated to it, and the memory it took beyond that. In fair
// share it counts as more if it has a larger part of the host.
func (a *Attempt) ChargedGPUs() float64 {
	return CountedGPUs(len(a.Grant.GPUs), a.Grant.Share) + a.OverGPUs
}

// BudgetMiB is what the job may use on each card. One with whole cards has no
// budget, but may have declared one.
func (j *Job) BudgetMiB() int64 {
	if j.Grant.BudgetMiB > 0 {
		return j.Grant.BudgetMiB
	}
	return j.VRAMMiB
}

// ChargedCPUs is what the attempt counts as against limits and in CPU-hours. A job
// without GPUs that asks for no CPU has one.
func (j *Job) ChargedCPUs() int {
	if len(j.Grant.GPUs) == 0 {
		return max(1, j.Spec.CPUs)
	}
	return j.Spec.CPUs
}

// Stop is why berth stops a running job.
type Stop string

// The reasons to stop a job.
const (
	NoStop        Stop = ""
	StopCancel    Stop = "cancel"
	StopTimeout   Stop = "timeout"
	StopOveruse   Stop = "overuse"   // it uses far more GPU memory than it declared
	StopInterrupt Stop = "interrupt" // berth itself was told to stop; the job runs again
	StopRequeue   Stop = "requeue"   // a user wants it run again from the beginning
	StopBroken    Stop = "broken"    // its supervisor could not resume it
	StopPreempt   Stop = "aside"     // it is preempted for another job, and runs again
)

// Name is the job's name, or its default.
func (j *Job) Name() string {
	if j.Spec.Name != "" {
		return j.Spec.Name
	}
	return "job" + j.ID
}

// Array is the id of the array a task belongs to, "17" of "17_3"; empty for any
// other job.
func (j *Job) Array() string {
	base, _, found := strings.Cut(j.ID, "_")
	if !found {
		return ""
	}
	return base
}

// Batch is the jobs file of a user that jobs are lines of.
type Batch struct{ User, File string }

// Batch is the jobs file that the job is a line of; the file is empty for other jobs.
func (j *Job) Batch() Batch { return Batch{j.User, j.Spec.Batch} }

// Leaving reports whether it is being preempted.
func (j *Job) Leaving() bool { return j.State == Running && j.Stop == StopPreempt }

// Submitted makes it a queued job.
func (j *Job) Submitted(at time.Time) {
	j.State = Queued
	j.SubmittedAt = at
}

// Clone is a deep copy.
func (j *Job) Clone() *Job {
	c := *j
	c.PeakMiB = maps.Clone(j.PeakMiB)
	c.Parking.CardMiB = maps.Clone(j.Parking.CardMiB)
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

// Highest is the card with the highest peak; -1: none has one.
func Highest(peaks map[int]int64) (card int, mib int64) {
	card = -1
	for c, m := range peaks {
		if m > mib || (m == mib && c < card) {
			card, mib = c, m
		}
	}
	return card, mib
}

// ByStart orders jobs by when they started.
func ByStart(a, b *Job) int {
	return cmp.Or(a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.Seq, b.Seq))
}

// Later is the later of two times.
func Later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
