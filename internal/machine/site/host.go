package site

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Host is the number of CPUs and the memory that jobs can use. In a container,
// that is the container's share.
func Host() (cpus int, memMiB int64) {
	cpus = runtime.NumCPU() // the CPUs in this process's affinity mask
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil {
		memMiB = int64(info.Totalram) * int64(info.Unit) >> 20
	}
	return withinLimits(here(), cpus, memMiB)
}

// FreeMiB is how much memory jobs can get now without swapping: what the host has
// left, or less if a cgroup above this process or above the jobs has a limit. jobs
// is the parent of their cgroups; empty: they have none.
func FreeMiB(jobs string) int64 { return freeMiB(here(), jobs) }

func freeMiB(m machine, jobs string) int64 {
	free := availableMiB(m)
	for _, h := range hierarchies(m, m.pid) {
		dirs := h.upwards()
		if inside, within := below(jobs, h.mount); within && inside != "" {
			dirs = append(dirs, hierarchy{mount: h.mount, dir: jobs}.upwards()...)
		}
		for _, dir := range dirs {
			if limit := memoryLimit(m, h, dir); limit > 0 {
				free = min(free, max(0, limit-memoryUsed(m, h, dir))>>20)
			}
		}
	}
	return free
}

// memoryUsed is what the processes of a cgroup use, in bytes, without files that
// the kernel can drop.
func memoryUsed(m machine, h hierarchy, dir string) int64 {
	usage, droppable := "memory.current", "inactive_file"
	if h.version == 1 {
		usage, droppable = "memory.usage_in_bytes", "total_inactive_file"
	}
	used := m.number(filepath.Join(dir, usage))
	for line := range strings.Lines(m.read(filepath.Join(dir, "memory.stat"))) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), " "); key == droppable {
			bytes, _ := strconv.ParseInt(value, 10, 64)
			used -= bytes
		}
	}
	return max(0, used)
}

// availableMiB is what the kernel says of the whole host.
func availableMiB(m machine) int64 {
	text, err := os.ReadFile(m.path("/proc/meminfo"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, "MemAvailable:"); found {
			kib, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kib >> 10
		}
	}
	return 0
}

// withinLimits lowers the machine's figures to the limits of this process's cgroup
// and its ancestors.
func withinLimits(m machine, cpus int, memMiB int64) (int, int64) {
	for _, h := range hierarchies(m, m.pid) {
		for _, dir := range h.upwards() {
			if limit := memoryLimit(m, h, dir); limit > 0 && limit>>20 < memMiB {
				memMiB = max(limit>>20, 1)
			}
			if limit := cpuLimit(m, h, dir); limit > 0 && limit < cpus {
				cpus = limit
			}
		}
	}
	return cpus, memMiB
}

// memoryLimit is in bytes; 0 means unlimited.
func memoryLimit(m machine, h hierarchy, dir string) int64 {
	file := "memory.max"
	if h.version == 1 {
		if !slices.Contains(h.controllers, "memory") {
			return 0
		}
		file = "memory.limit_in_bytes"
	}
	return m.number(filepath.Join(dir, file))
}

// cpuLimit is in cores, rounded up; 0 means unlimited.
func cpuLimit(m machine, h hierarchy, dir string) int {
	var quota, period int64
	if h.version == 2 {
		fields := strings.Fields(m.read(filepath.Join(dir, "cpu.max")))
		if len(fields) != 2 || fields[0] == "max" {
			return 0
		}
		quota, _ = strconv.ParseInt(fields[0], 10, 64)
		period, _ = strconv.ParseInt(fields[1], 10, 64)
	} else if slices.Contains(h.controllers, "cpu") {
		quota = m.number(filepath.Join(dir, "cpu.cfs_quota_us"))
		period = m.number(filepath.Join(dir, "cpu.cfs_period_us"))
	}
	if quota <= 0 || period <= 0 {
		return 0
	}
	return int((quota + period - 1) / period)
}

func (m machine) number(name string) int64 {
	value, _ := strconv.ParseInt(strings.TrimSpace(m.read(name)), 10, 64)
	return value
}
