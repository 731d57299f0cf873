package soak

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// cgroupOf is the directory of a process's cgroup of version 2; "": none of its
// own.
func cgroupOf(t *testing.T, pid int) (root, dir string) {
	t.Helper()
	for row := range strings.Lines(testkit.Read(t, "/proc/self/mountinfo")) {
		if words := strings.Fields(row); len(words) > 4 && strings.Contains(row, " - cgroup2 ") {
			root = words[4]
		}
	}
	for row := range strings.Lines(testkit.Read(t, fmt.Sprintf("/proc/%d/cgroup", pid))) {
		if path, found := strings.CutPrefix(strings.TrimSpace(row), "0::"); found && path != "/" && root != "" {
			return root, filepath.Join(root, path)
		}
	}
	return root, ""
}

// TestCgroupTouched has somebody freeze a job's cgroup, or move the job to
// another one and remove its own. It can be cancelled all the same, nothing of it
// is left, and the next job runs.
func TestCgroupTouched(t *testing.T) {
	for name, touch := range map[string]func(h *host, id, root, dir string){
		"frozen": func(h *host, _, _, dir string) {
			testkit.Must(h.t, os.WriteFile(filepath.Join(dir, "cgroup.freeze"), []byte("1"), 0))
		},
		"removed": func(h *host, id, root, dir string) {
			testkit.Eventually(h.t, "the job is elsewhere", func() bool {
				for _, p := range h.jobProcesses(id) {
					_ = os.WriteFile(filepath.Join(root, "cgroup.procs"), []byte(strconv.Itoa(p.pid)), 0)
				}
				return os.Remove(dir) == nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, 1)
			b := h.up()
			id := h.submit(line{number: 1, block: "grace=0.5s", cards: 1, alone: true, kind: "tree", hold: forever})[0]
			testkit.Eventually(t, "it runs", func() bool { return h.wrote("grown 1 1") })
			root, dir := cgroupOf(t, h.jobProcesses(id)[0].pid)
			if dir == "" || os.Getuid() != 0 {
				t.Skip("jobs have no cgroup of version 2 here")
			}
			touch(h, id, root, dir)
			if _, errOut, status := h.cli("cancel", id); status != 0 {
				t.Errorf("cancel: %s", errOut)
			}
			h.becomes(id, job.Cancelled)
			for _, p := range h.jobProcesses(id) {
				t.Errorf("it is over, but there is %s", p)
			}
			next := line{number: 2, cards: 1, alone: true, kind: "plain", code: 5}
			ids := h.submit(next)
			h.drain()
			h.mustEndAs(ids, []line{next})
			h.down(b)
			h.mustBeClean()
		})
	}
}

// TestBareEnvironment gives the daemon less than a login would: jobs run and end
// all the same, to the last process.
func TestBareEnvironment(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a mount namespace needs root")
	}
	const plain = `exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"`
	for name, c := range map[string]struct {
		env    []string
		script string
		user   bool
	}{
		"no home and no temporary directory": {[]string{"HOME=/nowhere/home", "TMPDIR=/nowhere/tmp"}, `exec "$@"`, false},
		"nothing said about a home":          {[]string{"HOME=", "XDG_CONFIG_HOME=", "XDG_STATE_HOME="}, `exec "$@"`, false},
		"no cgroup can be made":              {nil, `for d in /sys/fs/cgroup /sys/fs/cgroup/*; do mount -o remount,bind,ro $d; done 2>/dev/null; exec "$@"`, false},
		"processes of others are hidden":     {nil, "mount -t proc -o hidepid=2 proc /proc; " + plain, true},
		"kernel settings are read-only":      {nil, `mount -o bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys; exec "$@"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, 2)
			if c.user {
				h.asPlainUser()
			}
			h.env = append(h.env, c.env...)
			daemon := h.serving()
			cmd := exec.Command("unshare", append([]string{"-m", "sh", "-c", c.script, "sh"}, daemon.Args...)...)
			cmd.Dir, cmd.Env = daemon.Dir, daemon.Env
			b := h.launch(cmd, nil)
			h.awaitAnswer(b)
			lines := []line{
				{number: 1, block: "grace=0.2s", cards: 1, alone: true, kind: "tree", hold: forever, ends: "cancelled"},
				{number: 2, cards: 1, alone: true, kind: "plain", code: 5},
			}
			ids := h.submit(lines...)
			testkit.Eventually(t, "it runs", func() bool { return h.wrote("grown 1 1") })
			h.cli("cancel", ids[0])
			h.drain()
			if v := h.job(ids[0]); outcome(v) != "cancelled" {
				t.Errorf("the cancelled job ended %s", outcome(v))
			}
			h.mustEndAs(ids[1:], lines[1:])
			h.down(b)
			h.mustBeClean()
		})
	}
}
