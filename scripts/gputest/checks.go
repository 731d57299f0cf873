package main

import (
	"fmt"
	"slices"
	"time"
)

// checks run in this order: the basics first.
var checks = []check{
	{"discovery", "berth shows the same GPUs as nvidia-smi, with and without the helper", time.Minute, true, discovery},
	{"attribution", "a job's memory is that of its processes in nvidia-smi, to the MiB", 90 * time.Second, true, attribution},
	{"packing", "jobs that fit run side by side; one that does not fit waits, with a reason", 90 * time.Second, true, packing},
	{"launch-race", "ten jobs at once never use more memory than there is", 2 * time.Minute, true, launchRace},
	{"oom", "CUDA's out-of-memory error is recognised, and the job retried with more", 90 * time.Second, true, oom},
	{"soft-cap", "frameworks stay within --cap soft", 90 * time.Second, false, softCap},
	{"hard-cap", "a job over its --cap mps fails alone", 2 * time.Minute, false, hardCap},
	{"hard-cap-killed", "no MPS process is left when a supervisor is killed", time.Minute, false, hardCapKilled},
	{"isolation", "a job can open its own GPUs, and no others", 90 * time.Second, false, isolation},
	{"kill-in-kernel", "a job killed with its supervisor in a kernel leaves the GPU free", 90 * time.Second, true, killInKernel},
	{"daemon-kill", "jobs survive a killed daemon, with their peaks and exit status", 90 * time.Second, true, daemonKill},
	{"parking", "a job leaves the GPU without losing work, also if the daemon is killed meanwhile", 2 * time.Minute, true, parking},
	{"parkings", "every framework is parked and goes on; an emptied GPU; jobs that take turns", 3 * time.Minute, true, parkings},
	{"spikes", "memory allocated for 200 ms is part of the peak", 90 * time.Second, false, spikes},
	{"cost", "reading the GPUs costs next to nothing", 90 * time.Second, true, cost},
	{"helper-killed", "a helper killed with -9 is replaced within seconds", time.Minute, false, helperKilled},
	{"helper-hangs", "while the driver hangs, the daemon answers; no job starts or ends", 90 * time.Second, false, helperHangs},
	{"slurm-node", "berth on the node of a cluster measures its job", time.Minute, true, slurmNode},
	{"adopt", "an external process can be adopted, and is never touched", 90 * time.Second, true, adopt},
	{"memory-limits", "whether this driver can limit the memory of a cgroup", 30 * time.Second, false, memoryLimits},
	{"host-memory", "--mem is enforced", time.Minute, true, hostMemory},
	{"host-cpus", "--cpus is enforced", time.Minute, true, hostCPUs},
	{"pinning", "--pin keeps a job on the CPUs near its GPU", time.Minute, false, pinning},
	{"health", "berth and nvidia-smi agree about the GPU's state", time.Minute, false, health},
}

// slice is a part of the GPU's memory, up to mostMiB: a large GPU need not be
// filled.
func (t *trial) slice(part float64, mostMiB int64) int64 {
	return min(int64(part*float64(t.Card.FreeMiB)), mostMiB)
}

// vram is a declaration as a user types it.
func vram(mib int64) string { return fmt.Sprintf("--vram=%dM", mib) }

// near reports whether two amounts differ by at most slackMiB.
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
