//go:build berthfault

package engine

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

var reached atomic.Int64

// Fault ends berth, as kill -9 would, when it comes to the named step for the
// nth time: BERTH_FAULT=committed:3.
func Fault(step string) {
	name, count, _ := strings.Cut(os.Getenv("BERTH_FAULT"), ":")
	if name != step {
		return
	}
	n, _ := strconv.ParseInt(count, 10, 64)
	if reached.Add(1) >= n {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}
