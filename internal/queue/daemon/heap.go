package daemon

import (
	"math"
	"runtime/debug"
	"sync"
)

// heap limits the garbage kept besides the queue itself, and the requests that are
// being carried out: the daemon shares its machine with the jobs.
type heap struct {
	mu          sync.Mutex
	jobs, asked int
}

// lift lifts the limit until it is known how many jobs there are.
func (m *heap) lift() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.jobs = 0
	debug.SetMemoryLimit(math.MaxInt64)
	debug.SetGCPercent(100)
}

// queue sets how many jobs there are.
func (m *heap) queue(jobs int) {
	const step = 1000
	m.mu.Lock()
	defer m.mu.Unlock()
	if jobs = (jobs/step + 1) * step; jobs != m.jobs {
		m.jobs = jobs
		m.limit()
	}
}

// request adds or removes the jobs of a large request: each is there as decoded, as
// parsed and as queued, and a collection on the way frees none of them.
func (m *heap) request(jobs int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked += jobs
	m.limit()
}

func (m *heap) limit() {
	const beside, perJob, perAsked = 40 << 20, 1000, 7000
	debug.SetMemoryLimit(beside + int64(m.jobs)*perJob + int64(m.asked)*perAsked)
	debug.SetGCPercent(300) // below the limit, rare collections are cheaper
}
