package run

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"berth/internal/machine/keep"
)

// clockTick is the kernel's unit of CPU time in /proc, the same on every machine that
// berth runs on.
const clockTick = 10 * time.Millisecond

// CPUTimes is the CPU time that jobs have used so far, by token: that of the job's
// cgroup, or else of its processes. A job whose time cannot be read is left out. It
// asks the kernel only, and never a supervisor.
func CPUTimes(jobs []Identity) map[string]time.Duration {
	times := make(map[string]time.Duration, len(jobs))
	keepers := map[int]Identity{} // of jobs without a cgroup
	for _, j := range jobs {
		if used, ok := cgroupTime(j.Cgroup); ok {
			times[j.Token] = used
		} else if j.KeepPID > 0 {
			keepers[j.KeepPID] = j
		}
	}
	if len(keepers) == 0 {
		return times
	}
	table, err := keep.Processes()
	if err != nil {
		return times
	}
	byPID := make(map[int]keep.Process, len(table))
	for _, p := range table {
		byPID[p.PID] = p
	}
	for _, p := range table {
		if token, found := keeperOf(p, byPID, keepers); found {
			times[token] += time.Duration(p.CPUTicks) * clockTick
		}
	}
	return times
}

// keeperOf climbs from a process to the supervisor above it. A job's processes have
// it as an ancestor whatever became of their parents.
func keeperOf(p keep.Process, byPID map[int]keep.Process, keepers map[int]Identity) (token string, found bool) {
	for range maxAncestors {
		if k, is := keepers[p.PID]; is && k.KeepStart == p.Start {
			return k.Token, true
		}
		if p, found = byPID[p.Parent]; !found {
			return "", false
		}
	}
	return "", false
}

// cgroupTime is the CPU time of a cgroup of version 2. Every one counts it, whether
// CPUs are limited there or not.
func cgroupTime(dir string) (time.Duration, bool) {
	if dir == "" {
		return 0, false
	}
	stat, err := os.ReadFile(filepath.Join(dir, "cpu.stat"))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(stat)) {
		if value, found := strings.CutPrefix(line, "usage_usec "); found {
			usec, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return time.Duration(usec) * time.Microsecond, err == nil
		}
	}
	return 0, false
}
