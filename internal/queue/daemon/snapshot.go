package daemon

import (
	"context"
	"encoding/json"
	"fmt"

	"berth/internal/api"
	"berth/internal/queue/engine"
	"berth/internal/sched"
)

// Snapshot is the state that the daemon decides on: ids, users and amounts,
// which are visible to every user anyway, and no command, name or path. The
// engine waits only for the copy.
func (h *admin) Snapshot(ctx context.Context, _ api.Caller) (json.RawMessage, error) {
	var taken sched.Snapshot
	if err := h.svc.Do(ctx, func(t *engine.Turn) { taken = sched.NewSnapshot(t.Explain().State()) }); err != nil {
		return nil, err
	}
	data, err := json.Marshal(taken)
	if err != nil {
		return nil, fmt.Errorf("write a snapshot: %w", err)
	}
	return data, nil
}
