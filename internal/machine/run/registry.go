package run

import (
	"os"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"berth/internal/machine/keep"
)

// registry knows which of this process's children with a session of their own it
// started: supervisors, and what StartApart starts. The others outside its session
// are orphans that were reparented to it. No orphan can be inside, because every
// job and every helper has a session of its own.
type registry struct {
	mu    sync.Mutex // held while a child is started, and while orphans are looked for
	known map[int]*os.Process
}

// start starts the command and records its process before it can be taken for
// an orphan.
func (g *registry) start(cmd *exec.Cmd) (startTicks uint64, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	g.known[cmd.Process.Pid] = cmd.Process
	startTicks, _ = keep.StartTicks(cmd.Process.Pid)
	return startTicks, nil
}

// wait reaps a supervisor that has exited or is about to.
func (g *registry) wait(p *os.Process) {
	_, _ = p.Wait()
	g.forget(p)
}

// forget is for a child that was reaped. Its number may already be another's.
func (g *registry) forget(p *os.Process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.known[p.Pid] == p {
		delete(g.known, p.Pid)
	}
}

// StartApart starts a command in a session of its own. The caller gets its end
// from wait, and must not call cmd.Wait.
func StartApart(cmd *exec.Cmd) (wait func() error, err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if _, err := spawned.start(cmd); err != nil {
		return nil, err
	}
	return func() error {
		err := cmd.Wait()
		spawned.forget(cmd.Process)
		return err
	}, nil
}

// orphans are the children that this process did not start. Dead ones are reaped
// here one by one: the statuses of berth's own children are collected elsewhere.
// The mutex was held since before the table was read, so no orphan in it was
// reaped meanwhile, and its number is still its own.
func (g *registry) orphans(table []keep.Process) (living []keep.Process) {
	self := os.Getpid()
	session, err := unix.Getsid(0)
	if err != nil {
		return nil
	}
	for _, p := range table {
		if p.Parent != self || p.Session == session || g.known[p.PID] != nil {
			continue
		}
		if p.Dead() {
			_, _ = unix.Wait4(p.PID, nil, unix.WNOHANG, nil)
			continue
		}
		living = append(living, p)
	}
	return living
}

// reap reaps all orphans that have ended. If no child has, that is one system call.
func (g *registry) reap() {
	var first unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &first, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	if err != nil || first.Signo == 0 {
		return // EINTR cannot come, and would only mean later
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if table, err := keep.Processes(); err == nil {
		g.orphans(table)
	}
}
