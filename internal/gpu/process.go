package gpu

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// errProcessGone is the answer for a pid that no living process has.
var errProcessGone = errors.New("no such process")

// ProcessStart is the moment a process began, in clock ticks since boot. With
// the pid it names one process for as long as the machine is up; a pid alone
// is reused. A zombie has already given back what it held and counts as gone.
func ProcessStart(pid int) (uint64, error) {
	var buf [1024]byte // the name, the only part without a small bound, is cut by the kernel at 64 bytes
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(fd)
		var n int
		n, err = unix.Read(fd, buf[:])
		if err == nil {
			return parseStat(buf[:n])
		}
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		return 0, errProcessGone
	}
	return 0, fmt.Errorf("read start of process %d: %w", pid, err)
}

// parseStat finds the state and the start time behind the name, which may
// itself hold spaces and brackets.
func parseStat(stat []byte) (uint64, error) {
	_, rest, found := cutLast(stat, ')')
	fields := bytes.Fields(rest)
	if !found || len(fields) < 20 {
		return 0, fmt.Errorf("unreadable stat line %q", stat)
	}
	if state := fields[0][0]; state == 'Z' || state == 'X' {
		return 0, errProcessGone
	}
	return strconv.ParseUint(string(fields[19]), 10, 64)
}

func cutLast(s []byte, sep byte) (before, after []byte, found bool) {
	i := bytes.LastIndexByte(s, sep)
	if i < 0 {
		return s, nil, false
	}
	return s[:i], s[i+1:], true
}

// processAlive reports whether the very process that began at startTicks still
// lives. Where /proc hides other users' processes the kernel still tells a
// taken pid from a free one; a taken one is then believed, because taking a
// live holder for dead would book its memory twice.
func processAlive(pid int, startTicks uint64) bool {
	if pid <= 0 {
		return false
	}
	ticks, err := ProcessStart(pid)
	if err == nil {
		return ticks == startTicks
	}
	return errors.Is(unix.Kill(pid, 0), unix.EPERM)
}
