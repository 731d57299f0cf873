package keep

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// cpuSet is a set of CPUs in the kernel's form.
type cpuSet []uint64

func (s cpuSet) count() (n int) {
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

// ParseCPUs reads a list of CPUs in the kernel's form, "0-7,16-23".
func ParseCPUs(list string) ([]int, error) {
	var cpus []int
	for part := range strings.SplitSeq(list, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		first, err := strconv.ParseUint(low, 10, 32)
		last, lastErr := strconv.ParseUint(high, 10, 32)
		if err != nil || lastErr != nil || first > last || last >= maxCPUs || len(cpus)+int(last-first) >= maxCPUs {
			return nil, fmt.Errorf("expected a list of CPUs such as 0-7,16-23, found %q", list)
		}
		for cpu := first; cpu <= last; cpu++ {
			cpus = append(cpus, int(cpu))
		}
	}
	return cpus, nil
}

func parseAffinity(list string) (cpuSet, error) {
	cpus, err := ParseCPUs(list)
	if err != nil {
		return nil, err
	}
	set := make(cpuSet, slices.Max(cpus)/64+1)
	for _, cpu := range cpus {
		set[cpu/64] |= 1 << (cpu % 64)
	}
	return set, nil
}

// pin restricts the calling thread, and what it becomes, to the CPUs of the
// list that the host allows. remark is what could not be done.
func pin(list string) (remark string) {
	if list == "" {
		return ""
	}
	set, err := parseAffinity(list)
	if err != nil {
		return "not pinned: " + err.Error()
	}
	const wordBytes = 8
	_, _, errno := syscall.RawSyscall(syscall.SYS_SCHED_SETAFFINITY, 0, uintptr(len(set)*wordBytes), sized(&set[0]))
	if errno != 0 {
		return fmt.Sprintf("not pinned to CPUs %s: %v", list, errno)
	}
	now := make(cpuSet, maxCPUs/64)
	_, _, errno = syscall.RawSyscall(syscall.SYS_SCHED_GETAFFINITY, 0, uintptr(len(now)*wordBytes), sized(&now[0]))
	if errno == 0 && now.count() < set.count() {
		return fmt.Sprintf("pinned to only %d of the CPUs %s: the host allows no more", now.count(), list)
	}
	return ""
}
