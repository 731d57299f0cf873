package keep

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

const (
	prSetTimerSlack = 29
	prGetTimerSlack = 30
	// ownSlack is how late the supervisor's timers may be. Go's runtime has a thread
	// that looks at the others every 20 µs while any of them runs, which made half of
	// all changes of context while a short job began and ended.
	ownSlack = 5_000_000
	// slackVariable has the timer slack of the supervisor's caller, in nanoseconds,
	// and the name of the process.
	slackVariable = "KEEP_TIMER_SLACK"
	nameFile      = "/proc/self/comm"
)

// jobSlack is the timer slack of what the supervisor starts; 0: that of the thread
// that starts it.
var jobSlack uintptr

// coarsen gives all threads of the supervisor ownSlack: it executes the program
// again, because that of a thread that exists cannot be changed by another without
// privileges.
func coarsen() {
	text, name, _ := strings.Cut(os.Getenv(slackVariable), " ")
	if slack, err := strconv.ParseUint(text, 10, 64); err == nil {
		_ = os.Unsetenv(slackVariable)
		_ = os.WriteFile(nameFile, []byte(name), 0) // for ps, which would show "exe"
		jobSlack = uintptr(slack)
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	slack, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prGetTimerSlack, 0, 0)
	if errno != 0 || !setSlack(ownSlack) {
		return
	}
	own, _ := os.ReadFile(nameFile)
	_ = syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), slackVariable+"="+strconv.FormatUint(uint64(slack), 10)+" "+strings.TrimSpace(string(own))))
	setSlack(slack)
}

func setSlack(nanos uintptr) bool {
	_, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prSetTimerSlack, nanos, 0)
	return errno == 0
}

// startProcess is syscall.ForkExec with the timer slack of the supervisor's caller.
func startProcess(path string, argv []string, attr *syscall.ProcAttr) (pid int, err error) {
	if jobSlack != 0 {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		setSlack(jobSlack)
		defer setSlack(ownSlack)
	}
	return syscall.ForkExec(path, argv, attr)
}
