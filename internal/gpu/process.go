package gpu

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"berth/internal/keep"
)

// errProcessGone is the answer for a pid that no living process has.
var errProcessGone = errors.New("no such process")

// processStart is the moment a process began, in clock ticks since boot. With
// the pid it names one process for as long as the machine is up; a pid alone
// is reused. A zombie has already given back what it held and counts as gone.
func processStart(pid int) (uint64, error) {
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
	ticks, err := processStart(pid)
	if err == nil {
		return ticks == startTicks
	}
	return errors.Is(unix.Kill(pid, 0), unix.EPERM)
}

// processOwner is the user a process runs as, where the kernel tells.
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

// speaksFor reports whether a file of this owner may say what a process holds:
// nobody books for a process of somebody else's, which might never end.
func speaksFor(owner uint32, pid int) bool {
	uid, known := processOwner(pid)
	return owner == 0 || !known || uid == int(owner)
}
