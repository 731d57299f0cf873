package keep

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// limits is how the CPUs and memory of one job are limited.
type limits struct {
	join   []string // version 1 directories that the job's process joins before it begins
	own    string   // the job's cgroup, if limits were written there
	memory string   // where its memory is counted
	v1     bool     // that is a version 1 directory
	note   string   // what could not be enforced, and why
}

// enforce writes the order's limits into the job's own cgroup, or else into a
// directory of a version 1 hierarchy.
func enforce(o Order, token, cgroup string) limits {
	var l limits
	if o.MemMiB > 0 {
		if err := l.limitMemory(o, token, cgroup); err != nil {
			l.note = note(l.note, fmt.Sprintf("memory limit of %d MiB not enforced: %v", o.MemMiB, err))
		}
	}
	if o.CPUs > 0 {
		if err := l.limitCPUs(o, token, cgroup); err != nil {
			l.note = note(l.note, fmt.Sprintf("limit of %d CPUs not enforced: %v", o.CPUs, err))
		}
	}
	if o.Pids > 0 {
		if err := l.limitPids(o, token, cgroup); err != nil {
			l.note = note(l.note, fmt.Sprintf("limit of %d processes not enforced: %v", o.Pids, err))
		}
	}
	return l
}

// note appends a remark.
func note(notes, more string) string {
	if notes == "" || more == "" {
		return notes + more
	}
	return notes + "; " + more
}

func (l *limits) limitMemory(o Order, token, cgroup string) error {
	size := strconv.FormatInt(o.MemMiB<<20, 10)
	if cgroup != "" && setting(cgroup, "memory.max", size) == nil {
		// Swap would undermine the limit, and the rest of a job is useless once
		// one of its processes is killed. Not every kernel has these files.
		_ = setting(cgroup, "memory.swap.max", "0")
		_ = setting(cgroup, "memory.oom.group", "1")
		l.own, l.memory = cgroup, cgroup
		return nil
	}
	dir, err := l.joinV1(o.MemoryParent, token, "memory.limit_in_bytes", size)
	if err == nil {
		_ = setting(dir, "memory.memsw.limit_in_bytes", size) // missing if swap is not counted
		l.memory, l.v1 = dir, true
	}
	return err
}

func (l *limits) limitCPUs(o Order, token, cgroup string) error {
	const period = 100000 // microseconds
	quota := strconv.Itoa(o.CPUs * period)
	if cgroup != "" && setting(cgroup, "cpu.max", quota+" "+strconv.Itoa(period)) == nil {
		l.own = cgroup
		return nil
	}
	dir, err := l.joinV1(o.CPUParent, token, "cpu.cfs_quota_us", quota)
	if err == nil {
		_ = setting(dir, "cpu.cfs_period_us", strconv.Itoa(period)) // it is the default
	}
	return err
}

func (l *limits) limitPids(o Order, token, cgroup string) error {
	most := strconv.Itoa(o.Pids)
	if cgroup != "" && setting(cgroup, "pids.max", most) == nil {
		l.own = cgroup
		return nil
	}
	_, err := l.joinV1(o.PidsParent, token, "pids.max", most)
	return err
}

// joinV1 has the job's process join a fresh directory in which a limit is set.
func (l *limits) joinV1(parent, token, name, value string) (dir string, err error) {
	if dir, err = makeV1(parent, token); err != nil {
		return "", err
	}
	if err := setting(dir, name, value); err != nil {
		os.Remove(dir)
		return "", err
	}
	l.join = append(l.join, dir)
	return dir, nil
}

// makeV1 creates a fresh directory for the job in a version 1 hierarchy.
func makeV1(parent, token string) (string, error) {
	if parent == "" {
		return "", fmt.Errorf("no such controller is available to berth")
	}
	dir := filepath.Join(parent, token)
	if err := RemoveCgroup(dir); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("create cgroup: %w", err)
	}
	return dir, nil
}

// lost notes that the job's own cgroup failed, and the limits in it with it.
func (l *limits) lost() {
	if l.own == "" {
		return
	}
	l.note = note(l.note, "limits not enforced")
	if l.memory == l.own {
		l.memory = ""
	}
	l.own = ""
}

// raise sets the memory limit, if there is one, to another value.
func (l *limits) raise(mib int64) {
	if l.memory == "" {
		return
	}
	size := strconv.FormatInt(mib<<20, 10)
	if !l.v1 {
		_ = setting(l.memory, "memory.max", size)
		return
	}
	// Neither may be above the other, so the order depends on the direction.
	for range 2 {
		_ = setting(l.memory, "memory.memsw.limit_in_bytes", size)
		_ = setting(l.memory, "memory.limit_in_bytes", size)
	}
}

// verdict reports whether the kernel killed a process for the memory limit,
// and the peak of the job's memory.
func (l *limits) verdict() (killed bool, peakKiB int64) {
	if l.memory == "" {
		return false, 0
	}
	events, peak := "memory.events", "memory.peak"
	if l.v1 {
		events, peak = "memory.oom_control", "memory.max_usage_in_bytes"
	}
	text, _ := os.ReadFile(filepath.Join(l.memory, events))
	for line := range bytes.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		if key == "oom_kill" && value != "0" {
			killed = true
		}
	}
	text, _ = os.ReadFile(filepath.Join(l.memory, peak)) // not every kernel counts it
	most, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return killed, most >> 10
}

// remove removes the limits, so that they do not apply to the next job. A
// later berth removes what cannot be removed now.
func (l *limits) remove() {
	for _, dir := range l.join {
		_ = RemoveCgroup(dir)
	}
}

// setting writes one of the kernel's files.
func setting(dir, name, value string) error {
	file, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.WriteString(value)
	return err
}
