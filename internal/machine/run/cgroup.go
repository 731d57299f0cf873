package run

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"berth/internal/machine/keep"
)

// detectCgroup makes a directory for jobs' cgroups below berth's own if the
// host allows it, and removes those that earlier berths left empty. It returns
// "" if jobs have to do without.
//
// A cgroup with processes in it, such as berth's own, cannot pass controllers
// on. The top of the hierarchy can, if berth may use it.
func detectCgroup() string {
	own := ownCgroup()
	if own == "" {
		return ""
	}
	dir := placeIn(own, false)
	top := cgroupMount()
	if passesOn(dir) || own == top || !topIsOurs(os.Geteuid(), managed(), os.Getenv(keep.TokenVariable)) {
		return dir
	}
	if better := placeIn(top, true); passesOn(better) {
		unix.Rmdir(dir) // fails if an earlier berth of this process has jobs in it
		return better
	} else if better != "" {
		unix.Rmdir(better)
	}
	return dir
}

// topIsOurs reports whether berth may put its jobs at the top of the
// hierarchy: as root, on a machine without systemd. A berth that runs in a job
// stays below it: the outer berth decides which GPUs its jobs may open, and
// when they end.
func topIsOurs(euid int, managed bool, outerToken string) bool {
	return euid == 0 && !managed && outerToken == ""
}

// placeIn makes this berth's directory in a cgroup, with all available
// controllers.
func placeIn(cgroup string, parentToo bool) string {
	sweepCgroups(cgroup)
	dir, err := makeBerthDir(cgroup)
	if err != nil {
		return ""
	}
	enableControllers(dir, parentToo)
	return dir
}

// passesOn reports whether cgroups below dir can limit CPUs and memory.
func passesOn(dir string) bool {
	if dir == "" {
		return false
	}
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	controllers := strings.Fields(string(text))
	return err == nil && slices.Contains(controllers, cpuController) && slices.Contains(controllers, memoryController)
}

// managed reports whether this machine runs systemd.
func managed() bool {
	_, err := os.Lstat("/run/systemd/system")
	return err == nil
}

// makeBerthDir makes this berth's directory in a cgroup, or finds it again.
// Its name shows when it is not needed any more.
func makeBerthDir(own string) (string, error) {
	start, err := keep.StartTicks(os.Getpid())
	if err != nil {
		return "", err
	}
	dir := filepath.Join(own, fmt.Sprintf("berth-%d-%d", os.Getpid(), start))
	if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
		return "", err
	}
	if err := unix.Access(filepath.Join(dir, "cgroup.procs"), unix.W_OK); err != nil {
		unix.Rmdir(dir)
		return "", err
	}
	return dir, nil
}

// ownCgroup is the directory of this process's version 2 cgroup, or "".
func ownCgroup() string {
	mount := cgroupMount()
	path, err := cgroupOf(os.Getpid())
	if mount == "" || err != nil {
		return ""
	}
	return filepath.Join(mount, path)
}

// cgroupMount is where the version 2 hierarchy is mounted, on hybrid hosts
// too.
func cgroupMount() string {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	for _, mount := range keep.ParseMounts(string(info)) {
		// The paths in /proc/PID/cgroup do not fit a mount of a subtree.
		if mount.Type == "cgroup2" && mount.Root == "/" {
			return mount.Point
		}
	}
	return ""
}

// cgroupOf is a process's path in the version 2 hierarchy.
func cgroupOf(pid int) (string, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return "", err
	}
	if path, found := unifiedPath(string(text)); found {
		return path, nil
	}
	return "", fmt.Errorf("process %d is not in a version 2 cgroup", pid)
}

// unifiedPath finds the version 2 path in the text of /proc/PID/cgroup.
func unifiedPath(text string) (path string, ok bool) {
	for line := range strings.Lines(text) {
		if path, found := strings.CutPrefix(line, "0::"); found {
			return strings.TrimSpace(path), true
		}
	}
	return "", false
}

// sweepCgroups removes what berths that are gone left behind. The kernel keeps
// every cgroup that still has a process.
func sweepCgroups(own string) {
	left, _ := filepath.Glob(filepath.Join(own, "berth-*-*"))
	for _, dir := range left {
		var pid int
		var start uint64
		if _, err := fmt.Sscanf(filepath.Base(dir), "berth-%d-%d", &pid, &start); err != nil {
			continue
		}
		if now, err := keep.StartTicks(pid); err != nil || now != start {
			_ = keep.RemoveCgroup(dir)
		}
	}
}
