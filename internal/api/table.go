package api

import (
	"encoding/json"
	"net/http"

	"berth/internal/text/problem"
)

const (
	get    = http.MethodGet
	post   = http.MethodPost
	patch  = http.MethodPatch
	remove = http.MethodDelete
)

// attachProtocol is what a connection is upgraded to for a job's terminal. After
// that the bytes go between the client and the supervisor, unread.
const attachProtocol = "berth-attach"

const (
	metricsPath = "/metrics"
	metricsType = "text/plain; version=0.0.4; charset=utf-8"
)

// Endpoints of jobs.
var (
	Submit = &Endpoint[SubmitRequest, SubmitReply]{Operation{
		Method: post, Path: "/v1/jobs", Body: submitBody, heavy: true,
		ID: "submit", Tag: "jobs", Summary: "Submit jobs",
		About:    "Accepts all jobs of the request or none. They are on disk before the reply is sent. With dry_run nothing is submitted, and the reply says what would happen.",
		Problems: []problem.Kind{problem.Invalid, problem.Refused, problem.TooMuch},
	}}
	ListJobs = &Endpoint[Query, JobPage]{Operation{
		Method: get, Path: "/v1/jobs", Ended: true, heavy: true, sliced: true,
		ID: "list", Tag: "jobs", Summary: "List jobs",
		About:    "A page of jobs: unfinished ones, unless over, id or state asks for others. next is the cursor of the next page.",
		Problems: []problem.Kind{problem.Invalid},
	}}
	GetJob = &Endpoint[JobID, Detail]{Operation{
		Method: get, Path: "/v1/jobs/{id}", Ended: true,
		ID: "show", Tag: "jobs", Summary: "Show a job",
		About:    "Everything about one job. Only its owner sees the command and the variables. The id of an array gives what its tasks have in common, and tasks sums them up.",
		Problems: []problem.Kind{problem.NotFound},
	}}
	GetWhy = &Endpoint[JobID, Why]{Operation{
		Method: get, Path: "/v1/jobs/{id}/why", Ended: true,
		ID: "why", Tag: "jobs", Summary: "Say why a job waits",
		About:    "The reason as a sentence with numbers; of an array, that of its first waiting task. For a queued job also every GPU with what is missing and the jobs on it, the job ahead and why it goes first, its reservation, and when it is expected to start, with the sources of that estimate.",
		Problems: []problem.Kind{problem.NotFound},
	}}
	Act = &Endpoint[ActRequest, ActReply]{Operation{
		Method: post, Path: "/v1/jobs/act", Body: smallBody,
		ID: "act", Tag: "jobs", Summary: "Cancel, hold, release or requeue jobs",
		About:    "Carries out the action on the selected jobs and reports the result for each. A job that it fails for does not affect the others.",
		Problems: []problem.Kind{problem.Invalid, problem.NotFound, problem.Forbidden},
	}}
	EditJob = &Endpoint[EditRequest, Detail]{Operation{
		Method: patch, Path: "/v1/jobs/{id}", Body: specBody,
		ID: "edit", Tag: "jobs", Summary: "Change a queued job",
		About:    "Sets the given keys of a queued job; the others stay as they are. The id of an array changes all of its tasks that are queued.",
		Problems: []problem.Kind{problem.Invalid, problem.NotFound, problem.Forbidden, problem.Refused},
	}}
	ListSnapshots = &Endpoint[None, SnapshotIDs]{Operation{
		Method: get, Path: "/v1/snapshots", Ended: true, heavy: true, long: true,
		ID: "snapshots", Tag: "jobs", Summary: "List the snapshots in use",
		About: "The ids of the snapshots of code that the caller's jobs refer to, including jobs that have ended and could run again. Whoever made other snapshots can remove them.",
	}}
	ListBatches = &Endpoint[BatchQuery, []BatchSum]{Operation{
		Method: get, Path: "/v1/batches", Ended: true, heavy: true, sliced: true,
		ID: "batches", Tag: "jobs", Summary: "Sum up jobs files and arrays",
		About:    "How many jobs of each there are in every state, why the first queued one waits, and when the last one is expected to end. Without file: those that have unfinished jobs, at most 200, the oldest first.",
		Problems: []problem.Kind{problem.Invalid},
	}}
	ListSweeps = &Endpoint[SweepQuery, []SweepSum]{Operation{
		Method: get, Path: "/v1/sweeps", Ended: true, heavy: true, sliced: true,
		ID: "sweeps", Tag: "jobs", Summary: "List sweeps",
		About:    "Sweeps with unfinished trials, the newest first, and how many of their trials there are in every state. To submit one, submit a job with the key sweep; every request that takes a job takes its id.",
		Problems: []problem.Kind{problem.Invalid},
	}}
	ListTrials = &Endpoint[TrialQuery, TrialTable]{Operation{
		Method: get, Path: "/v1/trials", Ended: true, heavy: true, sliced: true,
		ID: "trials", Tag: "jobs", Summary: "Show the results of a sweep",
		About:    "A row for each trial of a sweep, task of an array or line of a jobs file, with its parameters, its outcome and the metrics picked from the log of its last attempt. Only users who may read the logs get metrics.",
		Problems: []problem.Kind{problem.Invalid, problem.NotFound, problem.TooMuch},
	}}
	AddTrials = &Endpoint[MoreTrials, AddedTrials]{Operation{
		Method: post, Path: "/v1/jobs/{id}/trials", Body: specBody,
		ID: "add-trials", Tag: "jobs", Summary: "Add trials to a sweep",
		About:    "New values of parameters, each combined with the values that the sweep has of the others. A trial that the sweep has is not added again. New trials get the settings and the environment of the others.",
		Problems: []problem.Kind{problem.Invalid, problem.NotFound, problem.Forbidden, problem.Refused, problem.TooMuch},
	}}
	WaitForJobs = &Endpoint[WaitRequest, WaitReply]{Operation{
		Method: post, Path: "/v1/jobs/wait", Body: smallBody, Ended: true, waits: true,
		ID: "wait", Tag: "jobs", Summary: "Wait for jobs to end, or to be parked or resumed",
		About:    "Replies when the selected jobs have ended, or after timeout_s (at most a minute) with done: false. Ask again to keep waiting.",
		Problems: []problem.Kind{problem.Invalid, problem.NotFound, problem.TooMuch},
	}}
	Adopt = &Endpoint[AdoptRequest, Detail]{Operation{
		Method: post, Path: "/v1/adopt", Body: smallBody,
		ID: "adopt", Tag: "jobs", Summary: "Account for a process that berth did not start",
		About: "Makes a job that represents the process, on the GPUs that it uses. The process is left alone: cancelling the job only ends the accounting. " +
			"The process must belong to the caller, unless the caller is an administrator.",
		Problems: []problem.Kind{problem.Invalid, problem.NotFound, problem.Forbidden, problem.Refused, problem.TooMuch, problem.Unable},
	}}
	ListStrays = &Endpoint[None, []Stray]{Operation{
		Method: get, Path: "/v1/strays", Ended: true,
		ID: "strays", Tag: "jobs", Summary: "List supervisors that the store does not know",
		About: "They are left alone, and their GPUs stay allocated. The caller's own; for administrators, every user's.",
	}}
	AdoptStrays = &Endpoint[AdoptStraysRequest, []AdoptedStray]{Operation{
		Method: post, Path: "/v1/strays/adopt", Body: smallBody,
		ID: "adopt-strays", Tag: "jobs", Summary: "Take the jobs of such supervisors back into the queue",
		About:    "Each job continues under its supervisor, with the id it had. The reply has a result for each stray.",
		Problems: []problem.Kind{problem.Invalid, problem.TooMuch, problem.Unable},
	}}
)

