package keep

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// FilteredSuffix ends the name of a directory that has a device filter, which
// holds for all that is below it.
const FilteredSuffix = ".cards"

// maxCgroupDepth bounds the walk through cgroups a job made for itself.
const maxCgroupDepth = 16

// cgroupOf is where the order's cgroup goes, or "". The record names it before
// it is made, so that it can be found whenever the supervisor dies. One
// supervisor's jobs follow one another in the same cgroup: removing one and
// making the next would cost as much as a short job.
func cgroupOf(o Order, token string) string {
	if o.CgroupParent == "" {
		return ""
	}
	return filepath.Join(o.CgroupParent, token)
}

// makeCgroup makes the job's cgroup, or takes the empty one of the last job,
// and opens it for the fork.
func makeCgroup(dir string) (fd int, err error) {
	err = os.Mkdir(dir, 0o755)
	switch {
	case os.IsNotExist(err) && !strings.HasSuffix(filepath.Dir(dir), FilteredSuffix):
		// A later berth tidied the empty parent away. One with a filter is not
		// made again, because it would come without it.
		if err = os.Mkdir(filepath.Dir(dir), 0o755); err == nil {
			err = os.Mkdir(dir, 0o755)
		}
	case os.IsExist(err):
		err = nil
		if info, statErr := os.Stat(dir); statErr == nil && info.Sys().(*syscall.Stat_t).Nlink > 2 {
			// The last job made cgroups of its own in it.
			if err = RemoveCgroup(dir); err == nil {
				err = os.Mkdir(dir, 0o755)
			}
		}
	}
	if err != nil {
		return -1, fmt.Errorf("make cgroup: %w", err)
	}
	fd, err = syscall.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		os.Remove(dir)
		return -1, fmt.Errorf("open cgroup %s: %w", dir, err)
	}
	return fd, nil
}

// CgroupProcesses lists the numbers of all processes in the cgroup and in
// those below it. A cgroup that is not there has none.
func CgroupProcesses(dir string) []int {
	var pids []int
	walkCgroup(dir, 0, func(dir string) {
		procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			return
		}
		for _, line := range bytes.Fields(procs) {
			// 0 is a process that this pid namespace cannot name.
			if pid, err := strconv.Atoi(string(line)); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
	})
	return pids
}

// KillCgroup ends every process in the cgroup at once, where the kernel can.
// The cgroup is spent then: since Linux 6.14 whatever is forked into it later
// dies at once too.
func KillCgroup(dir string) {
	file, err := os.OpenFile(filepath.Join(dir, "cgroup.kill"), os.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer file.Close()
	_, _ = file.WriteString("1") // the hunt looks again either way
}

// RemoveCgroup removes the cgroup and those below it. The kernel refuses as
// long as a process is in one.
func RemoveCgroup(dir string) error {
	var last error
	walkCgroup(dir, 0, func(dir string) {
		if err := syscall.Rmdir(dir); err != nil && err != syscall.ENOENT {
			last = fmt.Errorf("remove cgroup %s: %w", dir, err)
		}
	})
	return last
}

// walkCgroup visits the cgroups below dir, then dir itself.
func walkCgroup(dir string, depth int, visit func(dir string)) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, entry := range entries {
		if entry.IsDir() && depth < maxCgroupDepth {
			walkCgroup(filepath.Join(dir, entry.Name()), depth+1, visit)
		}
	}
	visit(dir)
}
