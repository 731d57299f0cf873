package keep

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"unsafe"
)

// openPty creates a pseudo-terminal. The job gets the slave; both descriptors
// are close-on-exec, and neither becomes the supervisor's own terminal.
func openPty() (master, slave int, err error) {
	const flags = syscall.O_RDWR | syscall.O_NOCTTY | syscall.O_CLOEXEC
	master, err = syscall.Open("/dev/ptmx", flags|syscall.O_NONBLOCK, 0)
	if err != nil {
		return -1, -1, fmt.Errorf("create terminal: open /dev/ptmx: %w", err)
	}
	slave, err = openSlave(master, flags)
	if err != nil {
		syscall.Close(master)
		return -1, -1, fmt.Errorf("create terminal: %w", err)
	}
	return master, slave, nil
}

func openSlave(master, flags int) (int, error) {
	var unlocked int32
	if err := ioctl(master, syscall.TIOCSPTLCK, unsafe.Pointer(&unlocked)); err != nil {
		return -1, fmt.Errorf("unlock: %w", err)
	}
	// By descriptor, if the kernel can: the path may lead to a terminal of
	// another container.
	const tiocgptpeer = 0x5441
	if fd, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(master), tiocgptpeer, uintptr(flags)); errno == 0 {
		return int(fd), nil
	}
	var number uint32
	if err := ioctl(master, syscall.TIOCGPTN, unsafe.Pointer(&number)); err != nil {
		return -1, fmt.Errorf("get its number: %w", err)
	}
	return syscall.Open("/dev/pts/"+strconv.FormatUint(uint64(number), 10), flags, 0)
}

// grant makes the user the owner of the terminal, and the only one who may
// write to it.
func grant(slave int, c *Credential) error {
	if c == nil {
		return nil
	}
	if err := syscall.Fchown(slave, c.UID, c.GID); err != nil {
		return fmt.Errorf("give terminal to user %d: %w", c.UID, err)
	}
	if err := syscall.Fchmod(slave, 0o600); err != nil {
		return fmt.Errorf("give terminal to user %d: %w", c.UID, err)
	}
	return nil
}

// The size of a terminal until an attached client sets it.
const (
	defaultRows = 24
	defaultCols = 80
	maxWindow   = 1<<16 - 1
)

// setWindow sets the size of the terminal, which the kernel reports to the
// job. An invalid size changes nothing.
func setWindow(master *os.File, rows, cols int) {
	if rows <= 0 || cols <= 0 || rows > maxWindow || cols > maxWindow {
		return
	}
	size := [4]uint16{uint16(rows), uint16(cols)}
	raw, err := master.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { _ = ioctl(int(fd), syscall.TIOCSWINSZ, unsafe.Pointer(&size)) })
}

func ioctl(fd int, request uintptr, argument unsafe.Pointer) error {
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), request, uintptr(argument)); errno != 0 {
		return errno
	}
	return nil
}