// Streams, which have handlers (Streams) and callers of their own.
var (
	readLog = &Endpoint[LogQuery, None]{Operation{
		Method: get, Path: "/v1/jobs/{id}/log", Ended: true,
		ID: "log", Tag: "streams", Summary: "Read a job's log",
		About: "The bytes of the log; with follow, new ones until the job has ended. The header Berth-Log-Offset is the position of the first byte, Berth-Log-Attempt the attempt. " +
			"The trailer Berth-Log-End is complete when the log ended properly; stopping, or no trailer, means that the daemon went down: ask again with the attempt and the next offset. " +
			"Where a part of an oversized log was dropped, a line says so; with pieces the reply ends there with gap, and the trailer Berth-Log-Next is the offset at which to continue.",
		Problems: []problem.Kind{problem.Invalid, problem.NotFound, problem.Forbidden, problem.TooMuch}, Media: "application/octet-stream",
	}}
	attachTo = &Endpoint[JobID, None]{Operation{
		Method: post, Path: "/v1/jobs/{id}/attach",
		ID: "attach", Tag: "streams", Summary: "Attach to a job's terminal",
		About:    "Needs the headers Connection: Upgrade and Upgrade: " + attachProtocol + ". After the 101 the connection carries the frames of the job's supervisor both ways.",
		Problems: []problem.Kind{problem.Invalid, problem.NotFound, problem.Forbidden, problem.Refused, problem.TooMuch}, Status: http.StatusSwitchingProtocols,
	}}
	followEvents = &Endpoint[EventQuery, None]{Operation{
		Method: get, Path: "/v1/events",
		ID: "events", Tag: "streams", Summary: "Follow events",
		About: "Server-sent events; the data of each is one event as JSON. Stored events have an id; Last-Event-ID or since resumes after it. " +
			"A comment is sent every 15 seconds. The event named end means that the daemon is stopping, the one named error that it cannot continue; both carry a problem.",
		Problems: []problem.Kind{problem.Invalid, problem.TooMuch}, Media: "text/event-stream",
	}}
	copyStore = &Endpoint[None, None]{Operation{
		Method: post, Path: "/v1/backup", Need: Administrator, heavy: true,
		ID: "backup", Tag: "daemon", Summary: "Copy the store",
		About:    "A consistent copy of the daemon's database, made while it runs. For administrators.",
		Problems: []problem.Kind{problem.Forbidden}, Media: "application/octet-stream",
	}}
)

