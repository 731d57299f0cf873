package keep

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// started is a job's process as it was born.
type started struct {
	pid     int
	logFrom int64
	cgroup  string
	note    string
	setup   int // read end of the set-up pipe, or -1
}

// launch starts the order's command. On error nothing runs.
func launch(o Order, token string) (started, error) {
	s := started{setup: -1}
	if err := checkDir(o.Dir); err != nil {
		return s, err
	}
	logFD, logFrom, err := openLog(o.Log)
	if err != nil {
		return s, err
	}
	defer syscall.Close(logFD)
	s.logFrom = logFrom
	null, err := syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return s, fmt.Errorf("open /dev/null: %w", err)
	}
	defer syscall.Close(null)
	files := []uintptr{uintptr(null), uintptr(logFD), uintptr(logFD)}
	if o.Setup {
		var pipe [2]int
		if err := syscall.Pipe2(pipe[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK); err != nil {
			return s, fmt.Errorf("make set-up pipe: %w", err)
		}
		// The shell writes its two bytes without ever having to wait, but it
		// should not meet a non-blocking descriptor it did not ask for.
		syscall.SetNonblock(pipe[1], false)
		defer syscall.Close(pipe[1])
		s.setup = pipe[0]
		files = append(files, uintptr(pipe[1]))
	}
	if err := s.fork(o, token, files); err != nil {
		if s.setup >= 0 {
			syscall.Close(s.setup)
		}
		return started{setup: -1, logFrom: logFrom}, err
	}
	return s, nil
}

// fork starts the process inside its cgroup, or without one where that fails.
func (s *started) fork(o Order, token string, files []uintptr) error {
	env := jobEnv(o, token)
	path, err := lookPath(o.Argv[0], o.Dir, env)
	if err != nil {
		return err
	}
	attr := &syscall.ProcAttr{Dir: o.Dir, Env: env, Files: files, Sys: &syscall.SysProcAttr{Setsid: true}}
	if dir := cgroupOf(o, token); dir != "" {
		fd, err := makeCgroup(dir)
		if err == nil {
			defer syscall.Close(fd)
			attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, fd
			if s.pid, err = forkExec(path, o.Argv, attr); err == nil {
				s.cgroup = dir
				return nil
			}
			_ = RemoveCgroup(dir)
			attr.Sys.UseCgroupFD = false
		}
		s.note = "no cgroup: " + err.Error()
	}
	s.pid, err = forkExec(path, o.Argv, attr)
	if err != nil {
		return fmt.Errorf("exec %s: %w", path, err)
	}
	return nil
}

// forkExec starts the file; one that is a script without a first line saying for
// whom is a shell's, as it would be if typed.
func forkExec(path string, argv []string, attr *syscall.ProcAttr) (pid int, err error) {
	pid, err = syscall.ForkExec(path, argv, attr)
	if errors.Is(err, syscall.ENOEXEC) {
		pid, err = syscall.ForkExec("/bin/sh", append([]string{"sh", path}, argv[1:]...), attr)
	}
	return pid, err
}

// jobEnv is the order's environment with this attempt's token in it, and with
// no token of an outer berth.
func jobEnv(o Order, token string) []string {
	env := make([]string, 0, len(o.Env)+1)
	for _, entry := range o.Env {
		if !strings.HasPrefix(entry, TokenVariable+"=") {
			env = append(env, entry)
		}
	}
	return append(env, TokenVariable+"="+TokenValue(token, o.Job, o.Attempt))
}

// lookPath finds the command in the job's own PATH, seen from its directory.
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
		if info, err := os.Stat(candidate); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("command %q not found in PATH", name)
}

func checkDir(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("working directory: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("working directory: %s is no directory", dir)
	}
	return nil
}

// openLog opens the log for appending and says where this attempt begins in
// it. A named pipe would hold the supervisor up for ever, so only files and
// devices such as /dev/null will do.
func openLog(path string) (fd int, from int64, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return -1, 0, fmt.Errorf("make log directory: %w", err)
	}
	const flags = syscall.O_WRONLY | syscall.O_CREAT | syscall.O_APPEND | syscall.O_CLOEXEC | syscall.O_NONBLOCK
	fd, err = syscall.Open(path, flags, 0o644)
	if err != nil {
		return -1, 0, fmt.Errorf("open log %s: %w", path, err)
	}
	var stat syscall.Stat_t
	if err := syscall.Fstat(fd, &stat); err != nil {
		syscall.Close(fd)
		return -1, 0, fmt.Errorf("open log %s: %w", path, err)
	}
	switch stat.Mode & syscall.S_IFMT {
	case syscall.S_IFREG, syscall.S_IFCHR:
		syscall.SetNonblock(fd, false)
		return fd, stat.Size, nil
	}
	syscall.Close(fd)
	return -1, 0, fmt.Errorf("open log %s: not a file", path)
}
