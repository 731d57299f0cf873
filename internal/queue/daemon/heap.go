package daemon

import (
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// The daemon shares its machine with the jobs. In a small heap collections are rare,
// which is cheaper; beyond that, garbage is at most half of what is in use. A fixed
// limit would have a heap that comes close to it collected all the time.
const (
	smallHeap   = 32 << 20
	mostPercent = 300
	bigPercent  = 50
)

// keepHeap adapts the collector to the heap after each collection, for good.
var keepHeap = sync.OnceFunc(func() {
	percent := mostPercent
	debug.SetGCPercent(percent)
	afterEach(func() {
		percent = garbageFor(liveHeap(percent))
		debug.SetGCPercent(percent)
	})
})

// garbageFor is the garbage that may gather, in percent of what is in use.
func garbageFor(live uint64) int {
	if live >= smallHeap {
		return bigPercent
	}
	return int(min(mostPercent, max(bigPercent, 100*(smallHeap-live)/max(1, live))))
}

// liveHeap is what the last collection found in use, under that percentage: the next
// one comes when the garbage is percent of it. The package runtime/metrics would say
// it, but costs the start of every command a table.
func liveHeap(percent int) uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.NextGC / uint64(100+percent) * 100
}

// afterEach calls f after each collection.
func afterEach(f func()) {
	// A pointer to a pointer has a block of its own.
	runtime.SetFinalizer(new(*byte), func(**byte) {
		f()
		afterEach(f)
	})
}

// A request with largeRequest jobs leaves much that Go gives back to the system only
// slowly.
const (
	largeRequest = 1000
	releaseAfter = 500 * time.Millisecond
)

var release struct {
	mu    sync.Mutex
	timer *time.Timer
}

// releaseSoon gives back what large requests left once none was made for a moment.
func releaseSoon() {
	release.mu.Lock()
	defer release.mu.Unlock()
	if release.timer == nil {
		release.timer = time.AfterFunc(releaseAfter, debug.FreeOSMemory)
		return
	}
	release.timer.Reset(releaseAfter)
}