// Endpoints of what jobs and GPUs used.
var (
	GetJobSamples = &Endpoint[JobSamplesQuery, Samples]{Operation{
		Method: get, Path: "/v1/jobs/{id}/samples", Ended: true, heavy: true, long: true,
		ID: "job-samples", Tag: "jobs", Summary: "Read what a job used over time",
		About:    "Memory on each of its GPUs, and how busy those were. Only users who may see the job's command get them. A reply has at most 2000 points for each attempt and GPU and 20000 in all; more are merged.",
		Problems: []problem.Kind{problem.Invalid, problem.NotFound, problem.Forbidden},
	}}
	GetGPUSamples = &Endpoint[GPUSamplesQuery, Samples]{Operation{
		Method: get, Path: "/v1/gpus/{index}/samples", heavy: true, long: true,
		ID: "gpu-samples", Tag: "gpus", Summary: "Read what a GPU did over time",
		About:    "Memory, utilisation, power and temperature.",
		Problems: []problem.Kind{problem.Invalid, problem.NotFound},
	}}
)

// Endpoints of groups of jobs.
var (
	ListGroups = &Endpoint[GroupQuery, []Group]{Operation{
		Method: get, Path: "/v1/groups", Ended: true,
		ID: "groups", Tag: "groups", Summary: "List groups",
		About:    "Groups that are limited or paused or have unfinished jobs, by name: the caller's own, unless user says otherwise.",
		Problems: []problem.Kind{problem.Invalid},
	}}
	SetGroup = &Endpoint[GroupRequest, Group]{Operation{
		Method: post, Path: "/v1/groups/{name}", Body: smallBody,
		ID: "set-group", Tag: "groups", Summary: "Limit, pause or resume a group",
		About:    "Running jobs go on. A limit of 0 is refused: pause the group instead.",
		Problems: []problem.Kind{problem.Invalid, problem.Forbidden, problem.TooMuch},
	}}
	RemoveGroup = &Endpoint[GroupRemoval, None]{Operation{
		Method: remove, Path: "/v1/groups/{name}",
		ID: "remove-group", Tag: "groups", Summary: "Remove a group",
		About:    "Lifts its limit and its pause. Its jobs keep the name.",
		Problems: []problem.Kind{problem.Invalid, problem.NotFound, problem.Forbidden}, Status: http.StatusNoContent,
	}}
)

