package site

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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
	names    []string // of the fds
	fds      int
	taken    atomic.Bool // the fds
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
			manager.names = strings.Split(os.Getenv("LISTEN_FDNAMES"), ":")
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

// Managed reports whether there is a service manager to notify.
func Managed() bool {
	readManager()
	return manager.notify != ""
}

// pageFD is the name of the HTTP port's sockets at the service manager.
const pageFD = "http"

// StorePort hands the HTTP port's listeners to the service manager, which keeps
// them over restarts and crashes (FileDescriptorStoreMax=) and passes them to
// the next daemon.
func StorePort(listeners []net.Listener) error {
	readManager()
	fds, err := descriptors(listeners)
	if err != nil {
		return err
	}
	defer closeFDs(fds)
	if err := notify(manager.notify, "FDSTORE=1\nFDNAME="+pageFD, fds...); err != nil {
		return fmt.Errorf("hand the port to the service manager: %w", err)
	}
	return nil
}

// DropPort has the service manager close the listeners that it keeps.
func DropPort() error { return Notify("FDSTOREREMOVE=1\nFDNAME=" + pageFD) }

// notify sends a message, with descriptors.
func notify(address, state string, fds ...int) error {
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
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	var sendErr error
	err = raw.Write(func(fd uintptr) bool { // WriteMsgUnix refuses a connection that is not a stream
		sendErr = unix.Sendmsg(int(fd), []byte(state), rights, nil, 0)
		return !errors.Is(sendErr, unix.EAGAIN)
	})
	return errors.Join(err, sendErr)
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
// process or kept from an earlier one: for the API, and for HTTP by TCP. Only
// the first call returns them.
func ActivationListeners() (api, page []net.Listener, err error) {
	readManager()
	count, names := manager.fds, manager.names
	if manager.taken.Swap(true) {
		count = 0
	}
	if count < 0 || count > maxActivationFDs {
		return nil, nil, fmt.Errorf("expected at most %d sockets from the service manager, found %d", maxActivationFDs, count)
	}
	listeners, err := listenersFrom(firstActivationFD, count)
	if err != nil {
		return nil, nil, err
	}
	for i, l := range listeners {
		network, wanted, to := l.Addr().Network(), "unix", &api
		if len(names) == count && names[i] == pageFD {
			wanted, to = "tcp", &page
		}
		if network != wanted {
			closeListeners(listeners)
			return nil, nil, fmt.Errorf("expected a %s socket from the service manager, found %s (%s)", wanted, network, l.Addr())
		}
		*to = append(*to, l)
	}
	return api, page, nil
}

func listenersFrom(first, count int) ([]net.Listener, error) {
	var fds []int
	for fd := first; fd < first+count; fd++ {
		unix.CloseOnExec(fd)
		// Clients ask the kernel which process listens, and it names the last
		// one that said so. If this fails, they only see the service manager.
		_ = unix.Listen(fd, activationBacklog)
		fds = append(fds, fd)
	}
	listeners, err := listenersOf(fds)
	if err != nil {
		return nil, fmt.Errorf("from the service manager: %w", err)
	}
	return listeners, nil
}
