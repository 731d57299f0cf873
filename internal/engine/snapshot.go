package engine

import "berth/internal/sched"

// State is what the next decision rests on. It is good until the engine goes
// on: who keeps it makes a snapshot of it.
func (t *Turn) State() sched.State { return t.state() }
