package keep

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// tree lists the live processes of the job.
func (h *held) tree() []Process {
	living, _ := h.remains()
	return living
}

func (h *held) remains() (living, zombies []Process) {
	return remains(h.cgroup, func(pid int) bool { return h.mps.apart(pid) || h.park.driver.apart(pid) })
}

// remains lists a job's processes, and those of which only the entry is left:
// the supervisor's descendants, since orphans become the supervisor's children,
// and the members of its cgroup, without what serves the job from outside.
func remains(cgroup string, apart func(pid int) bool) (living, zombies []Process) {
	table, err := Processes()
	if err != nil {
		return nil, nil
	}
	self := os.Getpid()
	inCgroup := make(map[int]bool)
	if cgroup != "" {
		for _, pid := range CgroupProcesses(cgroup) {
			inCgroup[pid] = true
		}
	}
	all := Descendants(table, func(p Process) bool {
		return p.PID != self && (p.Parent == self || inCgroup[p.PID]) && !apart(p.PID)
	})
	living = all[:0]
	for _, p := range all {
		switch {
		case p.PID == self:
		case p.Dead():
			zombies = append(zombies, p)
		default:
			living = append(living, p)
		}
	}
	return living, zombies
}

// do carries out what is due.
func (h *held) do(what action) {
	switch what {
	case warn:
		// A warning goes only to processes that handle it; the shell around
		// them would just die.
		for _, p := range h.tree() {
			if p.masks(h.order.WarnSignal, "SigCgt", "SigBlk") {
				_ = p.Signal(h.order.WarnSignal)
			}
		}
	case term:
		all := h.halt()
		for _, p := range all {
			h.countStraggler(p)
			_ = p.Signal(sigTERM)
		}
		// Children continue before their parents: if a parent exits while they
		// are stopped, the kernel sends them HUP.
		for _, p := range slices.Backward(all) {
			_ = p.Signal(sigCONT)
		}
	case kill:
		if h.cgroup != "" && h.ending.stop != "" {
			// First all at once: a tree that grows faster than it can be read
			// cannot be killed one by one.
			KillCgroup(h.cgroup)
			h.spent = true
		}
		for _, p := range h.tree() {
			h.countStraggler(p)
			_ = p.Signal(sigKILL)
		}
		if h.cgroup != "" {
			KillCgroup(h.cgroup)
			h.spent = true
		}
	case nothing:
	}
}

// A tree is read again until all of it has stopped, but not for ever: a job
// that keeps forking is killed all the same, if less politely. The bound is a
// time and not a count: on a busy machine the supervisor may read the tree a
// hundred times before a process has run once.
const (
	firstHaltPause = time.Millisecond
	lastHaltPause  = 20 * time.Millisecond
	haltBudget     = time.Second // reading tens of thousands takes time
)

// halt stops every process of the tree and lists them, parents first. Without
// that, a process that is being forked while the others get TERM would miss
// it, and keep the job alive through the grace period.
//
// A process stops only when it next runs, and may finish a fork before: so it
// has to be seen stopped. It may have finished that fork after the table was
// listed and before its own entry was read: so the list is read once more
// after all were seen stopped, and must show no new process. And it may be
// stopped where it blocks TERM, as a shell does around every fork: it would
// continue, fork, and get TERM only then. So it continues from there, unless
// it blocks TERM for good.
func (h *held) halt() []Process {
	var all []Process
	seen := make(map[[2]uint64]bool)
	begun := time.Now()
	patience := min(haltBudget, time.Until(h.ending.killAt)/8)
	calm := 0
	for pause := firstHaltPause; ; pause = min(2*pause, lastHaltPause) {
		tree := h.tree()
		calm++
		if !standStill(tree) {
			calm = 0
		}
		for _, p := range tree {
			if !seen[p.id()] {
				seen[p.id()] = true
				all = append(all, p)
				_ = p.Signal(sigSTOP)
				calm = 0
			}
		}
		if time.Since(begun) >= haltBudget {
			return all
		}
		if calm == 2 {
			deaf := slices.DeleteFunc(tree, func(p Process) bool { return !p.masks(sigTERM, "SigBlk") })
			if len(deaf) == 0 || time.Since(begun) >= patience {
				return all
			}
			signalAll(deaf, sigCONT)
			time.Sleep(pause)
			signalAll(deaf, sigSTOP)
			calm = 0
		}
		time.Sleep(pause)
	}
}

