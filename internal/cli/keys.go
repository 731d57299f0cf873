package cli

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// keysLook is how often berth looks whether the terminal is its own: a shell may
// have put it in the background.
const keysLook = 100 * time.Millisecond

// keyboard reads single keys while berth is in the foreground. The terminal
// still turns Ctrl-C and Ctrl-Z into signals.
type keyboard struct {
	in   *os.File
	keys chan byte

	before unix.Termios // as the shell had it
	taken  bool

	stops chan os.Signal
	done  chan struct{}
	over  sync.WaitGroup
}

// Close gives the terminal back.
func (k *keyboard) Close() {
	close(k.done)
	k.over.Wait()
	signal.Stop(k.stops)
}

func (k *keyboard) serve() {
	defer k.give()
	tick := time.NewTicker(keysLook)
	defer tick.Stop()
	for {
		if k.grab() && !k.read() {
			return // the terminal is gone
		}
		select {
		case <-k.done:
			return
		case <-k.stops:
			// Ctrl-Z: the shell gets its terminal as it was.
			k.give()
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // it is allowed
		case <-tick.C:
		}
	}
}

// grab turns off echo and line editing, if berth is in the foreground. A shell
// may have turned them on meanwhile.
func (k *keyboard) grab() bool {
	if !k.foreground() {
		return false
	}
	now, err := unix.IoctlGetTermios(int(k.in.Fd()), unix.TCGETS)
	if err != nil {
		return false
	}
	if now.Lflag&(unix.ICANON|unix.ECHO) == 0 {
		return true
	}
	k.before, k.taken = *now, true
	now.Lflag &^= unix.ICANON | unix.ECHO
	now.Cc[unix.VMIN], now.Cc[unix.VTIME] = 0, 0
	return unix.IoctlSetTermios(int(k.in.Fd()), unix.TCSETS, now) == nil
}

// give restores the terminal, unless it is another program's now: from the
// background that would stop berth.
func (k *keyboard) give() {
	if k.taken && k.foreground() {
		_ = unix.IoctlSetTermios(int(k.in.Fd()), unix.TCSETS, &k.before) // the terminal may be gone
	}
	k.taken = false
}

func (k *keyboard) foreground() bool {
	group, err := unix.IoctlGetInt(int(k.in.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// read passes on what was typed. It does not wait: VMIN is 0.
func (k *keyboard) read() bool {
	buffer := make([]byte, 64)
	n, err := unix.Read(int(k.in.Fd()), buffer)
	if err != nil {
		return err == unix.EINTR || err == unix.EAGAIN
	}
	for _, key := range buffer[:max(n, 0)] {
		select {
		case k.keys <- key:
		default: // nobody listens yet
		}
	}
	return true
}
