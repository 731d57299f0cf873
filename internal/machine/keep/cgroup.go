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

// FilteredSuffix ends the name of a directory with a device filter, which
// applies to everything below it.
const FilteredSuffix = ".cards"

// maxCgroupDepth bounds the walk through cgroups that a job created.
const maxCgroupDepth = 16

// cgroupOf is the directory of the order's cgroup, or "". The record names it
// before it is created, so that it can be found whenever the supervisor dies.
// The jobs of one supervisor reuse one cgroup: replacing it would cost as much
// as a short job.
func cgroupOf(o Order, token string) string {
	if o.CgroupParent == "" {
		return ""
	}
	return filepath.Join(o.CgroupParent, token)
}

// makeCgroup creates the job's cgroup, or reuses the empty one of the last
// job, and opens it for the fork.
func makeCgroup(dir string) (fd int, err error) {
	const flags = syscall.O_RDONLY | syscall.O_DIRECTORY | syscall.O_CLOEXEC
	var stat syscall.Stat_t
	if fd, err = syscall.Open(dir, flags, 0); err == nil {
		if err = syscall.Fstat(fd, &stat); err == nil && stat.Nlink <= 2 {
			thaw(fd)
			return fd, nil
		}
		// The last job created cgroups in it.
		syscall.Close(fd)
		if err = RemoveCgroup(dir); err != nil {
			return -1, fmt.Errorf("create cgroup: %w", err)
		}
	}
	err = os.Mkdir(dir, 0o755)
	if os.IsNotExist(err) && !strings.HasSuffix(filepath.Dir(dir), FilteredSuffix) {
		// A later berth removed the empty parent. One with a filter is not
		// created again, because it would lack the filter.
		if err = os.Mkdir(filepath.Dir(dir), 0o755); err == nil {
			err = os.Mkdir(dir, 0o755)
		}
	}
	if err != nil {
		return -1, fmt.Errorf("create cgroup: %w", err)
	}
	if fd, err = syscall.Open(dir, flags, 0); err != nil {
		os.Remove(dir)
		return -1, fmt.Errorf("open cgroup %s: %w", dir, err)
	}
	return fd, nil
}

// thaw is for a cgroup whose last job somebody froze: the next would never come to
// its program.
func thaw(cgroup int) {
	if fd, err := syscall.Openat(cgroup, "cgroup.freeze", syscall.O_WRONLY|syscall.O_CLOEXEC, 0); err == nil {
		_, _ = syscall.Write(fd, []byte("0"))
		syscall.Close(fd)
	}
}

// CgroupProcesses lists the pids of all processes in the cgroup and below it.
// A missing cgroup has none.
func CgroupProcesses(dir string) []int {
	var pids []int
	walkCgroup(dir, 0, func(dir string) {
		procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			return
		}
		for _, line := range bytes.Fields(procs) {
			// 0 is a process outside this pid namespace.
			if pid, err := strconv.Atoi(string(line)); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
	})
	return pids
}

// KillCgroup kills every process in the cgroup at once, if the kernel can. The
// cgroup cannot be used again: since Linux 6.14, processes that are forked
// into it later die at once, too.
func KillCgroup(dir string) {
	file, err := os.OpenFile(filepath.Join(dir, "cgroup.kill"), os.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer file.Close()
	_, _ = file.WriteString("1") // the processes are checked again in any case
}

// RemoveCgroup removes the cgroup and those below it. The kernel refuses while
// a process is in one.
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
