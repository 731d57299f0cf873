package api

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// SubmitRequest is one or many jobs, accepted together or not at all.
type SubmitRequest struct {
	Jobs    []Spec   `json:"jobs" minItems:"1"`
	Dir     string   `json:"dir,omitempty" doc:"directory of jobs that name none"`
	Environ []string `json:"environ,omitempty" doc:"the caller's environment, NAME=value"`
	// EnvironBytes are variables that JSON cannot hold.
	EnvironBytes [][]byte `json:"environ_bytes,omitempty" doc:"variables that are not UTF-8, in base64"`
	Umask        *int     `json:"umask,omitempty"`
	DryRun       bool     `json:"dry_run,omitempty" doc:"only say what would happen"`
	// Interactive jobs are subject to the limit on interactive time.
	Interactive bool   `json:"interactive,omitempty"`
	Term        string `json:"term,omitempty" doc:"TERM for jobs with a terminal"`
	// Snapshots are copies that the caller has made; the key snapshot of a job
	// names the tree of one of them.
	Snapshots []job.Snapshot `json:"snapshots,omitempty" doc:"copies of code that jobs of this request run"`
	// CanSnapshot: the caller makes the copies that the config asks for, so its jobs
	// are refused if they say nothing (WantsSnapshots). Nobody has to ask for the
	// config before each submission, and an older daemon does not mind the header.
	CanSnapshot bool   `json:"-"`
	Batch       *Batch `json:"batch,omitempty" doc:"the jobs are all the lines of a jobs file: those that the queue has are not submitted again, and jobs of other lines that have not started are withdrawn"`
}

// Batch says which jobs file the jobs of a request are.
type Batch struct {
	File  string      `json:"file" doc:"its absolute path"`
	Lines []BatchLine `json:"lines" doc:"of each job"`
	Retry string      `json:"retry,omitempty" doc:"which jobs that have ended run again: failed (and cancelled), or all"`
	// First is what a berth run sends first. The queue of a run alone has jobs of
	// files that are not run any more.
	First   bool `json:"first,omitempty" doc:"the first request of a berth run: waiting jobs get the code that it brings, and in the queue of a run, waiting jobs of other files are withdrawn"`
	Lenient bool `json:"lenient,omitempty" doc:"a line that can never run on this machine is accepted, and ends infeasible; limits of users hold as ever"`
	AnyFile bool `json:"any_file,omitempty" doc:"in the queue of a berth run: jobs of every file count as this one's"`
}

// What Batch.Retry can be.
const (
	RetryFailed = "failed"
	RetryAll    = "all"
)

// BatchLine is where a job is in its file.
type BatchLine struct {
	Number int         `json:"number"`
	Params []job.Param `json:"params,omitempty" doc:"its parameters, if the line has a sweep, which makes it several jobs"`
	Cancel bool        `json:"cancel,omitempty" doc:"it is not to run: its job is cancelled, and a new one never starts"`
}

// SnapshotIDs are the snapshots of code that jobs of the caller refer to, ended
// ones included.
type SnapshotIDs struct {
	IDs []string `json:"ids"`
}

// SubmitReply lists what was accepted, in the order of the request.
type SubmitReply struct {
	Jobs      []Submitted `json:"jobs"`
	Withdrawn []string    `json:"withdrawn,omitempty" doc:"in a batch: jobs whose lines are gone"`
}

// Submitted is one accepted job, or with dry_run what would happen to it.
type Submitted struct {
	ID    string `json:"id" doc:"for an array its base id; empty with dry_run"`
	Name  string `json:"name"`
	Tasks int    `json:"tasks,omitempty" doc:"number of tasks of an array"`
	// Trials are with dry_run: the caller sees what each would run.
	Trials []TrialWords `json:"trials,omitempty" doc:"dry_run of a sweep: its trials"`
	// With dry_run: what it would do, and why.
	State  string `json:"state,omitempty" doc:"dry_run: starts, waits, or infeasible; in a batch: the state of a job that existed before, or cancelled"`
	Again  bool   `json:"again,omitempty" doc:"in a batch: it had ended, and runs again"`
	Reason string `json:"reason,omitempty"`
	GPUIDs []int  `json:"gpu_ids,omitempty"`
	// Request repeats what was asked for as berth understood it.
	Request string   `json:"request,omitempty" doc:"dry_run: the request in words"`
	Notes   []string `json:"notes,omitempty" doc:"remarks for the caller"`
}

