package machine

import (
	"runtime"
	"sync"
)

// spareThreads is more than a busy queue uses at a time.
const spareThreads = 24

// reserveThreads has the runtime start threads now and keep them. A Go program
// that needs one more when the machine has no process left (pids.max, ulimit -u)
// is ended by its runtime, just when its jobs need it.
func reserveThreads() {
	release := make(chan struct{})
	var there, gone sync.WaitGroup
	there.Add(spareThreads)
	for range spareThreads {
		gone.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			there.Done()
			<-release
		})
	}
	there.Wait()
	close(release)
	gone.Wait()
}
