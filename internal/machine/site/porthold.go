package site

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// While no daemon runs, any user could listen on its TCP port, and open pages
// would go on talking to that user. So a small process holds the listening
// sockets for the next daemon of the same state directory, where the service
// manager does not (Store). It accepts no connection: those wait for the daemon.
const (
	holdPort   = "port"      // the argument after HoldWord
	holdSocket = "port.sock" // in the state directory

	// holdTime is how long the sockets are held after the last daemon ended
	// without letting go.
	holdTime = 10 * time.Minute
	holdLook = time.Second // how often it looks whether its socket was removed

	holdPatience = 5 * time.Second // for an answer of the process
	maxHeld      = 8

	// Descriptors of the process, after the usual three.
	fdHoldSocket = 3 // where daemons find it
	fdHoldDir    = 4 // the state directory
	fdHoldFirst  = 5 // the sockets come here, in one message
)

// letGo is what a daemon sends that wants its port free.
const letGo = 'e'

// PortHold is a connection to the process that holds a port. While it is open,
// the port is held.
type PortHold struct{ conn *net.UnixConn }

// HoldPort starts a process that holds listeners.
func HoldPort(stateDir string, listeners []net.Listener) (*PortHold, error) {
	fds, err := descriptors(listeners)
	if err != nil {
		return nil, err
	}
	defer closeFDs(fds)
	if err := startHolder(stateDir, fds); err != nil {
		return nil, fmt.Errorf("start the process that holds the port: %w", err)
	}
	return KeepPort(stateDir)
}

func startHolder(stateDir string, fds []int) error {
	dir, err := os.OpenFile(stateDir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	// The caller has the store's lock, so what is there belongs to no other daemon.
	if err := unix.Unlinkat(int(dir.Fd()), holdSocket, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	gate, err := net.ListenUnix("unix", &net.UnixAddr{Name: inDir(dir), Net: "unix"})
	if err != nil {
		return err
	}
	gate.SetUnlinkOnClose(false)
	defer gate.Close()
	if err := os.Chmod(inDir(dir), 0o600); err != nil {
		return err
	}
	door, err := gate.File()
	if err != nil {
		return err
	}
	defer door.Close()
	ours, theirs, err := messagePair()
	if err != nil {
		return err
	}
	defer ours.Close()
	defer theirs.Close()
	if _, _, err := ours.WriteMsgUnix([]byte{holdPort[0]}, unix.UnixRights(fds...), nil); err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe", HoldWord, holdPort)
	cmd.Args[0], cmd.Dir, cmd.Env = "berth", "/", []string{}
	cmd.ExtraFiles = []*os.File{door, dir, theirs}
	// As for a scope: a process group of its own, and not a session.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	go awaitHolder(cmd)
	return nil
}

// messagePair is a connection, and its other end for another process.
func messagePair() (ours *net.UnixConn, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	theirs = os.NewFile(uintptr(pair[1]), "holder")
	file := os.NewFile(uintptr(pair[0]), "daemon")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return conn.(*net.UnixConn), theirs, nil
}

// receivedFDs are the descriptors in a message, however many its sender put in.
func receivedFDs(oob []byte) (all []int) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
		}
		all = append(all, fds...)
	}
	return all
}

// awaitHolder waits for the process, which ends by itself.
func awaitHolder(cmd *exec.Cmd) { _ = cmd.Wait() }

// inDir is the socket's path by way of its directory: a path of its own may be
// longer than an address allows.
func inDir(dir *os.File) string { return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), holdSocket) }

// KeepPort connects to the process that holds the port of a state directory; nil
// without such a process.
func KeepPort(stateDir string) (*PortHold, error) {
	h, fds, err := findPort(stateDir)
	closeFDs(fds)
	return h, err
}

// TakePort is KeepPort for the next daemon, which gets the listeners.
func TakePort(stateDir string) (*PortHold, []net.Listener, error) {
	h, fds, err := findPort(stateDir)
	if h == nil {
		return nil, nil, err
	}
	listeners, err := listenersOf(fds)
	if err != nil {
		h.Close()
		return nil, nil, err
	}
	return h, listeners, nil
}

func findPort(stateDir string) (*PortHold, []int, error) {
	dir, err := os.OpenFile(stateDir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, nil, nil //nolint:nilerr // a daemon without a state directory holds no port
	}
	defer dir.Close()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: inDir(dir), Net: "unix"})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("find the process that holds the port: %w", err)
	}
	if !sameUser(conn) {
		conn.Close()
		return nil, nil, errors.New("another user's process claims to hold the port")
	}
	_ = conn.SetReadDeadline(time.Now().Add(holdPatience)) // it may be stopped
	fds, err := receiveSockets(conn)
	if err != nil {
		conn.Close()
		return nil, nil, fmt.Errorf("take the port over: %w", err)
	}
	_ = conn.SetReadDeadline(time.Time{})
	return &PortHold{conn}, fds, nil
}

// LetGo frees the port, and returns when it is free. If another connection is
// open, as during berth restart, it stays held until that one is closed.
func (h *PortHold) LetGo() {
	defer h.Close()
	_ = h.conn.SetDeadline(time.Now().Add(holdPatience))
	if _, err := h.conn.Write([]byte{letGo}); err == nil {
		_, _ = h.conn.Read(make([]byte, 1)) // its end means that it let go
	}
}

// Close leaves the port to the process, which holds it for the next daemon.
func (h *PortHold) Close() { h.conn.Close() }

// Gone returns when the process has ended, or h is closed.
func (h *PortHold) Gone() { _, _ = h.conn.Read(make([]byte, 1)) }

// sameUser reports whether the other end runs as this process's user.
func sameUser(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	same := false
	err = raw.Control(func(fd uintptr) {
		peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		same = err == nil && int(peer.Uid) == os.Geteuid()
	})
	return same && err == nil
}

