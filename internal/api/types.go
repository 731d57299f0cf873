package api

import (
	"time"

	"berth/internal/job"
)

// SubmitRequest is one or many jobs, accepted together or not at all.
type SubmitRequest struct {
	Jobs    []Spec   `json:"jobs" minItems:"1"`
	Dir     string   `json:"dir,omitempty" doc:"where jobs run that name no directory"`
	Environ []string `json:"environ,omitempty" doc:"the caller's environment, NAME=value"`
	Umask   *int     `json:"umask,omitempty"`
	DryRun  bool     `json:"dry_run,omitempty" doc:"say what would happen, submit nothing"`
	// Interactive jobs are bound by the limit on interactive time.
	Interactive bool   `json:"interactive,omitempty"`
	Term        string `json:"term,omitempty" doc:"TERM for jobs with a terminal"`
}

// SubmitReply names what was accepted, in the order of the request.
type SubmitReply struct {
	Jobs []Submitted `json:"jobs"`
}

// Submitted is one accepted job, or with dry_run what would become of it.
type Submitted struct {
	ID    string `json:"id" doc:"an array's: its base id; empty with dry_run"`
	Name  string `json:"name"`
	Tasks int    `json:"tasks,omitempty" doc:"of an array"`
	// With dry_run: what it would do, and why.
	State  string   `json:"state,omitempty" doc:"dry_run: starts, waits, or infeasible"`
	Reason string   `json:"reason,omitempty"`
	GPUIDs []int    `json:"gpu_ids,omitempty"`
	Notes  []string `json:"notes,omitempty" doc:"what the caller should know"`
}

// Select says which jobs a request is about. Words are ids and ranges as a
// person types them (1-3,7 12 @ @~1 17_0 all); the rest narrows them down.
// With neither words nor All, Name, User or States must select.
type Select struct {
	Words  []string `json:"ids,omitempty"`
	All    bool     `json:"all,omitempty"`
	Name   string   `json:"name,omitempty"`
	User   string   `json:"user,omitempty"`
	States []string `json:"states,omitempty" doc:"queued running parked finished failed cancelled, or held"`
}

// Query is a page of jobs.
type Query struct {
	Select
	// Over includes jobs that are over; Words do so too.
	Over bool `json:"over,omitempty"`
	// Newest lists the newest first, by their end where they are over.
	Newest bool       `json:"newest,omitempty"`
	Since  *time.Time `json:"since,omitempty" doc:"only what ended after this"`
	Limit  int        `json:"limit,omitempty" doc:"at most this many; 0: 1000; at most 10000"`
	After  string     `json:"after,omitempty" doc:"the cursor of an earlier page"`
	// Reasons asks why each queued job waits.
	Reasons bool `json:"reasons,omitempty"`
	// Order asks for the order in which queued jobs come up.
	Order bool `json:"order,omitempty"`
	// Idle leaves out all but those that have an idle_since.
	Idle bool `json:"idle,omitempty"`
}

// JobPage is a page of jobs and what there is in all.
type JobPage struct {
	Jobs   []job.View     `json:"jobs"`
	Next   string         `json:"next,omitempty" doc:"cursor of the next page; empty: this was the last"`
	Total  int            `json:"total" doc:"how many jobs match in all"`
	Counts map[string]int `json:"counts" doc:"by state, over the whole queue"`
	Order  []string       `json:"order,omitempty" doc:"where it was asked for, on the last page: the first 10000 queued jobs as they come up for their turn"`
}

// Detail is everything about one job.
type Detail struct {
	job.View
	Array       string            `json:"array,omitempty"`
	Held        bool              `json:"held"`
	Position    int               `json:"position,omitempty" doc:"place in the queue, from 1"`
	NotBefore   *time.Time        `json:"not_before"`
	Dir         string            `json:"dir,omitempty"`
	TimeLimitS  float64           `json:"time_limit_s,omitempty"`
	Settings    map[string]string `json:"settings,omitempty" doc:"every other key that was set"`
	After       []job.Dependency  `json:"after,omitempty"`
	Env         map[string]string `json:"env,omitempty"`
	RetriesUsed int               `json:"retries_used,omitempty"`
	Requeues    int               `json:"requeues,omitempty"`
	UUIDs       []string          `json:"gpu_uuids,omitempty"`
	BudgetMiB   int64             `json:"budget_mib,omitempty"`
	Verdict     string            `json:"verdict,omitempty" doc:"declared against measured memory"`
	Stopping    string            `json:"stopping,omitempty" doc:"why it is being ended"`
	LogDropped  int64             `json:"log_dropped,omitempty" doc:"bytes taken out of the middle of its log to keep it within its limit; known once the attempt is over"`
	Events      []Event           `json:"events,omitempty" doc:"what happened to it, oldest first"`

	ExpectedRun  *RunGuess  `json:"expected_run,omitempty" doc:"how long it is expected to run; left out where nothing is known"`
	ExpectedVRAM *VRAMGuess `json:"expected_vram,omitempty" doc:"what it is expected to use on each of its cards; left out where nothing is known"`
}

// The actions on jobs.
const (
	ActCancel  = "cancel"
	ActHold    = "hold"
	ActRelease = "release"
	ActRequeue = "requeue"
)

// ActRequest does one thing to the selected jobs.
type ActRequest struct {
	Action string `json:"action" enum:"cancel,hold,release,requeue"`
	Select Select `json:"select"`
	// GraceS shortens the time between TERM and KILL; nil: the job's own.
	GraceS *float64 `json:"grace_s,omitempty"`
}

// ActReply says what was done to each job.
type ActReply struct {
	Jobs []Acted `json:"jobs"`
}

