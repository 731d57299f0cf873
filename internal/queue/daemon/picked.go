package daemon

import (
	"sync"

	"berth/internal/job"
	"berth/internal/job/sweep"
)

// mostPicked bounds what is remembered; then all logs are read again.
const mostPicked = 100_000

// picked remembers what was picked from the logs of attempts that have ended. They
// change no more, so each is read once while the daemon runs, even if it is removed
// meanwhile. A log on a node of a cluster may be seen late, and is not remembered.
type picked struct {
	mu     sync.Mutex
	values map[pick]*sweep.Value // nil: the log does not have it
}

// pick is a metric of one attempt.
type pick struct {
	job     string
	attempt int
	metric  string // as it was asked for
}

// get returns what is known, if all of it is.
func (p *picked) get(j *job.Job, metrics []string) (values []*sweep.Value, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range metrics {
		value, known := p.values[pick{j.ID, j.Attempt.Number, m}]
		if !known || !j.State.Terminal() {
			return nil, false
		}
		values = append(values, value)
	}
	return values, true
}

// put remembers values that were picked from a whole log.
func (p *picked) put(j *job.Job, metrics []string, values []*sweep.Value) {
	if !j.State.Terminal() || j.Spec.To == job.ToSlurm {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.values == nil || len(p.values)+len(metrics) > mostPicked {
		p.values = map[pick]*sweep.Value{}
	}
	for i, m := range metrics {
		p.values[pick{j.ID, j.Attempt.Number, m}] = values[i]
	}
}
