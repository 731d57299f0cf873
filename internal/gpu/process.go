package gpu

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"berth/internal/keep"
)

// errProcessGone is the answer for a pid that no living process has.
var errProcessGone = errors.New("no such process")

// ProcessStart is the moment a process began, in clock ticks since boot. With
// the pid it names one process for as long as the machine is up; a pid alone
// is reused. A zombie has already given back what it held and counts as gone.
func ProcessStart(pid int) (uint64, error) {
	p, err := keep.ReadProcess(pid)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ESRCH), err == nil && p.Dead():
		return 0, errProcessGone
	case err != nil:
		return 0, fmt.Errorf("read start of process %d: %w", pid, err)
	}
	return p.Start, nil
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
