package daemon

import (
	"context"

	"berth/internal/job"
	"berth/internal/machine/run"
	"berth/internal/queue"
	"berth/internal/queue/config"
	"berth/internal/queue/engine"
)

// Own is what differs in the queue of a berth run. It has the rules of the run
// instead of a config, and ends with its jobs when nobody follows them.
type Own interface {
	// Setup says where the queue is and which GPUs it may use.
	Setup(s *queue.Setup)
	// Settings are the rules of the run.
	Settings(c *engine.Config)
	// Restored is called in the first turn.
	Restored(t *engine.Turn) error
	// Began deals with what earlier runs left, before there is an engine. It returns
	// the supervisors whose jobs go on.
	Began(ctx context.Context, m *queue.Queue, found []run.Found) ([]run.Found, error)
	// Admit sees the jobs of new lines before they are submitted.
	Admit(jobs []*job.Job)
	// Took sees the jobs of all lines of a file once they are. Nothing starts before
	// the first time.
	Took(t *engine.Turn, file string, ids []string)
	// Publish sees every event, in order, once it is on disk.
	Publish(events []job.Event)
	// After is called after each round of the engine, and Over when it has ended.
	After(t *engine.Turn)
	Over(t *engine.Turn)
}

// ownConfig is the config of a berth run: nothing is bounded but by the machine, and
// nothing is forgotten.
func ownConfig() config.Config {
	c := config.Default(false)
	const most = 1 << 40
	c.MaxQueue, c.MaxArray, c.MaxSpecs, c.MaxText, c.MaxEnviron = most, most, most, 0, 64<<20
	c.History, c.HistoryJobs, c.HistoryText, c.Logs = 0, most, most, 0
	c.ShowCommands = showAll
	return c
}
