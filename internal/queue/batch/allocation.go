package batch

import (
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"berth/internal/job"
	"berth/internal/machine/site"
	"berth/internal/sched"
)

// inAllocation reports whether this berth is inside a job of a real Slurm, on its
// node.
func inAllocation(env []string) bool {
	node := job.Getenv(env, "SLURMD_NODENAME")
	return ofSlurm(env) && node != ""
}

// besideAllocation reports whether this berth is in the shell of salloc, which is
// usually not on the node.
func besideAllocation(env []string) bool { return ofSlurm(env) && !inAllocation(env) }

// ofSlurm reports whether the environment is that of a Slurm job. berth gives the
// same variables to scripts that were written for Slurm.
func ofSlurm(env []string) bool {
	id := job.Getenv(env, "SLURM_JOB_ID")
	cluster := job.Getenv(env, "SLURM_CLUSTER_NAME")
	return id != "" && cluster != "berth"
}

// hostCPUs is how many CPUs jobs may use.
func hostCPUs(env []string) int {
	cpus, _ := site.Host()
	if within := allocated(env).CPUs; within > 0 {
		cpus = min(cpus, within)
	}
	return cpus
}

// allocated is the CPUs and memory that Slurm gave; 0: all of the machine's.
func allocated(env []string) sched.Host {
	if !inAllocation(env) {
		return sched.Host{}
	}
	number := func(name string) int {
		value := job.Getenv(env, name)
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 {
			return 0
		}
		return n
	}
	host := sched.Host{CPUs: number("SLURM_CPUS_ON_NODE"), MemMiB: int64(number("SLURM_MEM_PER_NODE"))}
	if host.MemMiB == 0 {
		host.MemMiB = int64(number("SLURM_MEM_PER_CPU") * host.CPUs)
	}
	if host.MemMiB == 0 {
		host.MemMiB = int64(number("SLURM_MEM_PER_GPU") * number("SLURM_GPUS_ON_NODE"))
	}
	return host
}

// halt is a signal to stop. Slurm sends it to all processes of its job, the jobs of
// this run among them.
type halt struct {
	mu   sync.Mutex
	at   time.Time // zero: not yet
	came chan struct{}
}

const (
	// haltLag is how long before berth a job may get the signal.
	haltLag = time.Second
	// haltWait is how long the end of a failed job waits for it.
	haltWait = 200 * time.Millisecond
)

func (h *halt) note(sig os.Signal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.at.IsZero() && sig == syscall.SIGTERM {
		h.at = time.Now()
		close(h.channel())
	}
}

// channel is closed when the signal comes. The caller holds the mutex.
func (h *halt) channel() chan struct{} {
	if h.came == nil {
		h.came = make(chan struct{})
	}
	return h.came
}

// haltWaitWell is how long berth waits for the signal when a job that ran this long has
// ended well, because the signal may have made it save its work and exit. Waiting is
// worth it for a long job; a short one is delayed by a hundredth of its time, and by no
// less than 5 ms.
func haltWaitWell(ran time.Duration) time.Duration {
	return min(max(ran/100, 5*time.Millisecond), haltWait)
}

// stopped reports whether a job that ended then, after running so long, was stopped
// with berth.
func (h *halt) stopped(ended time.Time, ran time.Duration, well bool) bool {
	h.mu.Lock()
	came := h.channel()
	h.mu.Unlock()
	wait := haltWait
	if well {
		wait = haltWaitWell(ran)
	}
	select {
	case <-came:
	case <-time.After(wait):
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.at.IsZero() && ended.After(h.at.Add(-haltLag))
}
