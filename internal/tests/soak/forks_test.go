package soak

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// pidsCgroup is a cgroup that limits processes and threads.
func pidsCgroup(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a limit on processes needs root")
	}
	for _, root := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		dir := filepath.Join(root, fmt.Sprintf("soak-%d-%s", os.Getpid(), strings.Map(letters, t.Name())))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { os.Remove(dir) })
		if _, err := os.Stat(filepath.Join(dir, "pids.max")); err == nil {
			return dir
		}
	}
	t.Skip("no cgroup with the pids controller can be made here")
	return ""
}

func letters(r rune) rune {
	if r < 'A' || r > 'z' {
		return -1
	}
	return r
}

// threads is how many threads a process has.
func threads(t *testing.T, pid int) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	testkit.Must(t, err)
	return len(list)
}

// TestNoMoreProcesses leaves the machine no process to start: the daemon cannot
// start a supervisor, or the supervisor cannot start the job. The job waits, says
// why, and runs once when there is room.
func TestNoMoreProcesses(t *testing.T) {
	for who, says := range map[string]string{
		"the daemon":     "cannot be started: start supervisor",
		"the supervisor": "the machine has no room for another process",
	} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			dir := pidsCgroup(t)
			h := newHost(t, 1)
			b := h.up()
			if who == "the supervisor" { // there is one with nothing to do
				h.submit(line{number: 2, cards: 1, alone: true, kind: "plain"})
				h.drain()
			}
			pids := []int{b.cmd.Process.Pid}
			for _, p := range h.keeps() {
				pids = append(pids, p.pid)
				if n := threads(t, p.pid); n <= 8 { // what it has been seen to use
					t.Errorf("the supervisor has %d threads, and none to spare", n)
				}
			}
			for _, pid := range pids {
				testkit.Must(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0))
			}
			current := testkit.Read(t, filepath.Join(dir, "pids.current"))
			testkit.Must(t, os.WriteFile(filepath.Join(dir, "pids.max"), []byte(current), 0))
			id := h.submit(line{number: 1, cards: 1, alone: true, kind: "plain", code: 5})[0]
			h.says(id, says)
			testkit.Never(t, time.Second, "it is over or the daemon gives up", func() bool {
				return !b.running() || h.job(id).State.Terminal()
			})
			testkit.Must(t, os.WriteFile(filepath.Join(dir, "pids.max"), []byte("max"), 0))
			h.becomes(id, job.Failed)
			if v := h.job(id); outcome(v) != "exit:5" || v.Attempt != 1 || h.count("start 1") != 1 {
				t.Errorf("it ended %s in attempt %d, and ran %d times", outcome(v), v.Attempt, h.count("start 1"))
			}
			h.down(b)
			h.mustBeClean()
		})
	}
}
