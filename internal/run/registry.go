package run

import (
	"os"
	"os/exec"
	"sync"

	"golang.org/x/sys/unix"

	"berth/internal/keep"
)

// registry knows which of this process's children are supervisors. The others
// outside its session are orphans that were reparented to it.
type registry struct {
	mu   sync.Mutex // held while a child is started, and while orphans are listed
	pids map[int]bool
}

func newRegistry() *registry { return &registry{pids: make(map[int]bool)} }

// start starts the command and records its process before it can be taken for
// an orphan.
func (g *registry) start(cmd *exec.Cmd) (startTicks uint64, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	g.pids[cmd.Process.Pid] = true
	startTicks, _ = keep.StartTicks(cmd.Process.Pid)
	return startTicks, nil
}

// wait reaps a supervisor that has exited or is about to.
func (g *registry) wait(p *os.Process) {
	_, _ = p.Wait()
	g.mu.Lock()
	delete(g.pids, p.Pid)
	g.mu.Unlock()
}

// orphans are the children that this process did not start: they are outside
// its session, because a job always has one of its own. Dead ones are reaped
// here one by one, since the statuses of berth's own children are collected
// elsewhere.
func (g *registry) orphans(table []keep.Process) (living []keep.Process) {
	self := os.Getpid()
	session, err := unix.Getsid(0)
	if err != nil {
		return nil
	}
	for _, p := range table {
		if p.Parent != self || p.Session == session || g.pids[p.PID] {
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
