package api

import (
	"net/http"

	"berth/internal/problem"
)

// operations is the whole API: each route with its description. The examples
// are run by the tests.
func operations() []route {
	all := append(jobOperations(), adoptOperations()...)
	all = append(all, streamOperations()...)
	all = append(all, gpuOperations()...)
	all = append(all, machineOperations()...)
	return append(all, debugOperations()...)
}

const (
	get    = http.MethodGet
	post   = http.MethodPost
	patch  = http.MethodPatch
	remove = http.MethodDelete
)

var pathID = param{name: "id", in: "path", kind: "string", example: "17",
	about: "a job's id: 17, a task's 17_0, or @ for the caller's last job and @~1 for the one before"}

func jobOperations() []route {
	return []route{
		{method: post, path: "/v1/jobs", handle: (*exchange).postJobs, body: true, heavy: true, doc: doc{
			id: "submit", tag: "jobs", summary: "Submit jobs",
			about:   "Accepts all jobs of the request or none. When the reply comes they are on disk. With dry_run nothing is submitted and the reply says what would happen.",
			request: exampleSubmit, reply: exampleSubmitted, kinds: []problem.Kind{problem.Invalid, problem.Refused, problem.TooMuch},
		}},
		{method: get, path: "/v1/jobs", handle: (*exchange).getJobs, heavy: true, doc: doc{
			id: "list", tag: "jobs", summary: "List jobs",
			about:  "A page of jobs, those that are not over unless over, id or state asks for others. next is the cursor of the next page.",
			params: queryParams(), reply: examplePage, kinds: []problem.Kind{problem.Invalid},
		}},
		{method: get, path: "/v1/jobs/{id}", handle: (*exchange).getJob, doc: doc{
			id: "show", tag: "jobs", summary: "Show a job",
			about:  "Everything about one job. What another user's job runs, and with which variables, is its owner's to see.",
			params: []param{pathID}, reply: exampleDetail, kinds: []problem.Kind{problem.NotFound},
		}},
		{method: get, path: "/v1/jobs/{id}/why", handle: (*exchange).getWhy, doc: doc{
			id: "why", tag: "jobs", summary: "Say what a job waits for",
			about:  "The reason with its numbers as a sentence; of a queued job the whole story: every card with what is missing and who holds it, the job that has to go first and why, what is kept for it, and when it is expected to start and on what that rests.",
			params: []param{pathID}, reply: exampleWhy, kinds: []problem.Kind{problem.NotFound},
		}},
		{method: post, path: "/v1/jobs/act", handle: (*exchange).postAct, body: true, doc: doc{
			id: "act", tag: "jobs", summary: "Cancel, hold, release or requeue jobs",
			about:   "Does one thing to the selected jobs and says for each what became of it. A job that it cannot be done to does not keep it from the others.",
			request: exampleAct, reply: exampleActed, kinds: []problem.Kind{problem.Invalid, problem.NotFound, problem.Forbidden},
		}},
		{method: patch, path: "/v1/jobs/{id}", handle: (*exchange).patchJob, body: true, doc: doc{
			id: "edit", tag: "jobs", summary: "Change a queued job",
			about:  "Sets the given keys of a job that has not started; the others stay.",
			params: []param{pathID}, request: exampleEdit, reply: exampleDetail, kinds: []problem.Kind{problem.Invalid, problem.NotFound, problem.Forbidden, problem.Refused},
		}},
		{method: post, path: "/v1/jobs/wait", handle: (*exchange).postWait, body: true, doc: doc{
			id: "wait", tag: "jobs", summary: "Wait for jobs to end",
			about:   "Answers when the selected jobs are over, or after timeout_s, at most a minute, with done: false. Ask again to wait on.",
			request: exampleWait, reply: exampleWaited, kinds: []problem.Kind{problem.Invalid, problem.NotFound, problem.TooMuch},
		}},
	}
}

func streamOperations() []route {
	return []route{
		{method: get, path: "/v1/jobs/{id}/log", handle: (*exchange).getLog, doc: doc{
			id: "log", tag: "streams", summary: "Read a job's log",
			about: "The bytes of the log as they are, with follow as they come until the job is over. The header Berth-Log-Offset says at which byte they begin and Berth-Log-Attempt whose they are. " +
				"The trailer Berth-Log-End is complete when the log ended in order; stopping, or no trailer at all, means that the daemon went down: ask again with the attempt and the next offset. " +
				"Where a part was taken out of a log that grew beyond its limit, a line says so; with pieces the reply ends there instead, with gap, and the trailer Berth-Log-Next is the offset to go on at.",
			params: []param{
				pathID,
				{name: "attempt", in: "query", kind: "integer", about: "which attempt; the latest"},
				{name: "offset", in: "query", kind: "integer", about: "from this byte on; negative: that many bytes from the end"},
				{name: "lines", in: "query", kind: "integer", about: "only the last so many lines, instead of offset"},
				{name: "follow", in: "query", kind: "boolean", about: "go on until the job is over"},
				{name: "pieces", in: "query", kind: "boolean", about: "end at a part that was taken out, instead of a line that says so"},
			},
			media: "application/octet-stream", text: "epoch 1: loss 0.31\n", kinds: []problem.Kind{problem.Invalid, problem.NotFound, problem.Forbidden, problem.TooMuch},
			headers: []param{
				{name: headerLogAttempt, kind: "integer", about: "the attempt whose log this is"},
				{name: headerLogOffset, kind: "integer", about: "where the first byte stands in the log"},
			},
		}},
		{method: post, path: "/v1/jobs/{id}/attach", handle: (*exchange).postAttach, doc: doc{
			id: "attach", tag: "streams", summary: "Attach to a job's terminal",
			about:  "Needs the headers Connection: Upgrade and Upgrade: " + attachProtocol + ". After the 101 the connection carries the frames of the job's supervisor both ways.",
			params: []param{pathID}, status: http.StatusSwitchingProtocols, kinds: []problem.Kind{problem.Invalid, problem.NotFound, problem.Forbidden, problem.Refused, problem.TooMuch},
		}},
		{method: get, path: "/v1/events", handle: (*exchange).getEvents, doc: doc{
			id: "events", tag: "streams", summary: "Follow what happens",
			about: "Server-sent events; the data of each is one event as JSON. Those that are kept have an id, with which Last-Event-ID or since resumes after it. " +
				"A comment comes every 15 seconds. The event named end says that the daemon is stopping, the one named error that it cannot go on; both carry a problem.",
			params: []param{
				{name: "since", in: "query", kind: "integer", about: "events after this number, from what is kept; -1: only new ones"},
				{name: "user", in: "query", kind: "string", about: "only jobs of this user"},
				{name: "job", in: "query", kind: "string", about: "only this job, or the tasks of this array"},
				{name: "gpus", in: "query", kind: "boolean", about: "also changes of the cards"},
				{name: "Last-Event-ID", in: "header", kind: "string", about: "what a browser sends to resume; goes before since"},
			},
			media: "text/event-stream", text: exampleEventText, kinds: []problem.Kind{problem.Invalid, problem.TooMuch},
		}},
	}
}