// JobID names a job.
type JobID struct {
	ID string `path:"id" json:"-" eg:"17" about:"a job id: 17, 17_0 for a task, @ for the caller's last job, @~1 for the one before"`
}

// Select says which jobs a request concerns. Words are ids and ranges as a user
// types them (1-3,7 12 @ @~1 17_0 all); the other fields narrow them down.
// Without words, All, Name, User, Group, Batch or States must be set.
type Select struct {
	Words  []string `json:"ids,omitempty" query:"id" eg:"17" about:"ids and ranges: 1-3,7 @ 17_0; may be repeated"`
	All    bool     `json:"all,omitempty" query:"all" about:"every job"`
	Name   string   `json:"name,omitempty" query:"name" about:"only jobs of this name"`
	User   string   `json:"user,omitempty" query:"user" about:"only jobs of this user"`
	Group  string   `json:"group,omitempty" query:"group" about:"only jobs of this group"`
	Batch  string   `json:"batch,omitempty" query:"batch" names:"file" about:"only the lines of this jobs file: its absolute path" doc:"the jobs file they are lines of"`
	States []string `json:"states,omitempty" query:"state" about:"only these states, including held; may be repeated" doc:"queued running parked finished failed cancelled, or held"`
}

// Query is a page of jobs. Words include jobs that have ended.
type Query struct {
	Select
	Over    bool       `query:"over" about:"include jobs that have ended"`
	Newest  bool       `query:"newest" about:"newest first; ended jobs by their end"`
	Since   *time.Time `query:"since" about:"only jobs that ended after this time"`
	Limit   int        `query:"limit" range:"0..10000" about:"at most this many; default 1000, at most 10000"`
	After   string     `query:"after" about:"the cursor of the previous page"`
	Reasons bool       `query:"reasons" about:"say why each queued job waits"`
	Order   bool       `query:"order" about:"include the order of the queue on the last page"`
	Idle    bool       `query:"idle" about:"only jobs that hold GPUs or CPUs and have not used them for long"`
	Queue   bool       `query:"queue" about:"the first jobs in the order of the queue: running ones, queued ones, those that ended, the latest first; there is no next page"`
	Arrays  bool       `query:"arrays" about:"sum up each array of the page; with queue, an array is its first task"`
	Batches bool       `query:"batches" about:"the same with the lines of jobs files that the caller may see; up to 20 jobs are listed one by one if all are lines of one file"`
}

// JobPage is a page of jobs, with totals.
type JobPage struct {
	Jobs   []job.View     `json:"jobs"`
	Next   string         `json:"next,omitempty" doc:"cursor of the next page; empty on the last page"`
	Total  int            `json:"total" doc:"how many jobs match in all"`
	Counts map[string]int `json:"counts" doc:"by state, over the whole queue"`
	Order  []string       `json:"order,omitempty" doc:"if requested, on the last page: the first 10000 queued jobs in order"`
	// Matching is with Queue, which has no next page.
	Matching map[string]int   `json:"matching,omitempty" doc:"with queue: how many jobs match, by state"`
	Arrays   map[string]Tasks `json:"arrays,omitempty" doc:"if requested: the arrays of this page, by id"`
	Batches  []BatchSum       `json:"batches,omitempty" doc:"if requested: the jobs files that jobs of this page are lines of"`

	written []byte // the beginning of its JSON, with the jobs that were added
}

// Tasks sums up the tasks of an array, or the lines of a jobs file.
type Tasks struct {
	Counts  map[string]int `json:"counts" doc:"how many tasks match, by state; ended ones always, unless a state was asked for"`
	Reason  string         `json:"reason,omitempty" doc:"with reasons: why the first queued task waits"`
	DoneAt  *time.Time     `json:"done_at,omitempty" doc:"with reasons: when the last of them is expected to end; left out if that is not known"`
	Command string         `json:"command,omitempty" doc:"of a sweep: with its placeholders"`
}

