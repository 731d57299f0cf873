package run

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"berth/internal/machine/keep"
)

// Lease takes a warm supervisor, or starts one. Nothing runs until Go.
func (r *Runner) Lease() (token string, err error) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return "", errClosed
	}
	for n := len(r.pool); n > 0; n = len(r.pool) {
		s := r.pool[n-1]
		r.pool = r.pool[:n-1]
		if !whole(s.dir) {
			s.phase = over
			s.hangUp()
			continue
		}
		s.phase = leased
		r.mu.Unlock()
		return s.token, nil
	}
	r.mu.Unlock()
	return r.spawn()
}

// whole reports whether a later berth could find the supervisor: somebody may
// have removed its files.
func whole(dir string) bool {
	for _, name := range []string{lockName, recordName, sockName} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}

// Release returns an unused lease.
func (r *Runner) Release(token string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.all[token]
	if s == nil || s.phase != leased {
		return
	}
	switch {
	case s.dead:
		r.forget(s)
	case len(r.pool) >= r.maxIdle:
		s.phase = over
		s.hangUp()
	default:
		s.phase = idle
		r.pool = append(r.pool, s)
	}
}

// spawned are the supervisors that this process started, with any Runner: they
// are not orphans among its children.
var spawned = &registry{known: make(map[int]*os.Process)}

// spawn starts a supervisor in a directory of its own. Everything is prepared
// before it starts: the lock is held, the record has its space, the socket
// listens. So a later berth that finds the directory knows what happened.
func (r *Runner) spawn() (token string, err error) {
	random := make([]byte, 8)
	rand.Read(random)
	token = hex.EncodeToString(random)
	dir := filepath.Join(r.dir, token)
	err = os.Mkdir(dir, 0o700)
	if errors.Is(err, os.ErrNotExist) {
		err = os.MkdirAll(dir, 0o700) // somebody removed the directory of all supervisors
	}
	if err != nil {
		return "", fmt.Errorf("create supervisor directory: %w", err)
	}
	defer func() {
		if err != nil {
			os.RemoveAll(dir)
		}
	}()
	inherited, conn, err := r.furnish(dir, token)
	for _, f := range inherited {
		defer f.Close()
	}
	if err != nil {
		return "", err
	}
	cmd, start, err := r.startKeep(token, inherited)
	if err != nil {
		conn.Close()
		return "", err
	}
	s := &supervisor{
		token: token, dir: dir, phase: leased, process: cmd.Process, greeted: make(chan struct{}),
		identity: Identity{Token: token, KeepPID: cmd.Process.Pid, KeepStart: start},
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		conn.Close()
		spawned.wait(cmd.Process)
		return "", errClosed
	}
	r.all[token] = s
	l := r.connect(s, conn)
	r.group.Go(func() { r.attend(s, l) })
	return token, nil
}

// startKeep starts the process in the supervisors' own cgroup if there is one.
// If that fails, it starts in berth's: the job matters more.
func (r *Runner) startKeep(token string, inherited []*os.File) (cmd *exec.Cmd, start uint64, err error) {
	r.mu.Lock()
	command := append(r.command[:len(r.command):len(r.command)], token)
	r.mu.Unlock()
	prepare := func() *exec.Cmd {
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Dir, cmd.Env, cmd.ExtraFiles = "/", keepEnv(), inherited
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		return cmd
	}
	if r.keepCgroup != "" {
		fd, err := unix.Open(r.keepCgroup, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err == nil {
			defer unix.Close(fd)
			cmd = prepare()
			cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, fd
			if start, err = spawned.start(cmd); err == nil {
				return cmd, start, nil
			}
		}
		r.log.Warn("cannot start a supervisor in its cgroup", "cgroup", r.keepCgroup, "error", err)
	}
	cmd = prepare()
	if start, err = spawned.start(cmd); err != nil {
		return nil, 0, fmt.Errorf("start supervisor %s: %w", command[0], err)
	}
	return cmd, start, nil
}

// furnish fills a supervisor's directory and returns the files it inherits, in
// the order of its descriptors, and berth's end of the connection.
func (r *Runner) furnish(dir, token string) (inherited []*os.File, conn *net.UnixConn, err error) {
	theirs, ours, err := socketPair()
	if err != nil {
		return nil, nil, err
	}
	inherited = append(inherited, theirs)
	defer func() {
		if err != nil {
			ours.Close()
		}
	}()
	listener, err := listenIn(dir)
	if err != nil {
		return inherited, nil, err
	}
	inherited = append(inherited, listener)
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return inherited, nil, fmt.Errorf("create supervisor lock: %w", err)
	}
	inherited = append(inherited, lock)
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return inherited, nil, fmt.Errorf("lock supervisor directory: %w", err)
	}
	// The record is renamed when it is complete: half of one proves nothing.
	path := filepath.Join(dir, recordName)
	record, err := os.OpenFile(path+".new", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return inherited, nil, fmt.Errorf("create supervisor record: %w", err)
	}
	inherited = append(inherited, record)
	if err := keep.Prepare(record, token); err != nil {
		return inherited, nil, err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return inherited, nil, fmt.Errorf("create supervisor record: %w", err)
	}
	for _, d := range []string{dir, r.dir} {
		if err := syncDir(d); err != nil {
			return inherited, nil, err
		}
	}
	return inherited, ours, nil
}

// keepEnv is a supervisor's own environment: small, without variables that a
// user may have set for Go programs. An outer job's token is passed on, so
// that a berth inside a job ends with the job.
func keepEnv() []string {
	env := []string{"GOMAXPROCS=1", "PATH=/usr/bin:/bin"}
	if outer := os.Getenv(keep.TokenVariable); outer != "" {
		env = append(env, keep.TokenVariable+"="+outer)
	}
	return env
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync directory %s: %w", path, err)
	}
	return nil
}
