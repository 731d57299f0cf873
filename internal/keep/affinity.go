package keep

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// cpuSet is a set of CPUs as the kernel reads it.
type cpuSet []uint64

func (s cpuSet) count() (n int) {
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

// ParseCPUs reads a list of CPUs as the kernel writes it, "0-7,16-23".
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
			return nil, fmt.Errorf("no list of CPUs %q", list)
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

// pin keeps the calling thread, and what it becomes, to the CPUs of the list.
// The kernel gives it those of them that the host allows at all; remark is what
// it has to do without.
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
		return fmt.Sprintf("pinned to %d of the CPUs %s; the host allows no more", now.count(), list)
	}
	return ""
}