// Left says how far the jobs are and when they are expected to be done; empty: that
// is not known.
func (t Tasks) Left(now time.Time) string {
	if t.DoneAt == nil || !t.DoneAt.After(now) {
		return ""
	}
	all, ended := 0, 0
	for state, n := range t.Counts {
		if all += n; job.State(state).Terminal() {
			ended += n
		}
	}
	left := "about " + text.Span(t.DoneAt.Sub(now)) + " left"
	if ended == 0 {
		return left
	}
	return strconv.Itoa(100*ended/all) + "% done, " + left
}

// BatchSum sums up jobs that belong together: the lines of a jobs file, or the
// tasks of an array.
type BatchSum struct {
	File  string `json:"file,omitempty" doc:"the jobs file"`
	Array string `json:"array,omitempty" doc:"or the id of the array"`
	User  string `json:"user"`
	Tasks
}

// BatchQuery selects jobs files and arrays. Without a file: all with unfinished jobs.
type BatchQuery struct {
	File string `query:"file" names:"file" eg:"/home/ann/project/jobs.txt" about:"only this jobs file, even if all of its jobs have ended: its absolute path"`
	User string `query:"user" about:"whose; *: every user's; default: the caller's own"`
}

// String counts the tasks: "3 running, 4 queued, 1 failed".
func (t Tasks) String() string {
	var parts []string
	for _, state := range []job.State{job.Running, job.Queued, job.Parked, job.Finished, job.Failed, job.Cancelled} {
		if n := t.Counts[string(state)]; n > 0 {
			parts = append(parts, text.Grouped(n)+" "+string(state))
		}
	}
	return strings.Join(parts, ", ")
}

// ArrayDetail is what an array has in detail beside the keys of a job.
type ArrayDetail struct {
	Tasks
	GPUHours   float64    `json:"gpu_hours" doc:"of the last attempt of each task"`
	Limit      int        `json:"limit,omitempty" doc:"how many tasks may run at a time"`
	Failed     []job.View `json:"failed" doc:"the first tasks that failed, at most 10"`
	Unfinished []job.View `json:"unfinished" doc:"tasks that have not ended in the order of the queue, at most 50"`
}

// Detail is everything about one job.
type Detail struct {
	job.View
	Array       string            `json:"array,omitempty"`
	Tasks       *ArrayDetail      `json:"tasks,omitempty" doc:"only of an array: what it consists of"`
	Position    int               `json:"position,omitempty" doc:"place in the queue, from 1"`
	NotBefore   *time.Time        `json:"not_before"`
	Dir         string            `json:"dir,omitempty"`
	TimeLimitS  float64           `json:"time_limit_s,omitempty"`
	Settings    map[string]string `json:"settings,omitempty" doc:"all other keys that were set"`
	After       []job.Dependency  `json:"after,omitempty"`
	Env         map[string]string `json:"env,omitempty"`
	RetriesUsed int               `json:"retries_used,omitempty"`
	Requeues    int               `json:"requeues,omitempty"`
	UUIDs       []string          `json:"gpu_uuids,omitempty"`
	BudgetMiB   int64             `json:"budget_mib,omitempty"`
	Verdict     string            `json:"verdict,omitempty" doc:"declared compared with measured memory"`
	Stopping    string            `json:"stopping,omitempty" doc:"why it is being stopped"`
	Snapshot    *job.Snapshot     `json:"snapshot,omitempty" doc:"the copy of the code that it runs"`
	LogDropped  int64             `json:"log_dropped,omitempty" doc:"bytes dropped from the middle of its log to keep it within its limit; known once the attempt has ended"`
	TextDropped bool              `json:"text_dropped,omitempty" doc:"its text is no longer kept, only the beginning of its command, so it cannot be requeued"`
	Events      []Event           `json:"events,omitempty" doc:"what happened to it, oldest first"`
	Notes       []string          `json:"notes,omitempty" doc:"only after an edit: remarks for the caller"`
	Changed     int               `json:"changed,omitempty" doc:"only after an edit of an array: how many of its tasks were changed"`

	ExpectedRun  *RunGuess  `json:"expected_run,omitempty" doc:"estimated duration; left out without an estimate"`
	ExpectedVRAM *VRAMGuess `json:"expected_vram,omitempty" doc:"estimated memory on each of its GPUs; left out without an estimate"`
}

