package site

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/text"
)

// Messages to the service manager. A status is "STATUS=" and a sentence.
const (
	ready     = "READY=1"
	stopping  = "STOPPING=1"
	reloading = "RELOADING=1"
	watchdog  = "WATCHDOG=1"
)

// manager is what the service manager passed in the environment. It is read
// once and removed, so that the service manager never takes a job for the
// daemon.
var manager struct {
	once     sync.Once
	notify   string
	watchdog time.Duration
	fds      int
}

func readManager() {
	manager.once.Do(func() {
		manager.notify = os.Getenv("NOTIFY_SOCKET")
		if isForMe("WATCHDOG_PID", true) {
			microseconds, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
			if err == nil && microseconds > 0 && microseconds < int64(time.Hour)*24/1000 {
				manager.watchdog = time.Duration(microseconds) * time.Microsecond
			}
		}
		if isForMe("LISTEN_PID", false) {
			manager.fds, _ = strconv.Atoi(os.Getenv("LISTEN_FDS"))
		}
		for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID"} {
			_ = os.Unsetenv(name) // fails only for invalid names
		}
	})
}

// isForMe reports whether a variable names this process.
func isForMe(name string, unsetCounts bool) bool {
	value, set := os.LookupEnv(name)
	if !set {
		return unsetCounts
	}
	return value == strconv.Itoa(os.Getpid())
}

// Notify sends a message to the service manager, if there is one.
func Notify(state string) error {
	readManager()
	if manager.notify == "" {
		return nil
	}
	if err := notify(manager.notify, state); err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	return nil
}

func notify(address, state string) error {
	if !strings.HasPrefix(address, "/") && !strings.HasPrefix(address, "@") {
		return fmt.Errorf("address %q: %w", text.Said(address), errors.ErrUnsupported)
	}
	if strings.HasPrefix(state, reloading) {
		// systemd distinguishes reloads by when they began.
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
			return err
		}
		state += fmt.Sprintf("\nMONOTONIC_USEC=%d", now.Nano()/1000)
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetWriteDeadline(time.Now().Add(time.Second)) // a manager that does not read must not block the daemon
	_, err = conn.Write([]byte(state))
	return err
}

// WatchdogInterval is how often at least the service manager expects a
// watchdog message, or 0 if it does not. Send twice as often.
func WatchdogInterval() time.Duration {
	readManager()
	return manager.watchdog
}

const (
	firstActivationFD = 3
	maxActivationFDs  = 16
	activationBacklog = 4096 // the kernel's own limit is usually that
)

// ActivationListeners are the sockets that the service manager opened for this
// process. Only the first call returns them.
func ActivationListeners() ([]net.Listener, error) {
	readManager()
	count := manager.fds
	manager.fds = 0
	if count < 0 || count > maxActivationFDs {
		return nil, fmt.Errorf("expected at most %d sockets from the service manager, found %d", maxActivationFDs, count)
	}
	return listenersFrom(firstActivationFD, count)
}

func listenersFrom(first, count int) (listeners []net.Listener, err error) {
	for fd := first; fd < first+count; fd++ {
		unix.CloseOnExec(fd)
		// Clients ask the kernel which process listens, and it names the last
		// one that said so. If this fails, they only see the service manager.
		_ = unix.Listen(fd, activationBacklog)
		file := os.NewFile(uintptr(fd), "activation")
		listener, listenErr := net.FileListener(file) // duplicates the descriptor
		file.Close()
		if listenErr != nil {
			err = errors.Join(err, fmt.Errorf("descriptor %d from the service manager: %w", fd, listenErr))
			continue
		}
		listeners = append(listeners, listener)
	}
	if err != nil {
		for _, listener := range listeners {
			listener.Close()
		}
		return nil, err
	}
	return listeners, nil
}
