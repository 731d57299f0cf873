package keep

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"
)

// A door is how berth acts as a user outside a job. It opens one file, or runs one
// of berth's own commands (a helper), which may execute code of that user. It takes
// the same steps as the start of a job, so a helper has a login's limits and no
// priority of berth's, and it ends everything that the helper leaves behind.

// DoorWord, as the last argument, makes the program a door.
const DoorWord = "__door"

// FrameOpen asks a door to open a file: path, and a credential. The answer is
// FrameOpened with its descriptor, or with errno or why.
const (
	FrameOpen   FrameKind = 'O'
	FrameOpened FrameKind = 'D'
)

// A supervisor asks a door when a file was last written to: path, and a credential.
// The answer is modified_ns.
const (
	frameLook   FrameKind = 'M'
	frameLooked FrameKind = 'm'
)

// fdProgram is where a door finds berth's own program. A path would lead to
// another one after an upgrade.
const fdProgram = 4

// HelperProgram is the first word of a helper's command.
const HelperProgram = "/proc/self/fd/4"

// OpenFrame asks a door to open a file as a user; nil: as itself.
func OpenFrame(c *Credential, path string) Frame {
	fields := codec{fields: []Field{{"path", path}}}
	passCredential(&fields, &c)
	return Frame{FrameOpen, fields.fields}
}

// door is the process. It ends when its caller closes the other end of the socket.
func door() int {
	if !onStage() {
		return 2
	}
	frame, err := ReadFrame(descriptor(fdStage))
	if err != nil {
		return 1 // its caller is gone
	}
	if frame.Kind == FrameOpen || frame.Kind == frameLook {
		return openFor(frame)
	}
	o, err := orderOf(frame)
	if err == nil && !o.Helper {
		err = errors.New("expected the order of a helper")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	return attendHelper(o)
}

// openFor opens the file, or looks at it. No code of the user runs in this process, which nobody
// can trace, so limits that would break it do not apply.
func openFor(f Frame) int {
	// Only this thread becomes the user. Should the runtime need another thread, one
	// of root's starts it, and the user may have no process left.
	runtime.LockOSThread()
	b := beginning{socket: fdStage}
	c := codec{fields: f.Fields, reading: true}
	var user *Credential
	passCredential(&c, &user)
	err := c.err
	if err == nil {
		err = b.shed(user, oneThread)
	}
	if err != nil {
		b.say(Message(FrameOpened, "why", err), -1)
		return 1
	}
	if f.Kind == frameLook {
		b.say(Message(frameLooked, "modified_ns", modified(f.Get("path"))), -1)
		return 0
	}
	fd, err := openRegular(f.Get("path"))
	if err != nil {
		number := syscall.EIO
		errors.As(err, &number)
		b.say(Message(FrameOpened, "errno", int(number)), -1)
		return 1
	}
	b.say(Frame{Kind: FrameOpened}, fd)
	return 0
}

// modified is when a file or directory was last written to, in nanoseconds; 0: there is
// none, or it cannot be seen.
func modified(path string) int64 {
	for failing("look") != nil {
		time.Sleep(time.Second)
	}
	var stat syscall.Stat_t
	if syscall.Stat(path, &stat) != nil {
		return 0
	}
	return stat.Mtim.Nano()
}

func openRegular(path string) (int, error) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return -1, err
	}
	var stat syscall.Stat_t
	if err := syscall.Fstat(fd, &stat); err != nil {
		return -1, err
	}
	if stat.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return -1, syscall.EINVAL
	}
	return fd, nil
}

// attendHelper runs a helper to its end, and returns its exit status. What went
// wrong besides is printed for the caller.
func attendHelper(o Order) int {
	clearSignals()
	if err := becomeSubreaper(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	s, err := launch(o, o.Job, true)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer s.limits.remove()
	ended, hungUp, refusal := make(chan reaped, 2), make(chan struct{}), make(chan string, 1)
	go reap(s.pid, 0, ended)
	go func() { refusal <- s.stage.refusal(s.order) }()
	go func() {
		_, _ = descriptor(fdStage).Read(make([]byte, 1)) // nothing more is sent
		close(hungUp)
	}()
	var life <-chan time.Time
	if o.Limit > 0 {
		life = time.After(o.Limit)
	}
	var main reaped
	late := false
	select {
	case main = <-ended:
	case <-hungUp:
	case <-life:
		late = true
	}
	main = s.endRest(o, main, ended)
	killed, _ := s.limits.verdict()
	if s.cgroup != "" {
		_ = RemoveCgroup(s.cgroup)
	}
	return helperStatus(o, main, <-refusal, late, killed)
}

// helperStatus is the exit status of a helper that is gone.
func helperStatus(o Order, main reaped, refusal string, late, killed bool) int {
	switch {
	case refusal != "":
		fmt.Fprintln(os.Stderr, refusal)
		return 1
	case late:
		fmt.Fprintf(os.Stderr, "it was ended after %s\n", o.Limit)
		return 1
	case killed && main.status.Signaled():
		fmt.Fprintf(os.Stderr, "it was ended: it used more than %d MiB of memory\n", o.MemMiB)
		return 1
	case main.status.Signaled():
		return 128 + int(main.status.Signal())
	}
	return main.status.ExitStatus()
}

// Between looks at what a helper left.
const (
	firstRestPause = 2 * time.Millisecond
	lastRestPause  = 100 * time.Millisecond
)

// endRest kills all that is left of a helper, and returns how its main process
// ended. It returns once nothing runs any more; of a process that a tracer keeps,
// the entry may be left.
func (s *started) endRest(o Order, main reaped, ended <-chan reaped) reaped {
	uid := os.Geteuid()
	if o.Credential != nil {
		uid = o.Credential.UID
	}
	begun := time.Now()
	for pause, looked := firstRestPause, main.pid == 0; ; pause = min(2*pause, lastRestPause) {
		if looked {
			living, _ := remains(s.cgroup, func(int) bool { return false })
			signalAll(living, sigKILL)
			if s.cgroup != "" {
				KillCgroup(s.cgroup)
			}
			if time.Since(begun) >= tracerPatience {
				if len(living) == 0 {
					return main
				}
				for _, p := range living {
					p.EndTracers(uid)
				}
			}
		}
		looked = true // most helpers leave nothing: that is known at once
		select {
		case r := <-ended:
			if r.pid == 0 {
				return main
			}
			main = r
		case <-time.After(pause):
		}
	}
}
