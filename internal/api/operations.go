package api

import (
	"net/http"
	"slices"

	"berth/internal/text/problem"
)

// operations is the whole API: each route with its description. Tests run the
// examples.
func operations() []route {
	all := slices.Concat(jobOperations(), adoptOperations(), strayOperations())
	all = append(all, streamOperations()...)
	all = append(all, sampleOperations()...)
	all = append(all, groupOperations()...)
	all = append(all, notifyOperations()...)
	all = append(all, gpuOperations()...)
	all = append(all, machineOperations()...)
	all = append(all, sessionOperations()...)
	all = append(all, replayOperations()...)
	return append(all, debugOperations()...)
}

const (
	get    = http.MethodGet
	post   = http.MethodPost
	patch  = http.MethodPatch
	remove = http.MethodDelete
)

var pathID = param{name: "id", in: "path", kind: "string", example: "17",
	about: "a job id: 17, 17_0 for a task, @ for the caller's last job, @~1 for the one before"}

func jobOperations() []route {
	return []route{
		{method: post, path: "/v1/jobs", handle: (*exchange).postJobs, body: true, heavy: true, doc: doc{
			id: "submit", tag: "jobs", summary: "Submit jobs",
			about:   "Accepts all jobs of the request or none. They are on disk before the reply is sent. With dry_run nothing is submitted, and the reply says what would happen.",
			request: exampleSubmit, reply: exampleSubmitted, kinds: []problem.Kind{problem.Invalid, problem.Refused, problem.TooMuch},
		}},
		{method: get, path: "/v1/jobs", handle: (*exchange).getJobs, heavy: true, sliced: true, doc: doc{
			id: "list", tag: "jobs", summary: "List jobs",
			about:  "A page of jobs: unfinished ones, unless over, id or state asks for others. next is the cursor of the next page.",
			params: queryParams(), reply: examplePage, kinds: []problem.Kind{problem.Invalid},
		}},
		{method: get, path: "/v1/jobs/{id}", handle: (*exchange).getJob, doc: doc{
			id: "show", tag: "jobs", summary: "Show a job",
			about:  "Everything about one job. Only its owner sees the command and the variables. The id of an array gives what its tasks have in common, and tasks sums them up.",
			params: []param{pathID}, reply: exampleDetail, kinds: []problem.Kind{problem.NotFound},
		}},
		{method: get, path: "/v1/jobs/{id}/why", handle: (*exchange).getWhy, doc: doc{
			id: "why", tag: "jobs", summary: "Say why a job waits",
			about:  "The reason as a sentence with numbers; of an array, that of its first waiting task. For a queued job also every GPU with what is missing and the jobs on it, the job ahead and why it goes first, its reservation, and when it is expected to start, with the sources of that estimate.",
			params: []param{pathID}, reply: exampleWhy, kinds: []problem.Kind{problem.NotFound},
		}},
		{method: post, path: "/v1/jobs/act", handle: (*exchange).postAct, body: true, doc: doc{
			id: "act", tag: "jobs", summary: "Cancel, hold, release or requeue jobs",
			about:   "Carries out the action on the selected jobs and reports the result for each. A job that it fails for does not affect the others.",
			request: exampleAct, reply: exampleActed, kinds: []problem.Kind{problem.Invalid, problem.NotFound, problem.Forbidden},
		}},
		{method: patch, path: "/v1/jobs/{id}", handle: (*exchange).patchJob, body: true, doc: doc{
			id: "edit", tag: "jobs", summary: "Change a queued job",
			about:  "Sets the given keys of a queued job; the others stay as they are.",
			params: []param{pathID}, request: exampleEdit, reply: exampleDetail, kinds: []problem.Kind{problem.Invalid, problem.NotFound, problem.Forbidden, problem.Refused},
		}},
		{method: get, path: "/v1/snapshots", handle: (*exchange).getSnapshots, heavy: true, long: true, doc: doc{
			id: "snapshots", tag: "jobs", summary: "List the snapshots in use",
			about: "The ids of the snapshots of code that the caller's jobs refer to, including jobs that have ended and could run again. Whoever made other snapshots can remove them.",
			reply: exampleSnapshotIDs,
		}},
		{method: get, path: "/v1/batches", handle: (*exchange).getBatches, heavy: true, sliced: true, doc: doc{
			id: "batches", tag: "jobs", summary: "Sum up jobs files and arrays",
			about: "How many jobs of each there are in every state, why the first queued one waits, and when the last one is expected to end. Without file: those that have unfinished jobs, at most 200, the oldest first.",
			params: []param{
				{name: "file", in: "query", kind: "string", about: "only this jobs file, even if all of its jobs have ended: its absolute path", example: "/home/ann/project/jobs.txt"},
				{name: "user", in: "query", kind: "string", about: "whose; *: every user's; default: the caller's own"},
			}, reply: exampleBatches, kinds: []problem.Kind{problem.Invalid},
		}},
		{method: post, path: "/v1/jobs/wait", handle: (*exchange).postWait, body: true, doc: doc{
			id: "wait", tag: "jobs", summary: "Wait for jobs to end, or to be parked or resumed",
			about:   "Replies when the selected jobs have ended, or after timeout_s (at most a minute) with done: false. Ask again to keep waiting.",
			request: exampleWait, reply: exampleWaited, kinds: []problem.Kind{problem.Invalid, problem.NotFound, problem.TooMuch},
		}},
	}
}

