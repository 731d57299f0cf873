package gpu

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"berth/internal/text"
)

// lockHolder describes the process that holds the flock on a file. The kernel
// lists locks by inode; it may not show the holder.
func lockHolder(file *os.File) string {
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return "an unknown process"
	}
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return "an unknown process"
	}
	defer locks.Close()
	inode := ":" + strconv.FormatUint(stat.Ino, 10)
	for lines := bufio.NewScanner(locks); lines.Scan(); {
		// 1: FLOCK  ADVISORY  WRITE 4242 00:1c:17 0 EOF
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || fields[1] != "FLOCK" || !strings.HasSuffix(fields[5], inode) {
			continue
		}
		name, err := os.ReadFile("/proc/" + fields[4] + "/comm")
		if err != nil {
			return "process " + fields[4]
		}
		return fmt.Sprintf("process %s (%s)", fields[4], text.Said(strings.TrimSpace(string(name))))
	}
	return "an unknown process"
}