// Endpoints of messages.
var (
	GetNotify = &Endpoint[NotifyQuery, Notify]{Operation{
		Method: get, Path: "/v1/notify", Ended: true,
		ID: "notify", Tag: "messages", Summary: "Show who is told about the caller's jobs",
		About:    "The caller's rules, and the messages that are not delivered.",
		Problems: []problem.Kind{problem.Invalid},
	}}
	SetNotify = &Endpoint[NotifyRequest, Notify]{Operation{
		Method: patch, Path: "/v1/notify", Body: smallBody,
		ID: "set-notify", Tag: "messages", Summary: "Set who is told about the caller's jobs",
		About:    "Jobs with rules of their own are not affected.",
		Problems: []problem.Kind{problem.Invalid},
	}}
	SendNotify = &Endpoint[NotifyTest, []NotifyResult]{Operation{
		Method: post, Path: "/v1/notify/send", Body: smallBody, heavy: true,
		ID: "send-notify", Tag: "messages", Summary: "Send a message",
		About:    "Sends a test message now and says what came of it. With jobs, the message is about them and is stored before the reply.",
		Problems: []problem.Kind{problem.Invalid, problem.NotFound, problem.Refused},
	}}
)

// Endpoints of GPUs.
var (
	ListGPUs = &Endpoint[None, []GPU]{Operation{
		Method: get, Path: "/v1/gpus",
		ID: "gpus", Tag: "gpus", Summary: "List the GPUs",
		About: "Each GPU with its memory, the jobs and processes on it, and its health.",
	}}
	PauseGPU = &Endpoint[GPUIndex, GPU]{Operation{
		Method: post, Path: "/v1/gpus/{index}/pause", Need: Administrator,
		ID: "pause", Tag: "gpus", Summary: "Pause a GPU",
		About:    "No job starts there; running jobs continue. On a shared daemon only for administrators.",
		Problems: []problem.Kind{problem.NotFound, problem.Forbidden},
	}}
	ResumeGPU = &Endpoint[GPUIndex, GPU]{Operation{
		Method: post, Path: "/v1/gpus/{index}/resume", Need: Administrator,
		ID: "resume", Tag: "gpus", Summary: "Resume a GPU",
		About:    "Jobs may start there again.",
		Problems: []problem.Kind{problem.NotFound, problem.Forbidden},
	}}
	DrainGPU = &Endpoint[DrainRequest, Drained]{Operation{
		Method: post, Path: "/v1/gpus/{index}/drain", Body: smallBody, Need: Administrator,
		ID: "drain", Tag: "gpus", Summary: "Empty a GPU",
		About:    "Pauses the GPU and, with park, parks the jobs on it; they come back when it is resumed. The reply says for each job what happens to it. On a shared daemon only for administrators.",
		Problems: []problem.Kind{problem.Invalid, problem.NotFound, problem.Forbidden},
	}}
	SetHealth = &Endpoint[HealthRequest, GPU]{Operation{
		Method: post, Path: "/v1/gpus/{index}/health", Body: smallBody, Need: Administrator,
		ID: "health", Tag: "gpus", Summary: "Quarantine a GPU, or clear it",
		About:    "A GPU that an administrator quarantined stays so until an administrator clears it. One that berth quarantined and an administrator cleared is quarantined again only if the fault happens again. For administrators.",
		Problems: []problem.Kind{problem.Invalid, problem.NotFound, problem.Forbidden},
	}}
	ListCardEvents = &Endpoint[CardQuery, []CardEvent]{Operation{
		Method: get, Path: "/v1/gpus/history", Ended: true, heavy: true, long: true,
		ID: "gpu-history", Tag: "gpus", Summary: "List what happened to the GPUs",
		About:    "Changes of health, pauses and so on, newest first, as far back as events are kept.",
		Problems: []problem.Kind{problem.Invalid, problem.NotFound},
	}}
	ReleaseGPUs = &Endpoint[ReleaseRequest, Released]{Operation{
		Method: post, Path: "/v1/gpus/release", Body: smallBody, Need: Administrator,
		ID: "release-gpus", Tag: "gpus", Summary: "Release the driver",
		About:    "The daemon closes the driver for some time, so that GPUs can be reset or partitioned. No job starts on GPUs meanwhile. For administrators.",
		Problems: []problem.Kind{problem.Invalid, problem.Forbidden, problem.Refused},
	}}
)

