package gpu

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"berth/internal/machine/keep"
)

// errProcessGone means that no living process has this pid.
var errProcessGone = errors.New("no such process")

// processStart is the start time of a process in clock ticks since boot.
// Together with the pid it identifies a process until the next boot; pids are
// reused. A zombie has already freed what it held and counts as gone.
func processStart(pid int) (uint64, error) {
	p, err := keep.ReadProcess(pid)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ESRCH), err == nil && p.Dead():
		return 0, errProcessGone
	case err != nil:
		return 0, fmt.Errorf("read the start time of process %d: %w", pid, err)
	}
	return p.Start, nil
}

// processAlive reports whether the process that started at startTicks is
// alive. If /proc hides other users' processes, the kernel still shows whether
// the pid is in use. That is then enough: taking a live holder for dead would
// book its memory twice.
func processAlive(pid int, startTicks uint64) bool {
	if pid <= 0 {
		return false
	}
	ticks, err := processStart(pid)
	if err == nil {
		return ticks == startTicks
	}
	return errors.Is(unix.Kill(pid, 0), unix.EPERM)
}

// processOwner is the user a process runs as, if the kernel shows it.
func processOwner(pid int) (uid int, known bool) {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(status)) {
		if ids, found := strings.CutPrefix(line, "Uid:"); found {
			_, err := fmt.Sscan(ids, &uid)
			return uid, err == nil
		}
	}
	return 0, false
}

// speaksFor reports whether a file of this owner may book for a process:
// booking for another user's process could last forever.
func speaksFor(owner uint32, pid int) bool {
	uid, known := processOwner(pid)
	return owner == 0 || !known || uid == int(owner)
}
