package node

import (
	"path/filepath"
	"testing"

	"berth/internal/tests/testkit"
)

func TestKillsAtTheMemoryLimit(t *testing.T) {
	for name, test := range map[string]struct {
		groups, path, counts string
		want                 int
	}{
		"version 2":           {"0::/slurm/job_1/step_batch\n", "sys/fs/cgroup/slurm/job_1/step_batch/memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 0\n", 2},
		"version 1":           {"5:cpu,cpuacct:/x\n4:memory:/slurm/uid_1/job_1\n", "sys/fs/cgroup/memory/slurm/uid_1/job_1/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", 1},
		"without a limit":     {"0::/\n", "other", "", 0},
		"nothing can be read": {"", "other", "", 0},
	} {
		root := t.TempDir()
		testkit.Write(t, filepath.Join(root, "proc/self/cgroup"), test.groups)
		testkit.Write(t, filepath.Join(root, test.path), test.counts)
		if got := oomKills(root); got != test.want {
			t.Errorf("%s: %d", name, got)
		}
	}
}