// Endpoints of the daemon.
var (
	GetStatus = &Endpoint[None, Status]{Operation{
		Method: get, Path: "/v1/status",
		ID: "status", Tag: "daemon", Summary: "Show the daemon's status",
		About: "The daemon's version and state, and the caller's identity.",
	}}
	GetStats = &Endpoint[StatsQuery, Stats]{Operation{
		Method: get, Path: "/v1/stats", Ended: true, heavy: true,
		ID: "stats", Tag: "daemon", Summary: "Usage statistics",
		About:    "GPU-hours, waits and outcomes, in all, by user and by day.",
		Problems: []problem.Kind{problem.Invalid},
	}}
	GetReplay = &Endpoint[ReplayQuery, Replay]{Operation{
		Method: get, Path: "/v1/replay", Ended: true, waits: true,
		ID: "replay", Tag: "daemon", Summary: "Replay the history under other policies",
		About: "What berth simulate --history reports: how long the jobs that ended lately would have waited, and how the GPUs would have been used, under each policy. No job runs. " +
			"The daemon makes one replay at a time, of the last 20000 jobs at most; a replay that takes longer than 20 seconds ends with an error, and one whose caller hangs up ends at once.",
		Problems: []problem.Kind{problem.Invalid, problem.Refused, problem.TooMuch},
	}}
	Reload = &Endpoint[ReloadRequest, Reloaded]{Operation{
		Method: post, Path: "/v1/reload", Body: smallBody, Need: Administrator,
		ID: "reload", Tag: "daemon", Summary: "Read the config again",
		About:    "Replies once the new config is in force, with what changed. A config with mistakes changes nothing, and the problem lists them. With dry_run nothing changes either; text is then judged instead of the file. For administrators.",
		Problems: []problem.Kind{problem.Invalid, problem.Forbidden, problem.TooMuch},
	}}
	GetSnapshot = &Endpoint[None, json.RawMessage]{Operation{
		Method: get, Path: "/v1/debug/snapshot", Ended: true, heavy: true, long: true,
		ID: "snapshot", Tag: "daemon", Summary: "Copy the state that the daemon decides on",
		About: "The rules, the GPUs, the jobs on them, the queue in order, and users' usage: ids, users and amounts, no commands. " +
			"berth simulate continues from it. Its keys may change between versions.",
	}}
	scrape = &Endpoint[None, None]{Operation{
		Method: get, Path: metricsPath, Ended: true, heavy: true,
		ID: "metrics", Tag: "daemon", Summary: "Metrics for Prometheus",
		About:    "Counters and gauges of the queue, the GPUs and the daemon, in Prometheus's text format. No series names a job.",
		Problems: []problem.Kind{problem.Refused}, Media: metricsType,
	}}
)

