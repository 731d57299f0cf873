package site

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"berth/internal/machine/keep"
	"berth/internal/text"
)

// kernel is what this process learns from the kernel directly.
type kernel struct {
	release  string
	pidfd    error
	bootTime error
}

func thisKernel() kernel {
	var k kernel
	var name unix.Utsname
	if err := unix.Uname(&name); err == nil {
		k.release = string(bytes.TrimRight(name.Release[:], "\x00"))
	}
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if k.pidfd = err; err == nil {
		unix.Close(fd)
	}
	var now unix.Timespec
	k.bootTime = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now)
	return k
}

func (e exam) release(context.Context) Finding {
	var major, minor int
	_, err := fmt.Sscanf(e.kernel.release, "%d.%d", &major, &minor)
	newer := func(a, b int) bool { return major > a || major == a && minor >= b }
	switch {
	case err != nil:
		return warn("please report this", "expected a kernel release such as 6.8, found %q", text.Said(e.kernel.release))
	case !newer(5, 3):
		return fail("use Linux 5.3 or newer", "Linux %s has no process descriptors (pidfd): jobs cannot be stopped safely", e.kernel.release)
	case !newer(5, 14):
		return warn("use Linux 5.14 or newer, which kills a whole cgroup in one step", "Linux %s: a job's processes are killed one by one", e.kernel.release)
	}
	return ok("Linux %s", e.kernel.release)
}

func (e exam) pidfd(context.Context) Finding {
	if e.kernel.pidfd != nil {
		return fail("allow pidfd_open and pidfd_send_signal in the container's seccomp profile, or use Linux 5.3 or newer",
			"process descriptors (pidfd) do not work: %v", e.kernel.pidfd)
	}
	return ok("process descriptors (pidfd) work")
}

func (e exam) bootID(context.Context) Finding {
	if len(strings.TrimSpace(e.read("/proc/sys/kernel/random/boot_id"))) != 36 {
		return fail("mount /proc with /proc/sys readable", "cannot read /proc/sys/kernel/random/boot_id: berth cannot detect a reboot")
	}
	return ok("berth can detect a reboot")
}

func (e exam) clock(context.Context) Finding {
	if e.kernel.bootTime != nil {
		return fail("use Linux 2.6.39 or newer, without a filter on clock_gettime", "CLOCK_BOOTTIME does not work: %v", e.kernel.bootTime)
	}
	return ok("time limits use CLOCK_BOOTTIME, which changes of the system time do not affect")
}

// proc looks for the mount option that hides other users' processes.
func (e exam) proc(context.Context) Finding {
	if !e.exists("/proc/self/mountinfo") {
		return fail("mount -t proc proc /proc", "/proc is not mounted")
	}
	for _, mount := range keep.ParseMounts(e.read("/proc/self/mountinfo")) {
		hidden := mount.Type == "proc" && mount.Point == "/proc" && slices.ContainsFunc(mount.Options, func(o string) bool {
			return strings.HasPrefix(o, "hidepid=") && o != "hidepid=0" && o != "hidepid=off"
		})
		if hidden && !e.isRoot() && !e.places.Shared {
			return warn("ask the administrator for a shared daemon (`berth serve` as root) or for `mount -o remount,hidepid=off /proc`",
				"other users' processes are hidden (hidepid): berth cannot name the external processes on a GPU")
		}
	}
	return ok("all processes are visible")
}

func (e exam) cgroup(context.Context) Finding {
	const fix = "run berth as a systemd service (`make install-service`), or in a delegated cgroup"
	h, unified := unified(e.machine, e.pid)
	if !unified {
		if len(hierarchies(e.machine, e.pid)) > 0 {
			return warn("boot with systemd.unified_cgroup_hierarchy=1", "cgroup version 1 only: jobs are tracked by session and ancestry")
		}
		return warn("mount -t cgroup2 none /sys/fs/cgroup", "no cgroups: jobs are tracked by session and ancestry")
	}
	probe := e.path(filepath.Join(h.dir, fmt.Sprintf("berth-doctor-%d", e.pid)))
	if err := os.Mkdir(probe, 0o755); err != nil {
		if h.dir == h.mount || !e.isRoot() {
			return warn(fix, "cannot create cgroups below %s: jobs are tracked by session and ancestry", h.dir)
		}
		return warn(fix, "cannot create cgroups below %s: %v", h.dir, err)
	}
	if err := unix.Rmdir(probe); err != nil {
		return warn("remove "+probe, "cannot remove a test cgroup: %v", err)
	}
	return ok("every job gets a cgroup (version 2, %s)", h.mount)
}

// controllers reports which limits on host resources can be enforced.
func (e exam) controllers(context.Context) Finding {
	have := make(map[string]int)
	pids := false
	for _, h := range hierarchies(e.machine, e.pid) {
		names := h.controllers
		if h.version == 2 {
			names = strings.Fields(e.read(filepath.Join(h.dir, "cgroup.controllers")))
		}
		pids = pids || slices.Contains(names, "pids")
		for _, name := range names {
			if name == "cpu" || name == "memory" {
				have[name] = h.version
			}
		}
	}
	switch {
	case len(have) == 2 && e.isRoot() && !pids:
		return warn("let systemd delegate the pids controller (Delegate=yes)", "cpus and mem can be enforced, but the number of processes of a user's command for messages cannot: the cgroup has no pids controller")
	case len(have) == 2 && (e.isRoot() || have["cpu"] == 2 && have["memory"] == 2):
		return ok("cpus and mem can be enforced (cpu version %d, memory version %d)", have["cpu"], have["memory"])
	case len(have) == 0:
		return warn("let systemd delegate the cpu and memory controllers (Delegate=yes)", "cpus and mem are counted, not enforced: the cgroup has no controllers")
	}
	which, other := "mem is enforced, cpus are only counted", "cpu"
	if have["cpu"] > 0 {
		which, other = "cpus are enforced, mem is only counted", "memory"
	}
	if len(have) == 2 {
		return warn("let systemd delegate the cpu and memory controllers (Delegate=yes)", "cpus and mem are counted, not enforced: only root may use the controllers")
	}
	return warn("let systemd delegate the cpu and memory controllers (Delegate=yes)", "%s: the cgroup has no %s controller", which, other)
}

// manyZombies is how many ended processes of its own a healthy berth never has.
const manyZombies = 100

// zombies looks for a berth that does not reap its children. Each takes a number
// that other processes need.
func (e exam) zombies(context.Context) Finding {
	ended := map[int]int{}                                 // by parent
	stats, _ := filepath.Glob(e.path("/proc/[0-9]*/stat")) // the pattern is ours
	for _, path := range stats {
		stat, _ := os.ReadFile(path)
		var parent int
		// The name before the last parenthesis may contain anything.
		if _, err := fmt.Sscanf(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " Z %d", &parent); err == nil {
			ended[parent]++
		}
	}
	for parent, n := range ended {
		if name := strings.TrimSpace(e.read(fmt.Sprintf("/proc/%d/comm", parent))); n >= manyZombies && strings.HasPrefix(name, "berth") {
			return warn("restart the daemon (systemctl restart berth), which leaves its jobs running, and please report this",
				"process %d (%s) has %d ended children that it does not reap", parent, text.Said(name), n)
		}
	}
	return ok("no berth leaves ended processes behind")
}
