package keep

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// The descriptors of a stage, beside the standard ones.
const (
	fdStage      = 3 // its end of the socket
	fdStageSetup = 4 // the set-up pipe, if the order has one
)

// fdSetup is where the job finds its set-up pipe.
const fdSetup = 3

// begin is the stage process. It becomes the job, or reports why not.
//
// Attributes of a thread, such as its niceness and its keyring, are set on the
// thread that executes the command.
func begin() int {
	runtime.LockOSThread()
	if !onStage() {
		return 2
	}
	frame, err := ReadFrame(descriptor(fdStage))
	if err != nil {
		return 1 // the supervisor is gone: nothing runs without its order
	}
	b := beginning{socket: fdStage}
	o, err := orderOf(frame)
	if err == nil {
		err = b.become(o, frame.all(stageJoin))
	}
	b.say(Message(stageFailed, "why", err), -1)
	return 1
}

// onStage prepares a process that a supervisor started with a socket, and
// complains if it was started in another way.
func onStage() bool {
	var stat syscall.Stat_t
	if err := syscall.Fstat(fdStage, &stat); err != nil || stat.Mode&syscall.S_IFMT != syscall.S_IFSOCK {
		fmt.Fprintln(os.Stderr, "berth-keep: this program is started by berth, not by hand")
		return false
	}
	clearMask()
	heedSignals()
	syscall.CloseOnExec(fdStage)
	return true
}

// beginning is a stage on its way to the job.
type beginning struct {
	socket int
	note   string
}

// become carries out the order. The sequence matters: first what needs root,
// then the drop, then what needs the user, then the command.
func (b *beginning) become(o Order, join []string) error {
	b.join(join)
	b.note = note(b.note, pin(o.Affinity))
	if err := b.shed(o.Credential, wholeProcess); err != nil {
		return err
	}
	if o.Helper {
		return b.help(o)
	}
	if c := o.Credential; c != nil && c.Home != "" && !hasVariable(o.Env, "HOME") {
		o.Env = append(o.Env, "HOME="+c.Home)
	}
	if o.LogAlone {
		setAside(o.Log) // an old log is not this job's
	}
	if err := checkCode(o.Code); err != nil {
		return err
	}
	if err := os.Chdir(o.Dir); err != nil {
		return fmt.Errorf("working directory: %w", err)
	}
	o.makeCheckpoints()
	log, err := openLogOf(o)
	if err != nil {
		return err
	}
	err = b.perform(o, log)
	log.excuse(err)
	return err
}

// shed gives up what was berth's: its priority and, with a credential, its user.
// Every process that acts as a user goes through here.
func (b *beginning) shed(c *Credential, of scope) error {
	if err := resetPriority(c != nil); err != nil || c == nil {
		return err
	}
	undumpable()
	remark, err := drop(c, of)
	if err != nil {
		return fmt.Errorf("become user %d: %w", c.UID, err)
	}
	b.note = note(b.note, remark)
	undumpable() // a change of user can undo it
	return nil
}

// perform becomes the command. It returns only on failure.
func (b *beginning) perform(o Order, log *logFile) error {
	path, argv, err := o.command()
	if err != nil {
		return err
	}
	if err := b.arrange(o, log); err != nil {
		return err
	}
	return o.execute(path, argv)
}

// help becomes a helper's command, whose descriptors are in place. It returns
// only on failure.
func (b *beginning) help(o Order) error {
	if err := os.Chdir(o.Dir); err != nil {
		return fmt.Errorf("working directory: %w", err)
	}
	if err := closeOnExecFrom(fdStage); err != nil {
		return err
	}
	return o.execute(o.Argv[0], o.Argv)
}

// join enters the cgroups that enforce the job's limits.
func (b *beginning) join(dirs []string) {
	for _, dir := range dirs {
		if err := setting(dir, "cgroup.procs", "0"); err != nil {
			b.note = note(b.note, "limit not enforced: "+err.Error())
		}
	}
}

// resetPriority undoes what was meant for berth: the kernel must neither spare
// a job nor prefer it. A job with a credential starts from zero, as far as the
// host allows; others keep what makes them less important.
func resetPriority(all bool) error {
	nice, adj := ownPriority()
	if nice < 0 || (all && nice > 0) {
		if err := syscall.Setpriority(syscall.PRIO_PROCESS, 0, 0); err != nil && nice < 0 {
			return fmt.Errorf("reset nice: %w", err)
		}
	}
	if adj < 0 || (all && adj > 0) {
		if err := setting("/proc/self", "oom_score_adj", "0"); err != nil && adj < 0 {
			return fmt.Errorf("reset oom_score_adj: %w", err)
		}
	}
	return nil
}

