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
	r.set.mu.Lock()
	if r.set.closed {
		r.set.mu.Unlock()
		return "", errClosed
	}
	for n := len(r.set.pool); n > 0; n = len(r.set.pool) {
		s := r.set.pool[n-1]
		r.set.pool = r.set.pool[:n-1]
		if !s.dir.whole() {
			s.phase = over
			s.hangUp()
			continue
		}
		s.phase = leased
		r.set.mu.Unlock()
		return s.token, nil
	}
	r.set.mu.Unlock()
	return r.spawn()
}

// Release returns an unused lease.
func (r *Runner) Release(token string) {
	r.set.mu.Lock()
	defer r.set.mu.Unlock()
	if s := r.set.all[token]; s != nil && s.phase == leased {
		r.set.rest(s)
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
	dir := directory(filepath.Join(r.dir, token))
	err = os.Mkdir(string(dir), 0o700)
	if errors.Is(err, os.ErrNotExist) {
		err = os.MkdirAll(string(dir), 0o700) // somebody removed the directory of all supervisors
	}
	if err != nil {
		return "", fmt.Errorf("create supervisor directory: %w", err)
	}
	defer func() {
		if err != nil {
			os.RemoveAll(string(dir))
		}
	}()
	inherited, conn, err := dir.furnish()
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
		set: r.set, token: token, dir: dir, phase: leased, process: cmd.Process, greeted: make(chan struct{}),
		identity: Identity{Token: token, KeepPID: cmd.Process.Pid, KeepStart: start},
	}
	r.set.mu.Lock()
	defer r.set.mu.Unlock()
	if r.set.closed {
		conn.Close()
		spawned.wait(cmd.Process)
		return "", errClosed
	}
	r.set.all[token] = s
	l := s.connect(conn)
	r.set.group.Go(func() { s.attend(l) })
	return token, nil
}

// startKeep starts the process in the supervisors' own cgroup if there is one.
// If that fails, it starts in berth's: the job matters more.
func (r *Runner) startKeep(token string, inherited []*os.File) (cmd *exec.Cmd, start uint64, err error) {
	r.set.mu.Lock()
	command := append(r.set.command[:len(r.set.command):len(r.set.command)], token)
	r.set.mu.Unlock()
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
		r.set.log.Warn("cannot start a supervisor in its cgroup", "cgroup", r.keepCgroup, "error", err)
	}
	cmd = prepare()
	if start, err = spawned.start(cmd); err != nil {
		return nil, 0, fmt.Errorf("start supervisor %s: %w", command[0], err)
	}
	return cmd, start, nil
}

// furnish fills a supervisor's directory and returns the files it inherits, in
// the order of its descriptors, and berth's end of the connection.
func (d directory) furnish() (inherited []*os.File, conn *net.UnixConn, err error) {
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
	listener, err := d.listen()
	if err != nil {
		return inherited, nil, err
	}
	inherited = append(inherited, listener)
	lock, err := os.OpenFile(d.file(lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return inherited, nil, fmt.Errorf("create supervisor lock: %w", err)
	}
	inherited = append(inherited, lock)
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return inherited, nil, fmt.Errorf("lock supervisor directory: %w", err)
	}
	// The record is renamed when it is complete: half of one proves nothing.
	path := d.file(recordName)
	record, err := os.OpenFile(path+".new", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return inherited, nil, fmt.Errorf("create supervisor record: %w", err)
	}
	inherited = append(inherited, record)
	if err := keep.Prepare(record, d.token()); err != nil {
		return inherited, nil, err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return inherited, nil, fmt.Errorf("create supervisor record: %w", err)
	}
	for _, dir := range []string{string(d), filepath.Dir(string(d))} {
		if err := syncDir(dir); err != nil {
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
