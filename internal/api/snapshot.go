package api

import (
	"context"
	"encoding/json"
	"net/http"
)

// debugOperations are for finding out why a daemon decided as it did.
func debugOperations() []route {
	return []route{
		{method: get, path: "/v1/debug/snapshot", handle: (*exchange).getSnapshot, heavy: true, long: true, doc: doc{
			id: "snapshot", tag: "daemon", summary: "Copy the state that the daemon decides on",
			about: "The rules, the GPUs, the jobs on them, the queue in order, and users' usage: ids, users and amounts, no commands. " +
				"berth simulate continues from it. Its keys may change between versions.",
			reply: exampleSnapshot,
		}},
	}
}

var exampleSnapshot = json.RawMessage(`{"format":"berth-snapshot","version":1,"now":"2026-03-01T14:02:10Z",` +
	`"rules":{"policy":"backfill","fair":true},"host":{},"cards":[{"index":0,"total_mib":24576}],` +
	`"held":[{"job":"16","cards":[0],"user":"ann","started":"2026-03-01T13:00:00Z"}],` +
	`"queue":[{"job":"17","user":"ann","request":{"gpus":1}}],"default_limit":{}}`)

func (x *exchange) getSnapshot() error { return x.reply(x.backend.Snapshot(x.r.Context(), x.caller)) }

// Snapshot returns the state that the daemon decides on.
func (c *Client) Snapshot(ctx context.Context) (json.RawMessage, error) {
	return call[json.RawMessage](ctx, c, http.MethodGet, "/v1/debug/snapshot", nil, nil)
}
