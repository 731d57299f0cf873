package daemon

import (
	"context"
	"encoding/json"
	"fmt"

	"berth/internal/api"
	"berth/internal/engine"
	"berth/internal/sched"
)

// Snapshot is what the daemon decides on: ids, users and amounts, which the
// lists of jobs and cards show to everybody too, and no command, name or path.
// The engine waits for the copy alone.
func (d *Daemon) Snapshot(ctx context.Context, _ api.Caller) (json.RawMessage, error) {
	var taken sched.Snapshot
	if err := d.do(ctx, func(t *engine.Turn) { taken = sched.NewSnapshot(t.State()) }); err != nil {
		return nil, err
	}
	data, err := json.Marshal(taken)
	if err != nil {
		return nil, fmt.Errorf("write a snapshot: %w", err)
	}
	return data, nil
}