func streamOperations() []route {
	return []route{
		{method: get, path: "/v1/jobs/{id}/log", handle: (*exchange).getLog, doc: doc{
			id: "log", tag: "streams", summary: "Read a job's log",
			about: "The bytes of the log; with follow, new ones until the job has ended. The header Berth-Log-Offset is the position of the first byte, Berth-Log-Attempt the attempt. " +
				"The trailer Berth-Log-End is complete when the log ended properly; stopping, or no trailer, means that the daemon went down: ask again with the attempt and the next offset. " +
				"Where a part of an oversized log was dropped, a line says so; with pieces the reply ends there with gap, and the trailer Berth-Log-Next is the offset at which to continue.",
			params: []param{
				pathID,
				{name: "attempt", in: "query", kind: "integer", about: "which attempt; default: the latest"},
				{name: "offset", in: "query", kind: "integer", about: "start at this byte; negative: this many bytes before the end"},
				{name: "lines", in: "query", kind: "integer", about: "only this many last lines, instead of offset"},
				{name: "follow", in: "query", kind: "boolean", about: "continue until the job has ended"},
				{name: "pieces", in: "query", kind: "boolean", about: "end the reply at a dropped part, instead of inserting a line"},
			},
			media: "application/octet-stream", text: "epoch 1: loss 0.31\n", kinds: []problem.Kind{problem.Invalid, problem.NotFound, problem.Forbidden, problem.TooMuch},
			headers: []param{
				{name: headerLogAttempt, kind: "integer", about: "the attempt whose log this is"},
				{name: headerLogOffset, kind: "integer", about: "position of the first byte in the log"},
			},
		}},
		{method: post, path: "/v1/jobs/{id}/attach", handle: (*exchange).postAttach, doc: doc{
			id: "attach", tag: "streams", summary: "Attach to a job's terminal",
			about:  "Needs the headers Connection: Upgrade and Upgrade: " + attachProtocol + ". After the 101 the connection carries the frames of the job's supervisor both ways.",
			params: []param{pathID}, status: http.StatusSwitchingProtocols, kinds: []problem.Kind{problem.Invalid, problem.NotFound, problem.Forbidden, problem.Refused, problem.TooMuch},
		}},
		{method: get, path: "/v1/events", handle: (*exchange).getEvents, doc: doc{
			id: "events", tag: "streams", summary: "Follow events",
			about: "Server-sent events; the data of each is one event as JSON. Stored events have an id; Last-Event-ID or since resumes after it. " +
				"A comment is sent every 15 seconds. The event named end means that the daemon is stopping, the one named error that it cannot continue; both carry a problem.",
			params: []param{
				{name: "since", in: "query", kind: "integer", about: "stored events after this number; -1: only new ones"},
				{name: "user", in: "query", kind: "string", about: "only jobs of this user"},
				{name: "job", in: "query", kind: "string", about: "only this job, or the tasks of this array"},
				{name: "gpus", in: "query", kind: "boolean", about: "also changes of the GPUs"},
				{name: "Last-Event-ID", in: "header", kind: "string", about: "sent by browsers to resume; takes precedence over since"},
			},
			media: "text/event-stream", text: exampleEventText, kinds: []problem.Kind{problem.Invalid, problem.TooMuch},
		}},
	}
}

