package siege

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"berth/internal/tests/testkit"
)

func pointer[T any](value *T) uintptr { return uintptr(unsafe.Pointer(value)) }

// pry tries everything a process can do to another, and to itself, that takes
// rights it should not have. It prints what it could.
func pry(pids []string) error {
	tried := 0
	try := func(what string, call uintptr, args ...uintptr) {
		tried++
		padded := append(args, 0, 0, 0, 0, 0, 0)
		if _, _, errno := syscall.RawSyscall6(call, padded[0], padded[1], padded[2], padded[3], padded[4], padded[5]); errno == 0 {
			fmt.Println("could", what)
		}
	}
	for _, word := range pids {
		pid, err := strconv.Atoi(word)
		if err != nil {
			return err
		}
		target := uintptr(pid)
		try("attach to "+word, syscall.SYS_PTRACE, unix.PTRACE_ATTACH, target)
		try("seize "+word, syscall.SYS_PTRACE, unix.PTRACE_SEIZE, target)
		for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGTERM, syscall.SIGHUP} {
			try(fmt.Sprintf("send %v to %s", signal, word), syscall.SYS_KILL, target, uintptr(signal))
		}
		try("make "+word+" humble", syscall.SYS_SETPRIORITY, 0, target, 19)
		limit := [2]uint64{0, 0}
		try("limit "+word, unix.SYS_PRLIMIT64, target, 7, pointer(&limit), 0)
		var byteOf [1]byte
		local, remote := [2]uintptr{pointer(&byteOf[0]), 1}, [2]uintptr{0x400000, 1}
		try("read the memory of "+word, unix.SYS_PROCESS_VM_READV, target, pointer(&local), 1, pointer(&remote), 1, 0)
		if fd, _, errno := syscall.RawSyscall(unix.SYS_PIDFD_OPEN, target, 0, 0); errno == 0 {
			for number := range uintptr(16) {
				try(fmt.Sprintf("take descriptor %d of %s", number, word), unix.SYS_PIDFD_GETFD, fd, number, 0)
			}
		}
		for _, name := range []string{"mem", "environ", "maps", "auxv", "io", "fd/3", "root/etc/shadow"} {
			tried++
			if file, err := os.Open("/proc/" + word + "/" + name); err == nil {
				fmt.Println("could open", file.Name())
				file.Close()
			}
		}
		for _, name := range []string{"exe", "cwd", "root", "fd/0", "fd/6", "ns/mnt"} {
			tried++
			if to, err := os.Readlink("/proc/" + word + "/" + name); err == nil {
				fmt.Println("could see", name, "of", word, "is", to)
			}
		}
	}
	try("become root", syscall.SYS_SETRESUID, 0, 0, 0)
	try("enter root's group", syscall.SYS_SETRESGID, 0, 0, 0)
	var none [1]uint32
	try("change its groups", syscall.SYS_SETGROUPS, 1, pointer(&none[0]))
	try("mount", syscall.SYS_UNSHARE, unix.CLONE_NEWNS)
	try("change its root", syscall.SYS_CHROOT, pointer(&[]byte("/\x00")[0]))
	try("go first", syscall.SYS_SETPRIORITY, 0, 0, ^uintptr(4))
	header, all := [2]uint32{0x20080522, 0}, [6]uint32{^uint32(0), ^uint32(0), ^uint32(0), ^uint32(0), ^uint32(0), ^uint32(0)}
	try("take capabilities", syscall.SYS_CAPSET, pointer(&header), pointer(&all))
	tried++
	if os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0) == nil {
		fmt.Println("could be spared by the kernel")
	}
	fmt.Println("tried", tried)
	return nil
}

// attached is a connection to a job's terminal.
type attached struct {
	net.Conn
	reader *bufio.Reader
}

// mustNotAttach checks that a user is kept from the terminal of a job.
func (c *camp) mustNotAttach(t *testing.T, p *person, id string) {
	t.Helper()
	conn, err := p.dial()
	testkit.Must(t, err)
	defer conn.Close()
	fmt.Fprintf(conn, attachRequest, id)
	testkit.Must(t, conn.SetDeadline(time.Now().Add(testkit.Patience)))
	status, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || status != "HTTP/1.1 403 Forbidden\r\n" {
		t.Errorf("%s is told %q, %v", p.name, status, err)
	}
	c.mustBeDenied(t, p, "attach", id)
}

const attachRequest = "POST /v1/jobs/%s/attach HTTP/1.1\r\nHost: berth\r\nConnection: Upgrade\r\nUpgrade: berth-attach\r\n\r\n"

// attach connects a user to the terminal of a job.
func (c *camp) attach(t *testing.T, p *person, id string) *attached {
	t.Helper()
	conn, err := p.dial()
	testkit.Must(t, err)
	testkit.Must(t, conn.SetDeadline(time.Now().Add(testkit.Patience)))
	fmt.Fprintf(conn, attachRequest, id)
	a := &attached{conn, bufio.NewReader(conn)}
	status, err := a.reader.ReadString('\n')
	if err != nil || status != "HTTP/1.1 101 Switching Protocols\r\n" {
		t.Fatalf("attach: %q, %v", status, err)
	}
	for {
		line, err := a.reader.ReadString('\n')
		testkit.Must(t, err)
		if line == "\r\n" {
			return a
		}
	}
}