// Acted is one job of an action.
type Acted struct {
	ID    string `json:"id"`
	Done  bool   `json:"done"`
	State string `json:"state,omitempty"`
	What  string `json:"what" doc:"what was done, or why not"`
}

// EditRequest changes a job that has not started.
type EditRequest struct {
	Set Spec `json:"set" doc:"the keys to change; command may be left out"`
}

// WaitRequest waits for the selected jobs to end.
type WaitRequest struct {
	Select   Select  `json:"select"`
	TimeoutS float64 `json:"timeout_s,omitempty" doc:"answer after this long at the latest; at most 60"`
	Any      bool    `json:"any,omitempty" doc:"the first end is enough"`
}

// WaitReply is how the jobs stand.
type WaitReply struct {
	Done bool       `json:"done"`
	Jobs []job.View `json:"jobs"`
}

// LogQuery is a part of a job's log.
type LogQuery struct {
	ID      string
	Attempt int   // 0: the latest
	Offset  int64 // from this byte; negative: that many bytes from the end
	Lines   int   // only the last so many lines, instead of Offset; 0: all
	Follow  bool  // until the job is over

	pieces bool // end at a gap, for a reader that counts bytes
}

// Event is one thing that happened.
type Event struct {
	Seq  int64         `json:"seq,omitempty"`
	Time time.Time     `json:"time"`
	Kind job.EventKind `json:"event"`
	Job  *job.View     `json:"job,omitempty"`
	Text string        `json:"text,omitempty"`
	GPU  *int          `json:"gpu,omitempty" doc:"with the kind card: which; left out, all of them"`
	By   string        `json:"by,omitempty" doc:"with the kind card: the person who did it"`
	GPUs []GPU         `json:"gpus,omitempty" doc:"with the kind gpus: the cards as they are now"`
}

// EventQuery is which events a stream carries.
type EventQuery struct {
	Since int64  // those after this number, from what is kept; -1: only new ones
	User  string // only jobs of this user
	Job   string // only this job, or the tasks of this array
	GPUs  bool   // also changes of the cards
}

// StatsQuery is a window of history.
type StatsQuery struct {
	Since *time.Time
	Until *time.Time
	User  string
}

// Stats is what the machine did.
type Stats struct {
	Since    time.Time `json:"since"`
	Until    time.Time `json:"until"`
	GPUs     int       `json:"gpus"`
	GPUHours float64   `json:"gpu_hours"`
	Util     *float64  `json:"utilisation" doc:"share of the cards' time that was given out, 0 to 1"`
	// UtilSince is where utilisation is counted from, if not from Since.
	UtilSince *time.Time  `json:"utilisation_since,omitempty" doc:"the first submission, where that came after since: utilisation is counted from there"`
	AvgUtil   *float64    `json:"avg_util" doc:"measured use of the cards given out, percent"`
	All       StatsLine   `json:"all"`
	Users     []StatsLine `json:"users"`
	Days      []StatsLine `json:"days"`
}

// StatsLine sums up the jobs of one user, one day, or all. Jobs count where
// they ended.
type StatsLine struct {
	Key       string   `json:"key"`
	Jobs      int      `json:"jobs"`
	Finished  int      `json:"finished"`
	Failed    int      `json:"failed"`
	Cancelled int      `json:"cancelled"`
	GPUHours  float64  `json:"gpu_hours"`
	WaitMeanS *float64 `json:"wait_mean_s"`
	WaitP50S  *float64 `json:"wait_p50_s"`
	WaitP95S  *float64 `json:"wait_p95_s"`
	WaitMaxS  *float64 `json:"wait_max_s"`
	RunMeanS  *float64 `json:"run_mean_s"`
	AvgUtil   *float64 `json:"avg_util"`
}

// Status is the daemon itself.
type Status struct {
	Version  string         `json:"version"`
	PID      int            `json:"pid"`
	Since    time.Time      `json:"since"`
	Shared   bool           `json:"shared"`
	User     string         `json:"user" doc:"whose daemon it is"`
	StateDir string         `json:"state_dir"`
	Config   string         `json:"config,omitempty"`
	SimDir   string         `json:"sim_dir,omitempty"`
	Source   string         `json:"source,omitempty" doc:"how the cards are read: NVML, nvidia-smi, simulated GPUs"`
	Counts   map[string]int `json:"counts"`
	Blocked  string         `json:"blocked,omitempty" doc:"why nothing starts"`
	You      Caller         `json:"you"`
	Enforced *Enforced      `json:"enforced,omitempty" doc:"what jobs are held to"`
}

// Enforced is what a daemon holds its jobs to, as its host lets it.
type Enforced struct {
	Cgroup  string   `json:"cgroup,omitempty" doc:"where jobs get cgroups of their own; empty: they have none"`
	CPUs    string   `json:"cpus,omitempty" doc:"v2 or v1: the version of cgroups that holds jobs to their cpus; empty: they are only accounted"`
	Mem     string   `json:"mem,omitempty" doc:"the same for mem"`
	Devices bool     `json:"devices" doc:"jobs can open no cards but their own"`
	Missing []string `json:"missing,omitempty" doc:"what is missing and why, one sentence each"`
}

// TokenRequest makes a token for remote access, with the rights of the caller.
type TokenRequest struct {
	Name string `json:"name,omitempty"`
	TTLS int64  `json:"ttl_s,omitempty" doc:"seconds it is good for; 0: 30 days"`
}

// Token is one; the secret is shown once.
type Token struct {
	ID      string    `json:"id"`
	Name    string    `json:"name,omitempty"`
	User    string    `json:"user"`
	Expires time.Time `json:"expires"`
	Secret  string    `json:"secret,omitempty"`
}
