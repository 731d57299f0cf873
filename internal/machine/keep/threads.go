package keep

import (
	"runtime"
	"sync"
)

// spareThreads is as many as a supervisor has been seen to have in all, so it needs
// no other.
const spareThreads = 8

// ReserveThreads has the runtime start n threads now and keep them. A Go program
// that needs one more when the machine has no process left (pids.max, ulimit -u)
// is ended by its runtime, just when its jobs need it.
func ReserveThreads(n int) {
	release := make(chan struct{})
	var there, gone sync.WaitGroup
	there.Add(n)
	for range n {
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
