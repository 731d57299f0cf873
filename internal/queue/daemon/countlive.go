package daemon

import (
	"berth/internal/job"
	"berth/internal/queue/engine"
)

// countLive counts the unfinished jobs by state.
func countLive(t *engine.Turn, counts map[string]int) {
	queued, held := t.Explain().Live()
	parked := len(t.Parking().List())
	counts[string(job.Queued)], counts[string(job.Running)] = queued, held-parked
	if parked > 0 {
		counts[string(job.Parked)] = parked
	}
}
