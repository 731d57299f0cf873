package api

import "berth/internal/text/problem"

func gpuOperations() []route {
	index := param{name: "index", in: "path", kind: "integer", example: 0, about: "the number of the GPU in berth gpus"}
	return []route{
		{method: get, path: "/v1/gpus", handle: (*exchange).getGPUs, doc: doc{
			id: "gpus", tag: "gpus", summary: "List the GPUs",
			about: "Each GPU with its memory, the jobs and processes on it, and its health.", reply: []GPU{exampleGPU},
		}},
		{method: post, path: "/v1/gpus/{index}/pause", handle: (*exchange).pauseGPU, doc: doc{
			id: "pause", tag: "gpus", summary: "Pause a GPU",
			about: "No job starts there; running jobs continue. On a shared daemon only for administrators.", params: []param{index}, reply: pausedGPU(), kinds: []problem.Kind{problem.NotFound, problem.Forbidden},
		}},
		{method: post, path: "/v1/gpus/{index}/resume", handle: (*exchange).resumeGPU, doc: doc{
			id: "resume", tag: "gpus", summary: "Resume a GPU",
			about: "Jobs may start there again.", params: []param{index}, reply: exampleGPU, kinds: []problem.Kind{problem.NotFound, problem.Forbidden},
		}},
		{method: post, path: "/v1/gpus/{index}/drain", handle: (*exchange).postDrain, body: true, doc: doc{
			id: "drain", tag: "gpus", summary: "Empty a GPU",
			about:  "Pauses the GPU and, with park, parks the jobs on it; they come back when it is resumed. The reply says for each job what happens to it. On a shared daemon only for administrators.",
			params: []param{index}, request: exampleDrain, reply: exampleDrained(), kinds: []problem.Kind{problem.Invalid, problem.NotFound, problem.Forbidden},
		}},
		{method: post, path: "/v1/gpus/{index}/health", handle: (*exchange).postHealth, body: true, doc: doc{
			id: "health", tag: "gpus", summary: "Quarantine a GPU, or clear it",
			about:  "A GPU that an administrator quarantined stays so until an administrator clears it. One that berth quarantined and an administrator cleared is quarantined again only if the fault happens again. For administrators.",
			params: []param{index}, request: exampleHealth, reply: quarantinedGPU(), kinds: []problem.Kind{problem.Invalid, problem.NotFound, problem.Forbidden},
		}},
		{method: get, path: "/v1/gpus/history", handle: (*exchange).getCardHistory, heavy: true, long: true, doc: doc{
			id: "gpu-history", tag: "gpus", summary: "List what happened to the GPUs",
			about: "Changes of health, pauses and so on, newest first, as far back as events are kept.",
			params: []param{
				{name: "gpu", in: "query", kind: "integer", about: "only this GPU, and events about all of them"},
				{name: "since", in: "query", kind: "time", about: "only events after this time"},
				{name: "limit", in: "query", kind: "integer", about: "at most this many; default 50, at most 1000"},
			}, reply: []CardEvent{exampleCardEvent}, kinds: []problem.Kind{problem.Invalid, problem.NotFound},
		}},
		{method: post, path: "/v1/gpus/release", handle: (*exchange).postRelease, body: true, doc: doc{
			id: "release-gpus", tag: "gpus", summary: "Release the driver",
			about:   "The daemon closes the driver for some time, so that GPUs can be reset or partitioned. No job starts on GPUs meanwhile. For administrators.",
			request: exampleRelease, reply: exampleReleased, kinds: []problem.Kind{problem.Invalid, problem.Forbidden, problem.Refused},
		}},
	}
}