// One is an error if it is an array.
func (d *Detail) One() error {
	if d.Tasks == nil {
		return nil
	}
	tasks := 0
	for _, n := range d.Tasks.Counts {
		tasks += n
	}
	for _, v := range slices.Concat(d.Tasks.Unfinished, d.Tasks.Failed) {
		return ErrArray(d.ID, tasks, v.ID)
	}
	return ErrArray(d.ID, tasks, d.ID+"_0")
}

// ErrArray is for an array where one job is expected.
func ErrArray(word string, tasks int, such string) error {
	return problem.Newf(problem.Invalid, "choose one task, such as "+such, "expected one job; %.60s is an array of %d tasks", word, tasks)
}

// The actions on jobs.
const (
	ActCancel  = "cancel"
	ActHold    = "hold"
	ActRelease = "release"
	ActRequeue = "requeue"
	ActPark    = "park"
	ActUnpark  = "unpark"
	ActSaved   = "saved"
)

// Actions are all of them.
func Actions() []string {
	return []string{ActCancel, ActHold, ActRelease, ActRequeue, ActPark, ActUnpark, ActSaved}
}

// ActRequest carries out an action on the selected jobs.
type ActRequest struct {
	Action string `json:"action" enum:"cancel,hold,release,requeue,park,unpark,saved"`
	Select Select `json:"select"`
	// GraceS is the time between TERM and KILL; nil: the job's own.
	GraceS *float64 `json:"grace_s,omitempty"`
	// Until is for park; nil: until the job is unparked.
	Until *time.Time `json:"until,omitempty" doc:"for park: when the job may come back by itself; left out: when it is unparked"`
	// Changes are for requeue, of jobs that have ended.
	Changes *EditRequest `json:"changes,omitempty" doc:"for requeue: what jobs that have ended get instead"`
}

// ActReply reports the result for each job.
type ActReply struct {
	Jobs []Acted        `json:"jobs"`
	Left map[string]int `json:"left,omitempty" doc:"jobs, by state, that were selected with others (as part of an array, a range, a pattern or all) and had nothing to do"`
}

// Acted is one job of an action.
type Acted struct {
	ID    string `json:"id"`
	Done  bool   `json:"done"`
	State string `json:"state,omitempty"`
	What  string `json:"what" doc:"what was done, or why not"`
	// A client that waited until a job was parked or back adds these.
	HostMiB *int64   `json:"host_mib,omitempty" doc:"of berth park: the memory that was saved"`
	TookS   *float64 `json:"took_s,omitempty" doc:"of berth park and unpark: how long it took"`
}

// EditRequest is what a job is to have instead.
type EditRequest struct {
	JobID
	Set   Spec     `json:"set" doc:"the keys to change; command is optional"`
	Unset []string `json:"unset,omitempty" doc:"keys that get their default again; env.NAME removes a variable"`
}

// None reports whether nothing changes.
func (r *EditRequest) None() bool {
	return len(r.Unset) == 0 && len(r.Set.Pairs()) == 0 && r.Set.Command.Shell == "" && len(r.Set.Command.Argv) == 0
}

// What can be waited for.
const (
	WaitEnd     = "end"
	WaitParked  = "parked"
	WaitRunning = "running"
)

// WaitRequest waits for the selected jobs to end, or to be parked or resumed.
type WaitRequest struct {
	Select   Select  `json:"select"`
	TimeoutS float64 `json:"timeout_s,omitempty" doc:"reply after at most this many seconds; at most 60"`
	Any      bool    `json:"any,omitempty" doc:"reply when the first job has ended"`
	// For is one of the constants; empty: WaitEnd. A job that has ended is not
	// waited for in any case.
	For string `json:"for,omitempty" enum:"end,parked,running" doc:"end: until they have ended (the default); parked: until none is being parked any more, whether it is parked or goes on running; running: until they run on their GPUs"`
}

// WaitReply is the state of the jobs.
type WaitReply struct {
	Done bool       `json:"done"`
	Jobs []job.View `json:"jobs"`
}

// LogQuery is a part of a job's log.
type LogQuery struct {
	ID      string `path:"id" eg:"17" about:"a job id: 17, 17_0 for a task, @ for the caller's last job, @~1 for the one before"`
	Attempt int    `query:"attempt" about:"which attempt; default: the latest"`
	Offset  int64  `query:"offset" range:"-4611686018427387904..4611686018427387904" about:"start at this byte; negative: this many bytes before the end"`
	Lines   int    `query:"lines" about:"only this many last lines, instead of offset"`
	Follow  bool   `query:"follow" about:"continue until the job has ended"`
	Pieces  bool   `query:"pieces" about:"end the reply at a dropped part, instead of inserting a line"`
}

