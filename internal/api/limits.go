package api

import (
	"sync"
	"time"
)

// Limits bound what callers can take from the daemon. A zero field means its
// default.
type Limits struct {
	SubmitBytes int64 // a submission's body: 64 MiB
	BodyBytes   int64 // any other body: 1 MiB
	SpecBytes   int64 // one job: 1 MiB
	Specs       int   // jobs in one request: 100,000
	HeaderBytes int   // 64 KiB

	UserConnections int // of one user: 256
	RootConnections int // of root: 4096
	Connections     int // of all users: 8192
	Unproven        int // by TCP, that have not shown a valid token: 512
	Scrapers        int // connections for metrics alone: 64
	UserStreams     int // events, followed logs, attached terminals and waits of one user: 64
	RootStreams     int // of root: 1024
	UserHeavy       int // concurrent submissions and lists of one user, the rest wait: 4

	HeaderTimeout time.Duration // 10 s
	IdleTimeout   time.Duration // an idle connection: 2 min
	StallTimeout  time.Duration // a caller that neither reads nor writes: 30 s
	Heartbeat     time.Duration // on a silent stream of events: 15 s
	Recheck       time.Duration // how long a connection's permissions are cached: 1 min
	WaitTimeout   time.Duration // the longest wait for jobs to end: 60 s
}

// minBytesPerSecond is the slowest allowed body.
const minBytesPerSecond = 32 << 10

// spareConnections are connections beyond the limit, which get an error.
const spareConnections = 8

func (l Limits) withDefaults() Limits {
	orDefault(&l.SubmitBytes, 64<<20)
	orDefault(&l.BodyBytes, 1<<20)
	orDefault(&l.SpecBytes, 1<<20)
	orDefault(&l.Specs, 100_000)
	orDefault(&l.HeaderBytes, 64<<10)
	orDefault(&l.UserConnections, 256)
	orDefault(&l.RootConnections, 4096)
	orDefault(&l.Connections, 8192)
	orDefault(&l.Unproven, 512)
	orDefault(&l.Scrapers, 64)
	orDefault(&l.UserStreams, 64)
	orDefault(&l.RootStreams, 1024)
	orDefault(&l.UserHeavy, 4)
	orDefault(&l.HeaderTimeout, 10*time.Second)
	orDefault(&l.IdleTimeout, 2*time.Minute)
	orDefault(&l.StallTimeout, 30*time.Second)
	orDefault(&l.Heartbeat, 15*time.Second)
	orDefault(&l.Recheck, time.Minute)
	orDefault(&l.WaitTimeout, time.Minute)
	return l
}

// mostConnections is how many one user may have.
func (l Limits) mostConnections(uid int) int {
	if uid == 0 {
		return l.RootConnections
	}
	return l.UserConnections
}

func orDefault[T comparable](value *T, otherwise T) {
	var zero T
	if *value == zero {
		*value = otherwise
	}
}

// tally counts what each user holds. Users that hold nothing take no memory.
type tally struct {
	mu    sync.Mutex
	held  map[int]int
	total int
}

// admit adds one, unless the user or all users together are at the limit.
func (t *tally) admit(uid, most, mostOfAll int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held[uid] >= most || t.total >= mostOfAll {
		return false
	}
	if t.held == nil {
		t.held = map[int]int{}
	}
	t.held[uid]++
	t.total++
	return true
}

func (t *tally) drop(uid int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total--
	if t.held[uid]--; t.held[uid] == 0 {
		delete(t.held, uid)
	}
}

func (t *tally) of(uid int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.held[uid]
}