// descriptors are copies of listeners' descriptors. Listener.File would make the
// listener itself block, and so would File.Fd.
func descriptors(listeners []net.Listener) (fds []int, err error) {
	for _, l := range listeners {
		conn, ok := l.(syscall.Conn)
		if !ok {
			closeFDs(fds)
			return nil, fmt.Errorf("%s has no descriptor", l.Addr())
		}
		raw, err := conn.SyscallConn()
		if err == nil {
			var copyErr error
			err = raw.Control(func(fd uintptr) {
				var same int
				if same, copyErr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0); copyErr == nil {
					fds = append(fds, same)
				}
			})
			err = errors.Join(err, copyErr)
		}
		if err != nil {
			closeFDs(fds)
			return nil, err
		}
	}
	return fds, nil
}

// receiveSockets receives the descriptors of one message.
func receiveSockets(conn *net.UnixConn) ([]int, error) {
	said, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4*maxHeld))
	_, rights, _, _, err := conn.ReadMsgUnix(said, oob)
	if err != nil {
		return nil, err
	}
	fds := receivedFDs(oob[:rights])
	if len(fds) == 0 {
		return nil, errors.New("no socket was received")
	}
	return fds, nil
}

// listenersOf turns descriptors into listeners.
func listenersOf(fds []int) (listeners []net.Listener, err error) {
	for _, fd := range fds {
		file := os.NewFile(uintptr(fd), holdPort)
		l, listenErr := net.FileListener(file) // with a descriptor of its own
		file.Close()
		if listenErr != nil {
			err = errors.Join(err, fmt.Errorf("take a listening socket over: %w", listenErr))
			continue
		}
		listeners = append(listeners, l)
	}
	if err != nil {
		closeListeners(listeners)
		return nil, err
	}
	return listeners, nil
}

func closeListeners(listeners []net.Listener) {
	for _, l := range listeners {
		l.Close()
	}
}

func closeFDs(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// holder is the process that holds a port.
type holder struct {
	rights     []byte        // the sockets, as a message carries them
	came       chan struct{} // a daemon connected
	left       chan bool     // one went away; true: it wants the port free
	hold, look time.Duration
}

// holdPortMain is the whole of that process.
func holdPortMain() int {
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE)
	// The daemon may be spared when memory runs out. This process is not worth it.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("0"), 0)
	_ = os.WriteFile("/proc/self/comm", []byte("berth-port"), 0) // for ps and ss
	closeInherited(fdHoldFirst + 1)
	door, dir, first := os.NewFile(fdHoldSocket, holdSocket), os.NewFile(fdHoldDir, "state"), os.NewFile(fdHoldFirst, "sockets")
	for _, file := range []*os.File{door, dir, first} {
		unix.CloseOnExec(int(file.Fd()))
	}
	gate, err := net.FileListener(door)
	if err != nil {
		return 1
	}
	door.Close()
	conn, err := net.FileConn(first)
	if err != nil {
		return 1
	}
	first.Close()
	fds, err := receiveSockets(conn.(*net.UnixConn))
	if err != nil {
		return 1
	}
	conn.Close()
	h := &holder{rights: unix.UnixRights(fds...), came: make(chan struct{}), left: make(chan bool), hold: holdTime, look: holdLook}
	isThere := socketIn(dir)
	go h.accept(gate.(*net.UnixListener))
	h.wait(isThere)
	closeFDs(fds)
	if isThere() {
		_ = unix.Unlinkat(int(dir.Fd()), holdSocket, 0) // the next daemon replaces it anyway
	}
	return 0
}

// closeInherited closes what the daemon's own caller left open. Such descriptors
// survived an exec, so they are those without close-on-exec.
func closeInherited(first int) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, entry := range entries {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil || fd < first {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
}

// socketIn reports whether the socket is still the one that is there now.
func socketIn(dir *os.File) func() bool {
	look := func() (stat unix.Stat_t, err error) {
		err = unix.Fstatat(int(dir.Fd()), holdSocket, &stat, unix.AT_SYMLINK_NOFOLLOW)
		return stat, err
	}
	was, err := look()
	return func() bool {
		is, isErr := look()
		return err == nil && isErr == nil && was.Ino == is.Ino && was.Dev == is.Dev
	}
}

func (h *holder) accept(gate *net.UnixListener) {
	for {
		conn, err := gate.AcceptUnix()
		if err != nil {
			time.Sleep(holdLook) // out of descriptors
			continue
		}
		if !sameUser(conn) {
			conn.Close()
			continue
		}
		go h.serve(conn)
	}
}

// serve hands the sockets out, and follows the daemon that took them.
func (h *holder) serve(conn *net.UnixConn) {
	defer conn.Close()
	h.came <- struct{}{}
	said := make([]byte, 1)
	if _, _, err := conn.WriteMsgUnix([]byte{holdPort[0]}, h.rights, nil); err == nil {
		_, _ = conn.Read(said)
	}
	h.left <- said[0] == letGo
}

// wait returns when the port is not to be held any more: a daemon wants it free
// and no other is there, none has come back in time, or the socket is gone.
func (h *holder) wait(isThere func() bool) {
	daemons, free, since := 0, false, time.Now()
	look := time.NewTicker(h.look)
	for {
		select {
		case <-h.came:
			daemons, free = daemons+1, false
			look.Stop() // nothing wakes this process while a daemon runs
		case wanted := <-h.left:
			daemons, free = daemons-1, free || wanted
			if daemons > 0 {
				continue
			}
			if free {
				return
			}
			since = time.Now()
			look.Reset(h.look)
		case <-look.C:
			if daemons == 0 && (!isThere() || time.Since(since) > h.hold) {
				return
			}
		}
	}
}