// Event is one thing that happened.
type Event struct {
	Seq  int64         `json:"seq,omitempty"`
	Time time.Time     `json:"time"`
	Kind job.EventKind `json:"event"`
	Job  *job.View     `json:"job,omitempty"`
	Text string        `json:"text,omitempty"`
	GPU  *int          `json:"gpu,omitempty" doc:"for the kind card: which GPU; left out: all of them"`
	By   string        `json:"by,omitempty" doc:"for the kind card: the user who did it"`
	Bad  bool          `json:"bad,omitempty" doc:"for the kind card: it accepts no jobs now"`
	GPUs []GPU         `json:"gpus,omitempty" doc:"for the kind gpus: the GPUs as they are now"`

	written []byte // its JSON, if it goes to several callers
}

// EventQuery selects the events of a stream.
type EventQuery struct {
	Since int64  `query:"since" range:"-1..4611686018427387904" about:"stored events after this number; -1: only new ones"`
	User  string `query:"user" about:"only jobs of this user"`
	Job   string `query:"job" about:"only this job, or the tasks of this array"`
	GPUs  bool   `query:"gpus" about:"also changes of the GPUs"`
}

// StatsQuery selects a period.
type StatsQuery struct {
	Since *time.Time `query:"since" about:"beginning of the period"`
	Until *time.Time `query:"until" about:"end of the period; default: now"`
	User  string     `query:"user" about:"only this user"`
}

// Stats is the usage of the machine.
type Stats struct {
	Since    time.Time `json:"since"`
	Until    time.Time `json:"until"`
	GPUs     int       `json:"gpus"`
	GPUHours float64   `json:"gpu_hours"`
	CPUHours float64   `json:"cpu_hours" doc:"CPUs that jobs held, times the time they ran"`
	Util     *float64  `json:"utilisation" doc:"GPU allocation: the share of the GPUs' time that was allocated, 0 to 1"`
	// UtilSince is where utilisation is counted from, if not from Since.
	UtilSince *time.Time  `json:"utilisation_since,omitempty" doc:"the first submission, if that is after since: utilisation is counted from there"`
	AvgUtil   *float64    `json:"avg_util" doc:"GPU utilisation: measured use of the allocated GPUs, percent"`
	All       StatsLine   `json:"all"`
	Users     []StatsLine `json:"users"`
	Days      []StatsLine `json:"days"`
}

// StatsLine is the sum over the jobs of one user, one day, or all. Jobs count on
// the day they ended.
type StatsLine struct {
	Key       string   `json:"key"`
	Jobs      int      `json:"jobs"`
	Finished  int      `json:"finished"`
	Failed    int      `json:"failed"`
	Cancelled int      `json:"cancelled"`
	GPUHours  float64  `json:"gpu_hours"`
	CPUHours  float64  `json:"cpu_hours"`
	WaitMeanS *float64 `json:"wait_mean_s"`
	WaitP50S  *float64 `json:"wait_p50_s"`
	WaitP95S  *float64 `json:"wait_p95_s"`
	WaitMaxS  *float64 `json:"wait_max_s"`
	RunMeanS  *float64 `json:"run_mean_s"`
	AvgUtil   *float64 `json:"avg_util"`
	Parkings  int      `json:"parkings" doc:"how often the jobs were parked"`
	ParkedS   float64  `json:"parked_s" doc:"for how long"`
	LostS     float64  `json:"lost_s" doc:"of jobs that save their own work: how long their earlier attempts ran in vain"`
}