// ownPriority is the priority of this process; 0 is the default.
func ownPriority() (nice, oomScoreAdj int) {
	const offset = 20 // the system call returns 20 - nice, so that it is never negative
	if n, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0); err == nil {
		nice = offset - n
	}
	text, _ := os.ReadFile("/proc/self/oom_score_adj")
	oomScoreAdj, _ = strconv.Atoi(strings.TrimSpace(string(text)))
	return nice, oomScoreAdj
}

func openLogOf(o Order) (*logFile, error) {
	if o.Credential != nil {
		return openOwnLog(o.Log, o.Credential.UID)
	}
	return o.openLog()
}

// arrange gives the job its descriptors, and the supervisor the log's,
// readable if the user may read it.
func (b *beginning) arrange(o Order, log *logFile) error {
	theirs, err := log.reopened(syscall.O_RDWR | syscall.O_APPEND)
	if err != nil {
		theirs = log.fd
	}
	syscall.SetNonblock(theirs, false)
	b.say(Message(stageReady, "log_from", log.from, "log_regular", log.regular, "note", b.note), theirs)
	if !o.Pty {
		for fd := 1; fd <= 2; fd++ {
			if err := syscall.Dup3(log.fd, fd, 0); err != nil {
				return fmt.Errorf("pass the log on: %w", err)
			}
		}
	}
	// The set-up pipe takes the place of the socket.
	const spare = 10
	moved, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(b.socket), syscall.F_DUPFD_CLOEXEC, spare)
	if errno != 0 {
		return fmt.Errorf("move socket: %w", errno)
	}
	syscall.Close(b.socket)
	b.socket = int(moved)
	first := fdSetup
	if o.Setup {
		if err := syscall.Dup3(fdStageSetup, fdSetup, 0); err != nil {
			return fmt.Errorf("pass the set-up pipe on: %w", err)
		}
		first++
	}
	return closeOnExecFrom(first)
}

// closeOnExecFrom marks all descriptors from first on, whatever opened them.
func closeOnExecFrom(first int) error {
	const sysCloseRange, onExec = 436, 4 // the number is the same on every architecture
	_, _, errno := syscall.Syscall(sysCloseRange, uintptr(first), uintptr(^uint32(0)), onExec)
	if errno == 0 {
		return nil
	}
	names, err := readNames("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("list descriptors: %w", err)
	}
	for _, name := range names {
		if fd, err := strconv.Atoi(name); err == nil && fd >= first {
			syscall.CloseOnExec(fd)
		}
	}
	return nil
}

// execute replaces the stage by the command, under the limits that would have
// broken the stage. It returns only on failure.
func (o Order) execute(path string, argv []string) error {
	if o.Credential != nil {
		if err := lowerLimits(o.Credential.Rlimits); err != nil {
			return err
		}
	}
	err := syscall.Exec(path, argv, o.Env)
	if instead := o.shellInstead(path, argv, err); instead != nil {
		err = syscall.Exec("/bin/sh", instead, o.Env)
	}
	return fmt.Errorf("exec %s: %w", path, err)
}

// say sends a frame, with a descriptor if there is one.
func (b *beginning) say(f Frame, fd int) {
	bytes, err := f.Encode()
	if err != nil {
		panic("bug: " + err.Error())
	}
	var rights []byte
	if fd >= 0 {
		rights = syscall.UnixRights(fd)
	}
	// If this fails, the supervisor is dead, and berth kills the job.
	_ = syscall.Sendmsg(b.socket, bytes, rights, nil, syscall.MSG_NOSIGNAL)
}

// undumpable keeps other processes from tracing this one or making it dump
// core. It ends with an exec.
func undumpable() {
	const prSetDumpable = 4
	_, _, _ = syscall.Syscall(syscall.SYS_PRCTL, prSetDumpable, 0, 0)
}

func hasVariable(env []string, name string) bool {
	for _, entry := range env {
		if strings.HasPrefix(entry, name+"=") {
			return true
		}
	}
	return false
}

// makeCheckpoints makes the directory in which the job finds what it saved, if it has
// one and that is possible: it may keep it elsewhere. A new one looks older than the job,
// because only what the job writes there is a save.
func (o *Order) makeCheckpoints() {
	for _, entry := range o.Env {
		dir, found := strings.CutPrefix(entry, "BERTH_CHECKPOINT_DIR=")
		if !found || !filepath.IsAbs(dir) || syscall.Access(dir, 0) == nil {
			continue
		}
		if os.MkdirAll(dir, 0o755) == nil {
			before := time.Now().Add(-time.Hour)
			_ = os.Chtimes(dir, before, before)
		}
	}
}

// descriptor reads from a descriptor that must not be closed.
type descriptor int

func (d descriptor) Read(p []byte) (int, error) {
	for {
		n, err := syscall.Read(int(d), p)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// sized is a pointer in the form that system calls take.
func sized[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }
