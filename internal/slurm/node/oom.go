package node

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"berth/internal/slurm/handover"
)

// oomKills is how many processes of this cgroup the kernel has killed because
// Slurm's limit of host memory was reached. The job's are among them.
func oomKills(root string) int {
	groups, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup")) // without one there is no limit
	for line := range strings.Lines(string(groups)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		path := ""
		switch fields[1] {
		case "":
			path = filepath.Join(root, "sys/fs/cgroup", fields[2], "memory.events")
		case "memory":
			path = filepath.Join(root, "sys/fs/cgroup/memory", fields[2], "memory.oom_control")
		default:
			continue
		}
		counts, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for count := range strings.Lines(string(counts)) {
			if rest, found := strings.CutPrefix(count, "oom_kill "); found {
				kills, _ := strconv.Atoi(strings.TrimSpace(rest))
				return kills
			}
		}
	}
	return 0
}

// outOfHostMemory says so in the record of a failed job.
func outOfHostMemory(r *handover.Record) {
	const why = "the kernel killed a process of it at Slurm's limit of host memory"
	if r.Detail != "" {
		r.Detail += "; "
	}
	r.Detail += why
}