// Endpoints of tokens, and sessions of browsers.
var (
	NewToken = &Endpoint[TokenRequest, Token]{Operation{
		Method: post, Path: "/v1/tokens", Body: smallBody,
		ID: "new-token", Tag: "tokens", Summary: "Create a token",
		About:    "For remote access with the caller's own permissions. The secret is shown only once.",
		Problems: []problem.Kind{problem.Invalid, problem.Forbidden, problem.TooMuch},
	}}
	ListTokens = &Endpoint[None, []Token]{Operation{
		Method: get, Path: "/v1/tokens",
		ID: "tokens", Tag: "tokens", Summary: "List tokens",
		About: "The caller's own tokens; for administrators, every user's.",
	}}
	RevokeTokens = &Endpoint[RevokeQuery, Revoked]{Operation{
		Method: remove, Path: "/v1/tokens",
		ID: "revoke-tokens", Tag: "tokens", Summary: "Revoke all tokens of a user",
		About:    "Sessions of browsers included, also the one that asks. Other users' tokens are for administrators.",
		Problems: []problem.Kind{problem.Forbidden},
	}}
	RevokeToken = &Endpoint[TokenID, None]{Operation{
		Method: remove, Path: "/v1/tokens/{id}",
		ID: "revoke-token", Tag: "tokens", Summary: "Revoke a token",
		About:    "It stops working with the next request.",
		Problems: []problem.Kind{problem.NotFound, problem.Forbidden}, Status: http.StatusNoContent,
	}}
	NewLogin = &Endpoint[LoginRequest, Login]{Operation{
		Method: post, Path: "/v1/logins", Body: maybeLogin,
		ID: "new-login", Tag: "tokens", Summary: "Create a one-time login for the page",
		About:    "Good for 5 minutes and one session. A private daemon that listens on no address opens a loopback one. Tokens cannot create logins. Root, and administrators of a shared daemon, get one only where the page has TLS.",
		Problems: []problem.Kind{problem.Forbidden, problem.Refused},
	}}
	OpenSession = &Endpoint[SessionRequest, Session]{Operation{
		Method: post, Path: "/v1/session", Body: loginBody, Need: Anyone,
		ID: "open-session", Tag: "tokens", Summary: "Open a session",
		About:    "For browsers. The secret is that of a one-time login or of a token. The session has no secret: each of its requests is signed with the private key, in the header Berth-Session. A session lasts a week at most, not longer than its token, and ends when the daemon listens on another socket.",
		Problems: []problem.Kind{problem.Invalid, problem.Forbidden, problem.TooMuch},
	}}
	EndSession = &Endpoint[None, None]{Operation{
		Method: remove, Path: "/v1/session",
		ID: "end-session", Tag: "tokens", Summary: "End the session of this request",
		About:    "Logs the browser out.",
		Problems: []problem.Kind{problem.Refused}, Status: http.StatusNoContent,
	}}
)

// What is not described: the description itself, and the page.
var (
	describeJSON = &Endpoint[None, None]{Operation{Method: get, Path: "/openapi.json", Hidden: true, Ended: true}}
	describeYAML = &Endpoint[None, None]{Operation{Method: get, Path: "/openapi.yaml", Hidden: true, Ended: true}}
	page         = &Endpoint[None, None]{Operation{Method: get, Path: "/{$}", Hidden: true, Need: Anyone, Ended: true}}
	asset        = &Endpoint[None, None]{Operation{Method: get, Path: "/assets/{file}", Hidden: true, Need: Anyone, Ended: true}}
)

// endpoints are all of them. Whatever is done for each loops over this list.
func endpoints() []operation {
	return []operation{
		Submit, ListJobs, GetJob, GetWhy, Act, EditJob, ListSnapshots, ListBatches, ListSweeps, ListTrials, AddTrials, WaitForJobs, Adopt, ListStrays, AdoptStrays,
		readLog, attachTo, followEvents, copyStore,
		GetJobSamples, GetGPUSamples,
		ListGroups, SetGroup, RemoveGroup,
		GetNotify, SetNotify, SendNotify,
		ListGPUs, PauseGPU, ResumeGPU, DrainGPU, SetHealth, ListCardEvents, ReleaseGPUs,
		GetStatus, GetStats, GetReplay, Reload, GetSnapshot, scrape,
		NewToken, ListTokens, RevokeTokens, RevokeToken, NewLogin, OpenSession, EndSession,
		describeJSON, describeYAML, page, asset,
	}
}

// Pausing is PauseGPU or ResumeGPU.
func Pausing(pause bool) *Endpoint[GPUIndex, GPU] {
	if pause {
		return PauseGPU
	}
	return ResumeGPU
}
