package keep

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// started is a job's process at its start.
type started struct {
	pid    int
	cgroup string
	limits limits
	note   string
	setup  int // read end of the set-up pipe, or -1
	pty    *terminal

	log   *logFile // nil if a stage opens it
	stage *stage   // nil if the process is the job already
	order []byte   // for the stage
}

// launch starts the order's command, or the stage that will become it. On
// error nothing runs. privileged means that the supervisor has privileges that
// its jobs must not inherit.
func launch(o Order, token string, privileged bool) (s started, err error) {
	s.setup = -1
	if !o.Helper {
		o.Env = jobEnv(o, token)
	}
	dir, cgroupFD := s.prepareCgroup(o, token)
	defer func() {
		if err != nil {
			s.log.excuse(err)
			s.abandon(dir)
			s = started{setup: -1}
		}
	}()
	if cgroupFD >= 0 {
		defer syscall.Close(cgroupFD)
	}
	s.limits = enforce(o, token, dir)
	if mask, err := o.mask(); err == nil && mask >= 0 {
		// The umask is that of the whole process, which creates no other file now.
		defer syscall.Umask(syscall.Umask(mask))
	}
	c := child{dir: "/", env: os.Environ(), argv: selfArgv(stageWord), path: "/proc/self/exe", cgroupFD: cgroupFD}
	defer c.close()
	if o.Credential != nil || privileged || o.Helper || len(s.limits.join) > 0 || o.Affinity != "" {
		err = s.prepareStage(o, &c)
	} else {
		err = s.prepareDirect(o, &c)
	}
	if err != nil {
		return s, err
	}
	if err := s.fork(o, dir, &c); err != nil {
		return s, err
	}
	return s, nil
}

// prepareCgroup creates the job's cgroup, if there is a parent for it.
func (s *started) prepareCgroup(o Order, token string) (dir string, fd int) {
	if dir = cgroupOf(o, token); dir == "" {
		return "", -1
	}
	fd, err := makeCgroup(dir)
	if err != nil {
		s.note = "no cgroup: " + err.Error()
		return "", -1
	}
	return dir, fd
}

// child is what a process is started with.
type child struct {
	path, dir string
	argv, env []string
	files     []int // its descriptors from 0 on
	cgroupFD  int
	opened    []int // for this start alone
}

func (c *child) close() {
	for _, fd := range c.opened {
		syscall.Close(fd)
	}
}

// prepareDirect is for a job that is simply a child of the supervisor.
func (s *started) prepareDirect(o Order, c *child) (err error) {
	if o.LogAlone {
		setAside(o.Log) // an old log is not this job's
	}
	if err := checkCode(o.Code); err != nil {
		return err
	}
	if err := checkDir(o.Dir); err != nil {
		return err
	}
	o.makeCheckpoints()
	if s.log, err = o.openLog(); err != nil {
		return err
	}
	if c.path, c.argv, err = o.command(); err != nil {
		return err
	}
	c.dir, c.env = o.Dir, o.Env
	if err := s.standard(o, c, s.log.fd); err != nil {
		return err
	}
	return s.addSetup(o, c)
}

// prepareStage is for all others.
func (s *started) prepareStage(o Order, c *child) error {
	f := o.Frame()
	for _, dir := range s.limits.join {
		f.Fields = append(f.Fields, Field{stageJoin, dir})
	}
	var err error
	if s.order, err = f.Encode(); err != nil {
		return err
	}
	if err := s.standard(o, c, -1); err != nil {
		return err
	}
	ours, theirs, err := newStage()
	if err != nil {
		return err
	}
	s.stage = ours
	c.opened, c.files = append(c.opened, theirs), append(c.files, theirs)
	return s.addSetup(o, c)
}

// standard are the descriptors 0, 1 and 2: a terminal; or /dev/null and the
// log; or nothing; or a helper's, which are the door's own.
func (s *started) standard(o Order, c *child, logFD int) error {
	if o.Pty {
		master, slave, err := openPty()
		if err != nil {
			return err
		}
		s.pty = newTerminal(master, slave)
		c.files = []int{slave, slave, slave}
		return grant(slave, o.Credential)
	}
	null, err := syscall.Open("/dev/null", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/null: %w", err)
	}
	c.opened = append(c.opened, null)
	c.files = []int{null, null, null}
	if logFD >= 0 {
		c.files[1], c.files[2] = logFD, logFD
	}
	if o.Helper {
		c.files[0], c.files[1] = 0, 1
	}
	return nil
}

