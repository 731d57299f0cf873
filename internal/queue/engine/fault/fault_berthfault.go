//go:build berthfault

package fault

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

var reached atomic.Int64

// Point kills berth, like kill -9, when it reaches the named step for the nth
// time: BERTH_FAULT=committed:3. With committed:3:20ms it first sleeps, so that
// earlier orders are carried out.
func Point(step string) {
	words := strings.Split(os.Getenv("BERTH_FAULT")+"::", ":")
	if words[0] != step {
		return
	}
	n, _ := strconv.ParseInt(words[1], 10, 64)
	if reached.Add(1) < n {
		return
	}
	linger, _ := time.ParseDuration(words[2])
	time.Sleep(linger)
	syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}
