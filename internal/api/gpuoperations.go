package api

import "berth/internal/problem"

func gpuOperations() []route {
	index := param{name: "index", in: "path", kind: "integer", example: 0, about: "the card, as berth gpus counts"}
	return []route{
		{method: get, path: "/v1/gpus", handle: (*exchange).getGPUs, doc: doc{
			id: "gpus", tag: "gpus", summary: "List the cards",
			about: "Each card with its memory, who uses it, and its health.", reply: []GPU{exampleGPU},
		}},
		{method: post, path: "/v1/gpus/{index}/pause", handle: (*exchange).pauseGPU, doc: doc{
			id: "pause", tag: "gpus", summary: "Keep new jobs off a card",
			about: "What runs there goes on. Needs an administrator where the daemon is shared.", params: []param{index}, reply: pausedGPU(), kinds: []problem.Kind{problem.NotFound, problem.Forbidden},
		}},
		{method: post, path: "/v1/gpus/{index}/resume", handle: (*exchange).resumeGPU, doc: doc{
			id: "resume", tag: "gpus", summary: "Let jobs on a card again",
			about: "The opposite of pause.", params: []param{index}, reply: exampleGPU, kinds: []problem.Kind{problem.NotFound, problem.Forbidden},
		}},
		{method: post, path: "/v1/gpus/{index}/health", handle: (*exchange).postHealth, body: true, doc: doc{
			id: "health", tag: "gpus", summary: "Take a card out of service as not well, or say that it is well",
			about:  "What a person quarantines stays so until a person says ok; what was found wrong by itself and is said to be ok comes back only if it happens anew. For administrators.",
			params: []param{index}, request: exampleHealth, reply: quarantinedGPU(), kinds: []problem.Kind{problem.Invalid, problem.NotFound, problem.Forbidden},
		}},
		{method: get, path: "/v1/gpus/history", handle: (*exchange).getCardHistory, heavy: true, doc: doc{
			id: "gpu-history", tag: "gpus", summary: "Say what happened to the cards",
			about: "Changes of health, pauses and the like, the newest first, as far as events are kept.",
			params: []param{
				{name: "gpu", in: "query", kind: "integer", about: "only this card, and what was about all"},
				{name: "since", in: "query", kind: "time", about: "only what came after this"},
				{name: "limit", in: "query", kind: "integer", about: "at most this many; 50, and never more than 1000"},
			}, reply: []CardEvent{exampleCardEvent}, kinds: []problem.Kind{problem.Invalid},
		}},
		{method: post, path: "/v1/gpus/release", handle: (*exchange).postRelease, body: true, doc: doc{
			id: "release-gpus", tag: "gpus", summary: "Let go of the driver",
			about:   "For a while the daemon does not hold the driver open, so that cards can be reset or partitioned. Nothing starts on cards meanwhile. For administrators.",
			request: exampleRelease, reply: exampleReleased, kinds: []problem.Kind{problem.Invalid, problem.Forbidden, problem.Refused},
		}},
	}
}