// addSetup adds the pipe through which a wrapper reports that its set-up is
// done. In its place a helper has its program.
func (s *started) addSetup(o Order, c *child) error {
	if o.Helper {
		c.files = append(c.files, fdProgram)
	}
	if !o.Setup {
		return nil
	}
	var pipe [2]int
	if err := syscall.Pipe2(pipe[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK); err != nil {
		return fmt.Errorf("create set-up pipe: %w", err)
	}
	// The shell's two bytes never block, but it should not get a non-blocking
	// descriptor that it did not ask for.
	syscall.SetNonblock(pipe[1], false)
	s.setup = pipe[0]
	c.opened, c.files = append(c.opened, pipe[1]), append(c.files, pipe[1])
	return nil
}

// fork starts the process in its cgroup, or without one if that fails.
func (s *started) fork(o Order, cgroup string, c *child) (err error) {
	attr := &syscall.ProcAttr{Dir: c.dir, Env: c.env, Sys: &syscall.SysProcAttr{Setsid: true, Setctty: o.Pty}}
	for _, fd := range c.files {
		attr.Files = append(attr.Files, uintptr(fd))
	}
	if cgroup != "" {
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, c.cgroupFD
		if s.pid, err = o.forkExec(c.path, c.argv, attr); err == nil {
			s.cgroup = cgroup
			return nil
		}
		_ = RemoveCgroup(cgroup)
		s.limits.lost()
		s.note = note(s.note, "no cgroup: "+err.Error())
		attr.Sys.UseCgroupFD = false
	}
	if s.pid, err = o.forkExec(c.path, c.argv, attr); err != nil {
		return fmt.Errorf("exec %s: %w", c.path, err)
	}
	return nil
}

// errScarce is a start that failed for want of a process, memory or a file
// table entry.
var errScarce = errors.New("the machine has no room for another process")

// scarcity marks such an error.
func scarcity(err error) error {
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.ENFILE) {
		return fmt.Errorf("%w: %w", errScarce, err)
	}
	return err
}

// abandon undoes the steps of a failed start.
func (s *started) abandon(cgroup string) {
	if s.setup >= 0 {
		syscall.Close(s.setup)
	}
	if s.log != nil {
		s.log.close()
	}
	if s.stage != nil {
		s.stage.file.Close()
	}
	if s.pty != nil {
		s.pty.close()
	}
	s.limits.remove()
	if cgroup != "" {
		_ = RemoveCgroup(cgroup)
	}
}

// forkExec starts the file, or the shell where execution would need it.
func (o Order) forkExec(path string, argv []string, attr *syscall.ProcAttr) (pid int, err error) {
	pid, err = startProcess(path, argv, attr)
	if instead := o.shellInstead(path, argv, err); instead != nil {
		pid, err = startProcess("/bin/sh", instead, attr)
	}
	return pid, err
}

// shellInstead is what a shell is given after the kernel did not execute a file, or
// nil. It runs a script without a #! line, as if it were typed, and says what is
// wrong with a program of plain words, such as a missing interpreter.
func (o Order) shellInstead(path string, argv []string, err error) []string {
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		return append([]string{"sh", path}, argv[1:]...)
	case o.Argv[0] == "/bin/sh" && path != "/bin/sh" && (errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.ETXTBSY)):
		return o.Argv
	}
	return nil
}

// jobEnv is the order's environment with this attempt's token and MPS server,
// and without the token of an outer berth.
func jobEnv(o Order, token string) []string {
	own := append(o.MPS.Env(), TokenVariable+"="+TokenValue(token, o.Job, o.Attempt))
	env := make([]string, 0, len(o.Env)+len(own))
	for _, entry := range o.Env {
		name, _, _ := strings.Cut(entry, "=")
		if !hasVariable(own, name) {
			env = append(env, entry)
		}
	}
	return append(env, own...)
}

// lookPath finds the command in the job's own PATH, relative to its directory.
func lookPath(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path := "/usr/local/bin:/usr/bin:/bin"
	for _, entry := range env {
		if value, ok := strings.CutPrefix(entry, "PATH="); ok {
			path = value
		}
	}
	for _, place := range filepath.SplitList(path) {
		candidate := filepath.Join(place, name)
		if !filepath.IsAbs(candidate) {
			candidate = filepath.Join(dir, candidate)
		}
		if executable(candidate) {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("command %q not found in PATH", name)
}

func executable(path string) bool {
	const execute = 1
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && syscall.Access(path, execute) == nil
}

// checkCode keeps a job from running other code than it was submitted with.
func checkCode(snapshot string) error {
	if snapshot == "" {
		return nil
	}
	if info, err := os.Stat(snapshot); err == nil && info.IsDir() {
		return nil
	}
	return fmt.Errorf("the snapshot of its code is gone: %s; submit the job again", snapshot)
}

func checkDir(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("working directory: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("working directory: %s is not a directory", dir)
	}
	return nil
}
