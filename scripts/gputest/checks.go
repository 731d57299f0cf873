package main

import (
	"fmt"
	"slices"
	"time"
)

// checks are made in this order: what everything else rests on comes first.
var checks = []check{
	{"discovery", "the cards are those nvidia-smi shows, through the helper and without it", time.Minute, true, discovery},
	{"attribution", "a job's memory is what nvidia-smi says of its processes, to the MiB", 90 * time.Second, true, attribution},
	{"packing", "jobs that fit run side by side; one that does not waits, and says why", 90 * time.Second, true, packing},
	{"launch-race", "ten jobs at once never take more than there is", 2 * time.Minute, true, launchRace},
	{"oom", "CUDA's out of memory is told as such, and retried with more", 90 * time.Second, true, oom},
	{"soft-cap", "frameworks stay within --cap soft", 90 * time.Second, false, softCap},
	{"hard-cap", "a job over its --cap mps fails alone", 2 * time.Minute, false, hardCap},
	{"hard-cap-killed", "nothing of MPS is left when a supervisor is killed", time.Minute, false, hardCapKilled},
	{"isolation", "a job can open the cards it was given, and no others", 90 * time.Second, false, isolation},
	{"kill-in-kernel", "a job killed with its supervisor in a kernel leaves the card free", 90 * time.Second, true, killInKernel},
	{"daemon-kill", "jobs on the card outlive a killed daemon, with peaks and exit status", 90 * time.Second, true, daemonKill},
	{"spikes", "memory taken for 200 ms is seen in the peak", 90 * time.Second, false, spikes},
	{"cost", "looking at cards costs next to nothing", 90 * time.Second, true, cost},
	{"helper-killed", "a helper killed with -9 is replaced within seconds", time.Minute, false, helperKilled},
	{"helper-hangs", "while the driver does not answer, the daemon does; nothing starts, nothing ends", 90 * time.Second, false, helperHangs},
	{"adopt", "a process started by hand can be accounted for, and is never touched", 90 * time.Second, true, adopt},
	{"memory-limits", "whether this driver can limit the memory of a cgroup", 30 * time.Second, false, memoryLimits},
	{"host-memory", "--mem holds", time.Minute, true, hostMemory},
	{"host-cpus", "--cpus holds", time.Minute, true, hostCPUs},
	{"pinning", "--pin keeps a job on the CPUs next to its card", time.Minute, false, pinning},
	{"health", "what berth says of the card's state is what nvidia-smi says", time.Minute, false, health},
}

// slice is a part of the card's memory, but at most so much: a large card is
// not filled for nothing.
func (t *trial) slice(part float64, mostMiB int64) int64 {
	return min(int64(part*float64(t.Card.FreeMiB)), mostMiB)
}

// vram is a declaration as it is typed.
func vram(mib int64) string { return fmt.Sprintf("--vram=%dM", mib) }

// near reports whether two amounts agree but for that much.
func near(a, b, slackMiB int64) bool { return a-b <= slackMiB && b-a <= slackMiB }

func median(took []time.Duration) time.Duration { return quantile(took, 0.5) }

func quantile(took []time.Duration, q float64) time.Duration {
	if len(took) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(took))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}