// Status is the daemon's state.
type Status struct {
	Version    string         `json:"version"`
	PID        int            `json:"pid"`
	Since      time.Time      `json:"since"`
	Shared     bool           `json:"shared"`
	User       string         `json:"user" doc:"the user the daemon runs as"`
	StateDir   string         `json:"state_dir"`
	Config     string         `json:"config,omitempty"`
	AdminGroup *string        `json:"admin_group,omitempty" doc:"of a shared daemon: the group whose members administer it beside root; empty: only root does"`
	SimDir     string         `json:"sim_dir,omitempty"`
	Source     string         `json:"source,omitempty" doc:"how the GPUs are read: NVML, nvidia-smi, simulated GPUs"`
	Counts     map[string]int `json:"counts"`
	Blocked    string         `json:"blocked,omitempty" doc:"why nothing starts"`
	HTTP       string         `json:"http,omitempty" doc:"the address for HTTP, if it listens there"`
	Metrics    string         `json:"metrics,omitempty" doc:"the address for metrics, if it listens there"`
	Warnings   []string       `json:"warnings,omitempty" doc:"what does not work at the moment, or is unsafe, a sentence each"`
	Strays     int            `json:"strays,omitempty" doc:"supervisors that the store does not know"`
	Snapshot   bool           `json:"snapshot,omitempty" doc:"jobs run a snapshot of their code unless they ask for none"`
	You        Caller         `json:"you"`
	Enforced   *Enforced      `json:"enforced,omitempty" doc:"which limits of jobs are enforced"`
	Parking    *Parking       `json:"parking,omitempty" doc:"whether and how fast jobs are parked"`
}

// Parking is how a daemon parks jobs.
type Parking struct {
	Jobs     string  `json:"jobs" doc:"which jobs are parked for others: preemptible, all or off"`
	Cannot   string  `json:"cannot,omitempty" doc:"why no job can be parked"`
	OutMiBs  float64 `json:"out_mib_s" doc:"how fast memory leaves the GPUs, as measured here"`
	BackMiBs float64 `json:"back_mib_s" doc:"how fast it comes back"`
	HostMiB  int64   `json:"host_mib" doc:"host memory that parked jobs hold"`
	RoomMiB  *int64  `json:"host_room_mib" doc:"host memory that more of them may take; null: not known"`
}

// Enforced is which limits a daemon can enforce on its host.
type Enforced struct {
	Cgroup  string   `json:"cgroup,omitempty" doc:"parent of the jobs' cgroups; empty: they have none"`
	CPUs    string   `json:"cpus,omitempty" doc:"the cgroup version that enforces cpus: v2 or v1; empty: cpus are only accounted for"`
	Mem     string   `json:"mem,omitempty" doc:"the cgroup version that enforces mem, likewise"`
	Devices bool     `json:"devices" doc:"jobs can open only their own GPUs"`
	Missing []string `json:"missing,omitempty" doc:"what is missing and why, a sentence each"`
}

// TokenRequest creates a token for remote access, with the caller's permissions.
type TokenRequest struct {
	Name string `json:"name,omitempty"`
	TTLS int64  `json:"ttl_s,omitempty" doc:"seconds it is valid; 0: 30 days"`
}

// Token is a token; the secret is shown only once.
type Token struct {
	ID      string    `json:"id"`
	Name    string    `json:"name,omitempty"`
	User    string    `json:"user"`
	Expires time.Time `json:"expires"`
	// Used is the last use since the daemon started.
	Used     *time.Time `json:"used,omitempty" doc:"when it was last used, since the daemon started"`
	UsedFrom string     `json:"used_from,omitempty" doc:"the address of that request; none behind a proxy"`
	Secret   string     `json:"secret,omitempty"`
}

// TokenID names a token.
type TokenID struct {
	ID string `path:"id" json:"-" eg:"k7" about:"the token's id"`
}

// RevokeQuery says whose tokens are revoked.
type RevokeQuery struct {
	User string `query:"user" about:"whose; the caller's own by default"`
}

// Revoked lists the tokens that were revoked together.
type Revoked struct {
	IDs []string `json:"ids"`
}

func (r *Revoked) fill() { r.IDs = list(r.IDs) }

// ReloadRequest has the daemon read its config again.
type ReloadRequest struct {
	DryRun bool    `json:"dry_run,omitempty" doc:"change nothing; say what would change"`
	Text   *string `json:"text,omitempty" doc:"with dry_run: the text of a config, judged instead of the daemon's file"`
}

// Reloaded is what came of it.
type Reloaded struct {
	Config   string   `json:"config" doc:"the daemon's config file"`
	Changed  []string `json:"changed" doc:"keys whose new value applies at once"`
	Restart  []string `json:"restart" doc:"keys whose new value applies after a restart"`
	Warnings []string `json:"warnings" doc:"settings that have no effect on this machine, or are unsafe, a sentence each"`
}