func machineOperations() []route {
	return []route{
		{method: get, path: "/v1/status", handle: (*exchange).getStatus, doc: doc{
			id: "status", tag: "daemon", summary: "Say who is there",
			about: "The daemon's version and state, and who it takes the caller for.", reply: exampleStatus,
		}},
		{method: get, path: "/v1/stats", handle: (*exchange).getStats, heavy: true, doc: doc{
			id: "stats", tag: "daemon", summary: "Sum up what the machine did",
			about: "GPU-hours, waits and outcomes, in all, by user and by day.",
			params: []param{
				{name: "since", in: "query", kind: "time", about: "the window's begin"},
				{name: "until", in: "query", kind: "time", about: "the window's end; now"},
				{name: "user", in: "query", kind: "string", about: "only this user"},
			}, reply: exampleStats, kinds: []problem.Kind{problem.Invalid},
		}},
		{method: post, path: "/v1/backup", handle: (*exchange).postBackup, heavy: true, doc: doc{
			id: "backup", tag: "daemon", summary: "Copy the store",
			about: "A consistent copy of the daemon's database, taken while it works. For administrators.", media: "application/octet-stream", text: "SQLite format 3", kinds: []problem.Kind{problem.Forbidden},
		}},
		{method: post, path: "/v1/tokens", handle: (*exchange).postToken, body: true, doc: doc{
			id: "new-token", tag: "tokens", summary: "Make a token",
			about: "For remote access with the caller's own rights. The secret is shown this once.", request: exampleTokenRequest, reply: exampleToken, kinds: []problem.Kind{problem.Invalid, problem.Forbidden, problem.TooMuch},
		}},
		{method: get, path: "/v1/tokens", handle: (*exchange).getTokens, doc: doc{
			id: "tokens", tag: "tokens", summary: "List tokens",
			about: "The caller's own; an administrator's list has everyone's.", reply: []Token{withoutSecret(exampleToken)},
		}},
		{method: remove, path: "/v1/tokens/{id}", handle: (*exchange).deleteToken, doc: doc{
			id: "revoke-token", tag: "tokens", summary: "Revoke a token",
			about:  "From the next request on it is worth nothing.",
			params: []param{{name: "id", in: "path", kind: "string", example: "k7", about: "the token's id"}}, status: http.StatusNoContent, kinds: []problem.Kind{problem.NotFound, problem.Forbidden},
		}},
		{method: get, path: "/openapi.json", handle: (*exchange).getOpenAPI, doc: doc{hidden: true}},
		{method: get, path: "/openapi.yaml", handle: (*exchange).getOpenAPIYAML, doc: doc{hidden: true}},
	}
}

// queryParams are those of a list of jobs.
func queryParams() []param {
	return []param{
		{name: "id", in: "query", kind: "list", about: "ids and ranges as people write them: 1-3,7 @ 17_0; may be repeated", example: []string{"17"}},
		{name: "all", in: "query", kind: "boolean", about: "every job"},
		{name: "name", in: "query", kind: "string", about: "only jobs of this name"},
		{name: "user", in: "query", kind: "string", about: "only jobs of this user"},
		{name: "state", in: "query", kind: "list", about: "only these states; held is one; may be repeated"},
		{name: "over", in: "query", kind: "boolean", about: "include jobs that are over"},
		{name: "newest", in: "query", kind: "boolean", about: "the newest first, by their end where they are over"},
		{name: "since", in: "query", kind: "time", about: "only what ended after this"},
		{name: "limit", in: "query", kind: "integer", about: "at most this many; 1000, and never more than 10000"},
		{name: "after", in: "query", kind: "string", about: "the cursor of an earlier page"},
		{name: "reasons", in: "query", kind: "boolean", about: "say why each queued job waits"},
		{name: "order", in: "query", kind: "boolean", about: "also say, on the last page, in which order queued jobs come up for their turn"},
		{name: "idle", in: "query", kind: "boolean", about: "only jobs that hold device memory and have not used their cards for long"},
	}
}
