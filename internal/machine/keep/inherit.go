package keep

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"
)

// The descriptors of a supervisor.
const (
	fdController = 3 // its end of a socket pair with berth
	fdListener   = 4 // bound at sock, for later berths
	fdLock       = 5 // open with the lock held, for the supervisor's lifetime
	fdRecord     = 6 // the record file
)

// extraFiles counts the descriptors above.
const extraFiles = 4

// inherit prepares the process for starting jobs: descriptors that berth's
// caller left open, and signals it ignored, must not reach a job.
func inherit() error {
	var stat syscall.Stat_t
	if err := syscall.Fstat(fdController, &stat); err != nil || stat.Mode&syscall.S_IFMT != syscall.S_IFSOCK {
		return fmt.Errorf("this program is started by berth, not by hand")
	}
	clearMask()
	coarsen() // after that: the program executed anew would take its own timers for the caller's
	clearSignals()
	for fd := fdController; fd < fdController+extraFiles; fd++ {
		syscall.CloseOnExec(fd)
	}
	closeStrays()
	if os.Geteuid() == 0 {
		// Without root, jobs run as the supervisor's user, who may trace it
		// anyway, and that user's berth has to read it.
		undumpable()
	}
	return becomeSubreaper()
}

// becomeSubreaper makes this process the parent of its descendants' orphans.
func becomeSubreaper() error {
	const prSetChildSubreaper = 36
	if _, _, errno := syscall.Syscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0); errno != 0 {
		return fmt.Errorf("become subreaper: %w", errno)
	}
	return nil
}

// clearMask executes the program again with no signal blocked, if one was: the
// Go runtime passes its initial mask on to every process it starts.
func clearMask() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var none, blocked uint64
	const setMask = 2
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, setMask, uintptr(unsafe.Pointer(&none)), uintptr(unsafe.Pointer(&blocked)), 8, 0, 0)
	if blocked != 0 {
		// If this fails, the job runs with berth's signal mask.
		_ = syscall.Exec("/proc/self/exe", os.Args, os.Environ())
	}
}

// clearSignals makes the supervisor ignore signals without making its jobs do
// so: an exec resets a caught signal to its default, but keeps an ignored one.
func clearSignals() {
	deaf := []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM}
	signal.Notify(make(chan os.Signal, 1), deaf...)
	heedSignals()
}

// heedSignals resets every signal that berth's caller ignored.
func heedSignals() {
	for number := 1; number <= lastSignal; number++ {
		var now, fresh [32]byte // the kernel's sigaction, handler first; all zero is the default
		pointer := uintptr(unsafe.Pointer(&now))
		_, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(number), 0, pointer, 8, 0, 0)
		const ignored = 1
		if errno == 0 && *(*uintptr)(unsafe.Pointer(&now)) == ignored {
			_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(number), uintptr(unsafe.Pointer(&fresh)), 0, 8, 0, 0)
		}
	}
}

// closeStrays closes what berth's caller left open. Such descriptors survived
// an exec, so they are exactly those without close-on-exec.
func closeStrays() {
	names, err := readNames("/proc/self/fd")
	if err != nil {
		return
	}
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || fd < fdController+extraFiles {
			continue
		}
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0)
		if errno == 0 && flags&syscall.FD_CLOEXEC == 0 {
			syscall.Close(fd)
		}
	}
}