func signalAll(all []Process, number int) {
	for _, p := range all {
		_ = p.Signal(number)
	}
}

// standStill reports whether none of the processes, parents first, can fork
// now: each is stopped, or dead, or waits for a child of its own that is. Any
// other wait ends soon, and may be in the middle of a fork.
func standStill(tree []Process) bool {
	waitedFor := make(map[int]bool) // by the pid of the parent
	for _, p := range slices.Backward(tree) {
		if !p.stopped() && (p.State != 'D' || !waitedFor[p.PID]) {
			return false
		}
		waitedFor[p.Parent] = true
	}
	return true
}

// maxStragglers bounds the count of processes that outlived the main one.
const maxStragglers = 10000

// countStraggler counts a process that has to be killed although the job was
// not stopped.
func (h *held) countStraggler(p Process) {
	if h.ending.exited && h.ending.stop == "" && len(h.stragglers) < maxStragglers {
		h.stragglers[p.id()] = true
	}
}

// masks reports whether the signal is in one of these sets of the process, by
// their names in /proc: caught, blocked, ignored.
func (p Process) masks(number int, sets ...string) bool {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/status")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		if !slices.Contains(sets, key) {
			continue
		}
		mask, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		if err == nil && mask&(1<<(number-1)) != 0 {
			return true
		}
	}
	return false
}

// reaped is the job's main process after its end; pid 0 means that no process
// is left, with the usage of all others.
type reaped struct {
	pid    int
	status syscall.WaitStatus
	usage  usage
}

// over reports whether a child has ended, reaped or not.
func over(pid int) bool {
	const onePID = 1 // P_PID
	var info [16]uint64
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, onePID, uintptr(pid), uintptr(unsafe.Pointer(&info)),
			syscall.WEXITED|syscall.WNOHANG|syscall.WNOWAIT, 0, 0)
		if errno != syscall.EINTR {
			return errno == syscall.ECHILD || errno == 0 && info != [16]uint64{}
		}
	}
}

// usage is the CPU time of processes that are gone.
type usage struct {
	user, sys time.Duration
	maxRSSKiB int64
}

func (u *usage) add(r syscall.Rusage) {
	u.user += time.Duration(r.Utime.Nano())
	u.sys += time.Duration(r.Stime.Nano())
	u.maxRSSKiB = max(u.maxRSSKiB, r.Maxrss)
}

// soon is what a short job takes. It is also how long the job's orphans may stay
// zombies.
const soon = 100 * time.Millisecond

// awaitSoon returns when the child has ended, or soon. A goroutine in the poller
// costs no thread, whereas Go's runtime starts another for one that waits in
// wait4, which is a third of what a short job costs its supervisor.
func awaitSoon(pid int) {
	fd, _, errno := syscall.Syscall(sysPidfdOpen, uintptr(pid), syscall.O_NONBLOCK, 0)
	if errno != 0 {
		return
	}
	process := os.NewFile(fd, "process")
	defer process.Close()
	raw, err := process.SyscallConn()
	if err == nil && process.SetReadDeadline(time.Now().Add(soon)) == nil {
		_ = raw.Read(func(uintptr) bool { return over(pid) })
	}
}

// reap waits for every process that is or becomes the supervisor's child. The
// kernel reports "no children" exactly when the job's last process is gone. It
// sends two messages, for which the channel has room, and never blocks:
// zombies of a job that keeps forking must not pile up. The usage of its MPS
// host does not count as the job's.
func reap(main, host int, to chan<- reaped) {
	var others usage
	awaitSoon(main)
	for {
		var status syscall.WaitStatus
		var used syscall.Rusage
		pid, err := syscall.Wait4(-1, &status, 0, &used)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			to <- reaped{usage: others}
			return
		case !status.Exited() && !status.Signaled():
			// A child can make its parent its tracer (PTRACE_TRACEME). The parent
			// then hears of every stop as well, which is not an end.
		case pid == main:
			main = 0 // its pid may be reused
			r := reaped{pid: pid, status: status}
			r.usage.add(used)
			to <- r
		case pid == host:
			host = 0
		default:
			others.add(used)
		}
	}
}
