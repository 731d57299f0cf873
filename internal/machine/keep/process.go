package keep

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"
)

// Process is one entry of the process table. PID and Start together identify a
// process until the next boot; a PID alone does not.
type Process struct {
	PID, Parent, Group, Session int
	State                       byte   // of its first thread, as in /proc: R, S, D, T, Z…
	Threads                     int    // without dead ones, if the first thread has exited
	Start                       uint64 // clock ticks since boot
	CPUTicks                    int    // that it used, and the children that it waited for
}

// id identifies the process until the next boot.
func (p Process) id() [2]uint64 { return [2]uint64{uint64(p.PID), p.Start} }

// exists reports whether this very process is still there: its number may have
// been given to another.
func (p Process) exists() bool {
	start, err := StartTicks(p.PID)
	return err == nil && start == p.Start
}

// Dead reports whether only the entry is left. A process whose first thread
// has exited looks dead, too, but has other threads.
func (p Process) Dead() bool { return (p.State == 'Z' || p.State == 'X') && p.Threads <= 1 }

// stopped reports whether the process does not run until it is continued, if
// ever.
func (p Process) stopped() bool { return p.State == 'T' || p.State == 't' || p.Dead() }

// BootID identifies this boot of the machine; "" if unknown.
var BootID = sync.OnceValue(func() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
})

// StartTicks is when the process started, in clock ticks since boot.
func StartTicks(pid int) (uint64, error) {
	p, err := ReadProcess(pid)
	return p.Start, err
}

// ReadProcess reads one entry of the process table.
func ReadProcess(pid int) (Process, error) {
	stat, err := readStat("/proc/" + strconv.Itoa(pid))
	if err != nil {
		return Process{}, err
	}
	p, err := parseStat(stat)
	if p.State == 'Z' && p.Threads > 1 {
		// A tracer can keep dead threads, and the kernel counts them.
		p.Threads -= deadThreads(pid)
	}
	return p, err
}

// readStat reads the stat of a process or a thread without what os.File does for
// every file: each start reads one, and a look at the process table thousands.
func readStat(dir string) ([]byte, error) {
	fd, err := syscall.Open(dir+"/stat", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir + "/stat", Err: err}
	}
	defer syscall.Close(fd)
	var stat [1024]byte // 51 numbers and a name of 64 bytes at most
	n, err := syscall.Read(fd, stat[:])
	if err != nil {
		return nil, &os.PathError{Op: "read", Path: dir + "/stat", Err: err}
	}
	return stat[:n:n], nil
}

// deadThreads counts the threads other than the first of which only the entry
// is left.
func deadThreads(pid int) (dead int) {
	for _, thread := range threads(pid) {
		stat, err := readStat(thread)
		if err != nil {
			continue
		}
		if p, err := parseStat(stat); err == nil && p.PID != pid && (p.State == 'Z' || p.State == 'X') {
			dead++
		}
	}
	return dead
}

// Halted reports whether no thread of the process runs any more until it is
// continued. One that is gone counts as halted.
func (p Process) Halted() bool {
	for _, thread := range threads(p.PID) {
		stat, err := readStat(thread)
		if err != nil {
			continue
		}
		if t, err := parseStat(stat); err != nil || !t.stopped() && t.State != 'Z' && t.State != 'X' {
			return false
		}
	}
	return true
}

// threads are the directories of a process's threads.
func threads(pid int) []string {
	all, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/[0-9]*")
	return all
}

// parseStat reads /proc/PID/stat. The command's name is in parentheses and may
// contain any byte, so the fields are counted from the last ")".
func parseStat(stat []byte) (Process, error) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 1 || end < open {
		return Process{}, errors.New("stat without a command")
	}
	fields := bytes.Fields(stat[end+1:])
	if len(fields) < 20 {
		return Process{}, errors.New("truncated stat")
	}
	var p Process
	var err error
	number := func(text []byte) int {
		n, parseErr := strconv.Atoi(string(text))
		if parseErr != nil {
			err = fmt.Errorf("stat: %w", parseErr)
		}
		return n
	}
	p.PID = number(bytes.TrimSpace(stat[:open]))
	p.State = fields[0][0]
	p.Parent, p.Group, p.Session = number(fields[1]), number(fields[2]), number(fields[3])
	p.CPUTicks = number(fields[11]) + number(fields[12]) + number(fields[13]) + number(fields[14])
	p.Threads = number(fields[17])
	start, startErr := strconv.ParseUint(string(fields[19]), 10, 64)
	if startErr != nil {
		err = startErr
	}
	p.Start = start
	return p, err
}

// Processes is the process table, as far as this user may see it. It is not a
// snapshot: a process that forks and exits while it is read can be missed, so
// callers that need certainty look twice.
func Processes() ([]Process, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list /proc: %w", err)
	}
	table := make([]Process, 0, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, err := ReadProcess(pid); err == nil {
			table = append(table, p)
		}
	}
	return table, nil
}

// Descendants are the processes below those for which root returns true,
// including these.
func Descendants(table []Process, root func(Process) bool) []Process {
	children := make(map[int][]Process, len(table))
	var found, queue []Process
	for _, p := range table {
		children[p.Parent] = append(children[p.Parent], p)
		if root(p) {
			queue = append(queue, p)
		}
	}
	seen := make(map[int]bool)
	for len(queue) > 0 {
		p := queue[0]
		queue = queue[1:]
		if seen[p.PID] {
			continue
		}
		seen[p.PID] = true
		found = append(found, p)
		queue = append(queue, children[p.PID]...)
	}
	return found
}

// These numbers are the same on every architecture.
const (
	sysPidfdSendSignal = 424
	sysPidfdOpen       = 434
)

// Signal sends a signal to exactly this process: if its pid now belongs to
// another, nothing is sent. It is not an error if the process is gone.
func (p Process) Signal(number int) error {
	fd, _, errno := syscall.Syscall(sysPidfdOpen, uintptr(p.PID), 0, 0)
	if errno == syscall.ENOSYS || errno == syscall.EPERM {
		return p.signalByNumber(number)
	}
	if errno != 0 {
		return gone(errno)
	}
	defer syscall.Close(int(fd))
	if start, err := StartTicks(p.PID); err != nil || start != p.Start {
		return nil
	}
	_, _, errno = syscall.Syscall6(sysPidfdSendSignal, fd, uintptr(number), uintptr(unsafe.Pointer(nil)), 0, 0, 0)
	if errno == syscall.ENOSYS {
		return p.signalByNumber(number)
	}
	return gone(errno)
}

// signalByNumber is for kernels without process descriptors; the time after
// the check is too short for a pid to be reused.
func (p Process) signalByNumber(number int) error {
	if start, err := StartTicks(p.PID); err != nil || start != p.Start {
		return nil
	}
	var errno syscall.Errno
	errors.As(syscall.Kill(p.PID, syscall.Signal(number)), &errno)
	return gone(errno)
}

func gone(errno syscall.Errno) error {
	if errno == 0 || errno == syscall.ESRCH {
		return nil
	}
	return errno
}