func machineOperations() []route {
	return []route{
		{method: get, path: "/v1/status", handle: (*exchange).getStatus, doc: doc{
			id: "status", tag: "daemon", summary: "Show the daemon's status",
			about: "The daemon's version and state, and the caller's identity.", reply: exampleStatus,
		}},
		{method: get, path: "/v1/stats", handle: (*exchange).getStats, heavy: true, doc: doc{
			id: "stats", tag: "daemon", summary: "Usage statistics",
			about: "GPU-hours, waits and outcomes, in all, by user and by day.",
			params: []param{
				{name: "since", in: "query", kind: "time", about: "beginning of the period"},
				{name: "until", in: "query", kind: "time", about: "end of the period; default: now"},
				{name: "user", in: "query", kind: "string", about: "only this user"},
			}, reply: exampleStats, kinds: []problem.Kind{problem.Invalid},
		}},
		{method: post, path: "/v1/backup", handle: (*exchange).postBackup, heavy: true, doc: doc{
			id: "backup", tag: "daemon", summary: "Copy the store",
			about: "A consistent copy of the daemon's database, made while it runs. For administrators.", media: "application/octet-stream", text: "SQLite format 3", kinds: []problem.Kind{problem.Forbidden},
		}},
		{method: post, path: "/v1/reload", handle: (*exchange).postReload, body: true, doc: doc{
			id: "reload", tag: "daemon", summary: "Read the config again",
			about:   "Replies once the new config is in force, with what changed. A config with mistakes changes nothing, and the problem lists them. With dry_run nothing changes either; text is then judged instead of the file. For administrators.",
			request: exampleReload, reply: exampleReloaded, kinds: []problem.Kind{problem.Invalid, problem.Forbidden, problem.TooMuch},
		}},
		{method: post, path: "/v1/tokens", handle: (*exchange).postToken, body: true, doc: doc{
			id: "new-token", tag: "tokens", summary: "Create a token",
			about: "For remote access with the caller's own permissions. The secret is shown only once.", request: exampleTokenRequest, reply: exampleToken, kinds: []problem.Kind{problem.Invalid, problem.Forbidden, problem.TooMuch},
		}},
		{method: get, path: "/v1/tokens", handle: (*exchange).getTokens, doc: doc{
			id: "tokens", tag: "tokens", summary: "List tokens",
			about: "The caller's own tokens; for administrators, every user's.", reply: []Token{withoutSecret(exampleToken)},
		}},
		{method: remove, path: "/v1/tokens", handle: (*exchange).deleteTokens, doc: doc{
			id: "revoke-tokens", tag: "tokens", summary: "Revoke all tokens of a user",
			about:  "Sessions of browsers included, also the one that asks. Other users' tokens are for administrators.",
			params: []param{{name: "user", in: "query", kind: "string", about: "whose; the caller's own by default"}},
			reply:  exampleRevoked, kinds: []problem.Kind{problem.Forbidden},
		}},
		{method: remove, path: "/v1/tokens/{id}", handle: (*exchange).deleteToken, doc: doc{
			id: "revoke-token", tag: "tokens", summary: "Revoke a token",
			about:  "It stops working with the next request.",
			params: []param{{name: "id", in: "path", kind: "string", example: "k7", about: "the token's id"}}, status: http.StatusNoContent, kinds: []problem.Kind{problem.NotFound, problem.Forbidden},
		}},
		{method: get, path: metricsPath, handle: (*exchange).getMetrics, heavy: true, doc: doc{
			id: "metrics", tag: "daemon", summary: "Metrics for Prometheus",
			about: "Counters and gauges of the queue, the GPUs and the daemon, in Prometheus's text format. No series names a job.", media: metricsType, text: "berth_jobs{state=\"queued\"} 3\n", kinds: []problem.Kind{problem.Refused},
		}},
		{method: get, path: "/openapi.json", handle: (*exchange).getOpenAPI, doc: doc{hidden: true}},
		{method: get, path: "/openapi.yaml", handle: (*exchange).getOpenAPIYAML, doc: doc{hidden: true}},
	}
}

// queryParams are the parameters of a list of jobs.
func queryParams() []param {
	return []param{
		{name: "id", in: "query", kind: "list", about: "ids and ranges: 1-3,7 @ 17_0; may be repeated", example: []string{"17"}},
		{name: "all", in: "query", kind: "boolean", about: "every job"},
		{name: "name", in: "query", kind: "string", about: "only jobs of this name"},
		{name: "user", in: "query", kind: "string", about: "only jobs of this user"},
		{name: "group", in: "query", kind: "string", about: "only jobs of this group"},
		{name: "batch", in: "query", kind: "string", about: "only the lines of this jobs file: its absolute path"},
		{name: "state", in: "query", kind: "list", about: "only these states, including held; may be repeated"},
		{name: "over", in: "query", kind: "boolean", about: "include jobs that have ended"},
		{name: "newest", in: "query", kind: "boolean", about: "newest first; ended jobs by their end"},
		{name: "since", in: "query", kind: "time", about: "only jobs that ended after this time"},
		{name: "limit", in: "query", kind: "integer", about: "at most this many; default 1000, at most 10000"},
		{name: "after", in: "query", kind: "string", about: "the cursor of the previous page"},
		{name: "reasons", in: "query", kind: "boolean", about: "say why each queued job waits"},
		{name: "order", in: "query", kind: "boolean", about: "include the order of the queue on the last page"},
		{name: "idle", in: "query", kind: "boolean", about: "only jobs that hold GPUs or CPUs and have not used them for long"},
		{name: "queue", in: "query", kind: "boolean", about: "the first jobs in the order of the queue: running ones, queued ones, those that ended, the latest first; there is no next page"},
		{name: "arrays", in: "query", kind: "boolean", about: "sum up each array of the page; with queue, an array is its first task"},
		{name: "batches", in: "query", kind: "boolean", about: "the same with the lines of jobs files that the caller may see; up to 20 jobs are listed one by one if all are lines of one file"},
	}
}
