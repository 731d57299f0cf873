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

// What a supervisor is started with, by descriptor.
const (
	fdController = 3 // its end of a socket pair with berth
	fdListener   = 4 // bound at sock, for the berths that come later
	fdLock       = 5 // open with the lock held, for as long as it lives
	fdRecord     = 6 // the record file
)

// extraFiles counts the descriptors above.
const extraFiles = 4

// inherit makes the process one that a job can be started from: what berth's
// own caller left open or ignored must not reach the job.
func inherit() error {
	var stat syscall.Stat_t
	if err := syscall.Fstat(fdController, &stat); err != nil || stat.Mode&syscall.S_IFMT != syscall.S_IFSOCK {
		return fmt.Errorf("berth starts this program; it is of no use by hand")
	}
	clearMask()
	clearSignals()
	for fd := fdController; fd < fdController+extraFiles; fd++ {
		syscall.CloseOnExec(fd)
	}
	closeStrays()
	if os.Geteuid() == 0 {
		// The jobs of a supervisor that is not root's are its own user's, who
		// may look into it anyway; and a berth of that user's could not.
		undumpable()
	}
	const prSetChildSubreaper = 36
	if _, _, errno := syscall.Syscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0); errno != 0 {
		return fmt.Errorf("become subreaper: %w", errno)
	}
	return nil
}

// clearMask starts the program anew with no signal blocked, if one was: the
// runtime gives the mask it was started with to every process it starts.
func clearMask() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var none, blocked uint64
	const setMask = 2
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, setMask, uintptr(unsafe.Pointer(&none)), uintptr(unsafe.Pointer(&blocked)), 8, 0, 0)
	if blocked != 0 {
		// On failure the job merely runs with the mask berth was given.
		_ = syscall.Exec("/proc/self/exe", os.Args, os.Environ())
	}
}

// clearSignals makes the supervisor deaf without making its jobs so: a caught
// signal is back to its default in a new program, an ignored one stays ignored.
func clearSignals() {
	deaf := []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM}
	signal.Notify(make(chan os.Signal, 1), deaf...)
	heedSignals()
}

// heedSignals gives every signal that berth's caller ignored its meaning back.
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
// an exec, so they are exactly those that are not marked to be closed by one.
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
